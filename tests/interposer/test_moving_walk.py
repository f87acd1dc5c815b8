"""Three tenants that do whatever comes, on a GPU that is too small for them: what holds, holds all the time.

The GPU never gives out more than the capacity, the host memory that is pinned is never more than the budget, no byte of
anybody is lost, production gets what others can make room for, and in the end everybody goes on. The first two are not
sampled: the driver between the interposer and the software GPU (programs/failing_driver.c) keeps the highest figure.

COTENANT_TEST_WALKS=250 makes so many walks, each time others; what fails is then made as short as possible.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cotenant import segment
from cotenant.segment import Where
from cotenant.tenants import pausing
from tests.conftest import REAL_GPU
from tests.interposer.failing import FUNCTIONS, Built, Job, Machine, MiB
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(REAL_GPU, reason="the driver that watches stands before the software GPU")

WALKS = os.environ.get("COTENANT_TEST_WALKS")
CAPACITY = 64 * MiB
PAGE = 2 * MiB
POOL_STEP = 32 * MiB
PRODUCTION, STANDARD, OPPORTUNISTIC = range(3)
MOST_WAITING = 4  # a job that waits for its memory is not told more than that

names = st.sampled_from(("production", "one", "other"))
moving = st.sampled_from(("one", "other"))
sizes = st.sampled_from((700, 3 * MiB, 9 * MiB + 5, 20 * MiB, 31 * MiB))
seldom = st.sampled_from((False, False, True))


class Player:
    """A job, and what it still has to answer."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.waiting: list[tuple[str, set[str]]] = []
        self.tenant_class = OPPORTUNISTIC

    def tell(self, line: str, *answers: str) -> None:
        if len(self.waiting) < MOST_WAITING:
            self.job.say(line)
            self.waiting.append((line, set(answers)))

    def hear(self, seconds: float) -> bool:
        """Whether it has nothing left to answer."""
        while self.waiting:
            line, answers = self.waiting[0]
            heard = self.job.hear(seconds)
            if heard is None:
                return False
            assert heard in answers, f"{line}: {heard}"
            del self.waiting[0]
        return True


class Walk(RuleBasedStateMachine):
    surroundings: tuple[Built, dict[str, str], Path]
    number = 0

    def __init__(self) -> None:
        super().__init__()
        built, env, folder = self.surroundings
        Walk.number += 1
        place = folder / f"walk-{Walk.number}"
        place.mkdir()
        self.machine = Machine(built, env | {"COTENANT_SEGMENT": str(place / "segment")}, place)
        self.machine.set_memory_knobs(headroom=1, stay_ms=20)
        self.budget, self.something_fails = 0, False
        self.players: dict[str, Player] = {}

    @initialize(budget=st.sampled_from((48 * MiB, 96 * MiB, 1024 * MiB)))
    def begin(self, budget: int) -> None:
        self.budget = budget
        self.machine.set_memory_knobs(host_memory=budget)
        for name in ("production", "one", "other"):
            self.start(name)
        for name in ("one", "other"):
            self.players[name].tell(f"add alloc {24 * MiB}", "added")

    def start(self, name: str) -> None:
        tenant_class = "production" if name == "production" else "opportunistic"
        player = Player(self.machine.start(tenant_class, COTENANT_CAPACITY=str(CAPACITY)))
        player.tenant_class = PRODUCTION if name == "production" else OPPORTUNISTIC
        self.players[name] = player

    def ask(self, name: str, **wanted: int) -> bool:
        """False: it has not used the GPU yet, and nobody knows it."""
        return segment.ask(self.machine.path, self.players[name].job.pid, wanted)

    def must_be_served(self, way: str, size: int) -> bool:
        """Production, when all others would make room and could."""
        job = self.players["production"].job
        if self.players["production"].waiting or self.budget < 1024 * MiB or self.something_fails:
            return False
        if any(
            player.tenant_class == PRODUCTION for name, player in self.players.items() if name != "production"
        ):
            return False
        step = POOL_STEP if way == "ordered" else PAGE
        seen = job.seen_if_there()
        has = sum(use.memory_bytes for use in seen.uses) if seen else 0
        return has + -(-size // step) * step + (PAGE if way == "alloc" else 0) <= CAPACITY

    @rule(name=names, way=st.sampled_from(("alloc", "ordered", "mapped")), size=sizes)
    def add(self, name: str, way: str, size: int) -> None:
        served = name == "production" and self.must_be_served(way, size)
        self.players[name].tell(f"add {way} {size}", "added", *(() if served else ("error 2",)))

    @rule(size=sizes)
    def production_grows(self, size: int) -> None:
        self.add("production", "alloc", size)
        self.players["production"].hear(2)

    @rule()
    def production_shrinks(self) -> None:
        self.players["production"].tell("free", "freed", "nothing")

    @rule(name=names, count=st.sampled_from((3, 40)))
    def add_small_ones(self, name: str, count: int) -> None:
        self.players[name].tell(f"add alloc 5000 {count}", "added", "error 2")

    @rule(name=names, index=st.integers(0, 9))
    def free(self, name: str, index: int) -> None:
        self.players[name].tell(f"free {index}", "freed", "nothing")

    @rule(name=names, index=st.integers(0, 9))
    def write(self, name: str, index: int) -> None:
        self.players[name].tell(f"write {index}", "written", "nothing")

    @rule(name=moving, pause=st.booleans())
    def pause_or_resume(self, name: str, pause: bool) -> None:
        if self.ask(name, pause=int(pause)):
            job = self.players[name].job
            wait_for(lambda: "pause" not in job.seen().asked)

    @rule(name=moving, limit=st.sampled_from((0, 4 * MiB, 24 * MiB)))
    def limit(self, name: str, limit: int) -> None:
        self.ask(name, memory=limit)

    @rule(name=moving, tenant_class=st.sampled_from((OPPORTUNISTIC, OPPORTUNISTIC, STANDARD, PRODUCTION)))
    def change_class(self, name: str, tenant_class: int) -> None:
        player = self.players[name]
        if not self.ask(name, tenant_class=tenant_class):
            return
        wait_for(lambda: player.job.seen().tenant_class == tenant_class)
        player.tenant_class = tenant_class

    @rule(name=names)
    def let_it_come_to_rest(self, name: str) -> None:
        self.players[name].hear(0.3)

    @rule(name=names, really=seldom)
    def kill(self, name: str, really: bool) -> None:
        if not really:
            return
        faults, player = self.machine.faults, self.players[name]
        # The driver gives a dead process's memory back a moment after its slot is known to be free.
        faults.unwatched = 1
        player.job.kill()
        self.machine.bury(player.job)
        self.start(name)

        def is_gone() -> bool:
            self.players[name].job.tell("look", "looked")
            return bool(faults.used <= CAPACITY)

        wait_for(is_gone)
        faults.unwatched = 0

    @rule(
        name=moving,
        function=st.sampled_from(FUNCTIONS),
        occurrence=st.integers(1, 5),
        lasting=st.booleans(),
        really=seldom,
    )
    def let_a_call_fail(self, name: str, function: str, occurrence: int, lasting: bool, really: bool) -> None:
        if not really:
            return
        self.something_fails = True
        self.machine.faults.pid = self.players[name].job.pid
        self.machine.faults.arm(function, occurrence, lasting=lasting)

    @invariant()
    def all_is_well(self) -> None:
        for player in self.players.values():
            if not player.waiting:
                player.tell("check", "whole")
        for player in self.players.values():
            player.hear(0.02)
        self.look_at_the_sums()

    def look_at_the_sums(self) -> None:
        faults = self.machine.faults
        assert faults.most_used <= CAPACITY
        assert faults.most_pinned <= self.budget

    def teardown(self) -> None:
        try:
            if self.players:
                self.end_well()
        except BaseException as error:
            for name, player in self.players.items():
                error.add_note(f"{name}: {player.waiting} {player.job.seen_if_there()}")
            raise
        finally:
            self.machine.end()

    def end_well(self) -> None:
        """With nothing in their way, everybody answers, and has all that was theirs."""
        self.machine.faults.armed = 0
        for name in ("one", "other"):
            self.ask(name, pause=0, memory=0, tenant_class=OPPORTUNISTIC)
        production = self.players["production"]
        assert production.hear(60), production.waiting
        self.free_all(production)
        left = list(self.players.values())
        while left:
            wait_for(lambda: any(player.hear(0) for player in left))
            # One that is away may have to wait for the other's place, which that gives up only below.
            one = min((player for player in left if player.hear(0)), key=is_away)
            one.tell("check", "whole")
            # Evicted for the other just then, which gives up its place first: it is asked again afterwards.
            if not one.hear(5):
                continue
            # Where there is no host memory for turns, one has to make place for the other.
            if self.budget < 1024 * MiB:
                self.free_all(one)
            left.remove(one)
        self.look_at_the_sums()
        wait_for(self.is_counted_as_it_is)

    def free_all(self, player: Player) -> None:
        heard: str | None = "freed"
        while heard == "freed":
            player.job.say("free")
            heard = player.job.hear()
        assert heard == "nothing"

    def is_counted_as_it_is(self) -> bool:
        self.players["production"].job.tell("look", "looked")
        seen = segment.read(self.machine.path).tenants
        if any(one.where in (Where.evicting, Where.restoring) for one in seen):
            return False
        counted = sum(use.memory_bytes for one in seen for use in one.uses)
        pinned = sum(one.host_pinned_bytes for one in seen)
        return (counted, pinned) == (self.machine.faults.used, self.machine.faults.pinned())


def is_away(player: Player) -> bool:
    seen = player.job.seen_if_there()
    return seen is not None and seen.where == Where.evicted


@pytest.mark.timeout(7200 if WALKS else 300)
def test_whatever_comes(softgpu_env: dict[str, str], native: Path, tmp_path: Path) -> None:
    Walk.surroundings = Built(tmp_path, native), softgpu_env, tmp_path
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=int(WALKS or 10),
            stateful_step_count=40,
            derandomize=WALKS is None,
            phases=[Phase.generate, Phase.shrink] if WALKS else [Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_what_a_paused_job_waits_for_is_not_held(
    softgpu_env: dict[str, str], native: Path, tmp_path: Path
) -> None:
    machine = Machine(Built(tmp_path, native), softgpu_env, tmp_path)
    machine.set_memory_knobs(headroom=1)
    try:
        one = machine.start("opportunistic", COTENANT_CAPACITY=str(CAPACITY))
        above = machine.start("production", COTENANT_CAPACITY=str(CAPACITY))
        one.tell(f"add alloc {8 * MiB}", "added")
        pausing.pause(machine.path, one.pid)
        for way in ("alloc", "ordered", "mapped"):
            one.say(f"add {way} {12 * MiB}")
        above.tell(f"add alloc {CAPACITY}", "added")
        above.tell("free", "freed")
        assert sum(use.memory_bytes for use in one.seen().uses) == 0
        pausing.resume(machine.path, one.pid, 30)
        assert [one.hear() for _ in range(3)] == ["added"] * 3
        one.tell("check", "whole")
    finally:
        machine.end()


def test_a_paused_job_without_memory_keeps_nobody_out(
    softgpu_env: dict[str, str], native: Path, tmp_path: Path
) -> None:
    """What it waited for when it last came back is not what it waits for now."""
    machine = Machine(Built(tmp_path, native), softgpu_env, tmp_path)
    machine.set_memory_knobs(headroom=1)
    try:
        above = machine.start("production", COTENANT_CAPACITY=str(CAPACITY), COTENANT_OVERSUBSCRIBE="1")
        one = machine.start("opportunistic", COTENANT_CAPACITY=str(CAPACITY))
        above.tell(f"add alloc {8 * MiB}", "added")
        one.tell(f"add alloc {4 * MiB}", "added")
        pausing.pause(machine.path, above.pid)
        pausing.resume(machine.path, above.pid, 30)
        above.tell("free", "freed")
        pausing.pause(machine.path, above.pid)
        pausing.pause(machine.path, one.pid)
        pausing.resume(machine.path, one.pid, 0)
        wait_for(lambda: one.seen().where == Where.resident)
        one.tell("check", "whole")
    finally:
        machine.end()
