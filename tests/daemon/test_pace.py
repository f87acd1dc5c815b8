"""How often the daemon ticks: never without work, as the policy says where tenants contend, and never for a tenth of a
core. What it holds outlasts the next tick, and not the daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.daemon import loop, report
from cotenant.daemon.attachment import DEFAULTS, Attachment, Look
from cotenant.daemon.loop import ACTIVE_US, Activity, Daemon
from cotenant.policies.interface import Knobs, Rule, Tenant, View
from tests.daemon.made import COTENANT, FIRM, add, daemon, policy_file
from tests.segments import UUID, Written
from tests.waiting import wait_for

COUNTING = """
from cotenant.policies.interface import Knobs, TenantKnobs
TICKS = []
class Counting:
    name, title, every_ms = "counting", "counts its ticks", EVERY
    def tick(self, view):
        TICKS.append(view)
        return Knobs(tenants={one.id: TenantKnobs(shut=True, tolerant=True) for one in view.tenants})
    def explain(self, tenant): return []
"""
FOREVER_MS = 60_000


def counting(attachment: Attachment, folder: Path, every_ms: float = 10) -> Daemon:
    return daemon(attachment, policy_file(folder, COUNTING.replace("EVERY", str(every_ms))))


def ticks_of(one: Daemon) -> int:
    return len(sys.modules[one.policy.__module__].TICKS)


def set_busy(attachment: Attachment, *slots: int) -> None:
    for index in (0, 70):
        attachment.slots[index].gpus[0].busy = int(index in slots)


def test_who_has_no_work_costs_no_ticks(attachment: Attachment, tmp_path: Path) -> None:
    set_busy(attachment)
    one = counting(attachment, tmp_path)
    assert [one.tick() for _ in range(5)] == [None] * 5
    assert ticks_of(one) == 1, "the first, as it is a new policy"


def test_one_at_work_is_calm_and_two_contend(attachment: Attachment, tmp_path: Path) -> None:
    one = counting(attachment, tmp_path)
    set_busy(attachment, 70)
    assert one.tick() == loop.CALM_MS
    set_busy(attachment, 0, 70)
    assert one.tick() == 10
    assert ticks_of(one) == 2


def test_a_slow_policy_is_never_hurried(attachment: Attachment, tmp_path: Path) -> None:
    one = counting(attachment, tmp_path, every_ms=500)
    assert one.tick() == 500
    set_busy(attachment, 70)
    one.activity = Activity()
    assert one.tick() == 500


def look_at(now_us: float, *tenants: tuple[int, bool, int], gpu: int = 0) -> Look:
    """Of tenants as (id, whether it has work, operations)."""
    seen = [Tenant(id, TenantClass.standard, has_work=work, operations=done) for id, work, done in tenants]
    return Look(len(seen), {gpu: View(now_us, seen)})


def test_work_between_two_looks_counts() -> None:
    activity = Activity()
    assert activity.most_on_one_gpu(look_at(0, (1, True, 5), (2, False, 5))) == 1
    assert activity.most_on_one_gpu(look_at(10, (1, True, 5), (2, False, 6))) == 2


def test_who_worked_a_moment_ago_is_at_work() -> None:
    activity = Activity()
    assert activity.most_on_one_gpu(look_at(0, (1, True, 5))) == 1
    assert activity.most_on_one_gpu(look_at(ACTIVE_US - 1, (1, False, 5))) == 1
    assert activity.most_on_one_gpu(look_at(ACTIVE_US, (1, False, 5))) == 0
    # Having been seen at work a moment ago is not work.
    assert activity.most_on_one_gpu(look_at(ACTIVE_US + 1, (1, False, 5))) == 0


def test_work_on_different_gpus_is_no_contention() -> None:
    look = look_at(0, (1, True, 5))
    look.views |= look_at(0, (1, True, 5), (2, True, 3), gpu=3).views
    look.views |= look_at(0, (4, True, 5), gpu=7).views
    assert Activity().most_on_one_gpu(look) == 2
    del look.views[3]
    assert Activity().most_on_one_gpu(look) == 1


@pytest.mark.parametrize(
    ("every_ms", "busy"), [(10, (0, 70)), (10, (70,)), (60, (0, 70)), (500, (0, 70)), (500, (70,))]
)
def test_what_is_held_outlasts_the_next_tick_but_one(
    attachment: Attachment, tmp_path: Path, every_ms: float, busy: tuple[int, ...]
) -> None:
    set_busy(attachment, *busy)
    one = counting(attachment, tmp_path, every_ms)
    began = time.monotonic_ns()
    pause_ms = one.tick()
    assert pause_ms is not None
    here = attachment.slots[70].gpus[0]
    for until in (here.shut_until_ns, here.tolerant_until_ns):
        # A tick may also be late: for a fraction of a second nothing runs out.
        assert (
            began + max(2 * pause_ms, 100) * 1e6
            <= until
            <= time.monotonic_ns() + 3 * max(pause_ms, 100) * 1e6
        )


def test_ticks_that_cost_much_are_fewer_and_hold_for_longer(attachment: Attachment, tmp_path: Path) -> None:
    one = counting(attachment, tmp_path)
    one.tick()
    one.cost_ms = 6.0
    began = time.monotonic_ns()
    assert one.tick() == pytest.approx(6.0 / loop.SHARE)
    assert attachment.slots[70].gpus[0].shut_until_ns >= began + 2 * 6.0 / loop.SHARE * 1e6
    # Nobody is held for seconds, whatever a tick costs.
    one.cost_ms = 5000.0
    assert one.tick() == loop.LONGEST_PAUSE_MS
    assert attachment.slots[70].gpus[0].shut_until_ns < time.monotonic_ns() + 1e9


def test_the_cost_of_ticks_is_learned(attachment: Attachment, tmp_path: Path) -> None:
    source = COUNTING.replace("EVERY", "10").replace("TICKS.append(view)", "sum(range(300_000))")
    one = daemon(attachment, policy_file(tmp_path, source))
    for _ in range(30):
        one.tick()
    began = time.thread_time()
    sum(range(300_000))
    cost_ms = (time.thread_time() - began) * 1000
    assert one.cost_ms > cost_ms / 3
    assert (one.tick() or 0) > 10


def begin_work(attachment: Attachment) -> None:
    attachment.slots[70].gpus[0].busy = 1


def launch_something(attachment: Attachment) -> None:
    attachment.slots[70].gpus[0].figures.kernels += 1


def leave(attachment: Attachment) -> None:
    attachment.header.members[TenantClass.opportunistic][1] = 0


def name_a_policy(attachment: Attachment) -> None:
    segment.choose_policy(attachment.path, "strict")


@pytest.mark.parametrize("what", [begin_work, launch_something, leave, name_a_policy])
def test_it_sleeps_until_something_happens(
    attachment: Attachment, what: Callable[[Attachment], None]
) -> None:
    set_busy(attachment)
    began, answers = time.monotonic(), []
    sleeper = threading.Thread(
        target=lambda: answers.append(attachment.sleep(FOREVER_MS, attachment.choices, ()))
    )
    sleeper.start()
    sleeper.join(0.2)
    assert sleeper.is_alive()
    what(attachment)
    sleeper.join()
    assert answers == [0] and time.monotonic() - began < FOREVER_MS / 2000


def test_a_stopped_tenant_wakes_nobody(attachment: Attachment) -> None:
    for index in (0, 70):
        attachment.slots[index].heartbeat_ns = 1
    began = time.monotonic()
    attachment.sleep(120, attachment.choices, ())
    assert time.monotonic() - began >= 0.12


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_sleeping_daemon_ends_when_it_is_told(
    path: Path, attachment: Attachment, plain_env: dict[str, str], number: signal.Signals
) -> None:
    set_busy(attachment)
    with subprocess.Popen([*COTENANT, "daemon"], env=plain_env) as child:
        wait_for(lambda: report.read(path) is not None)
        child.send_signal(number)
        assert child.wait(60) == 0


def test_a_sleeping_daemon_wakes_for_work(
    path: Path, attachment: Attachment, plain_env: dict[str, str], tmp_path: Path
) -> None:
    set_busy(attachment)
    with subprocess.Popen(
        [*COTENANT, "daemon", "--policy", policy_file(tmp_path, FIRM)], env=plain_env
    ) as child:
        wait_for(lambda: report.read(path) is not None)
        below = attachment.slots[70].gpus[0]
        wait_for(lambda: 0 < below.shut_until_ns < time.monotonic_ns())
        set_busy(attachment, 0, 70)
        wait_for(lambda: below.shut_until_ns > time.monotonic_ns())
        child.terminate()
        assert child.wait(60) == 0


def test_the_report_is_not_written_again_for_nothing(attachment: Attachment, tmp_path: Path) -> None:
    set_busy(attachment)
    one = counting(attachment, tmp_path)
    one.tick()
    file = report.file_for(attachment.path)
    file.unlink()
    one.report.next_write, one.report.written = 0.0, None
    one.tick()
    assert not file.exists()
    # WHEN somebody comes or goes, THEN it is.
    attachment.slots[70].owner = 0
    one.report.next_write = 0.0
    one.tick()
    assert file.exists()


def test_a_costly_report_is_followed_by_a_long_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = report.Report(tmp_path / "segment")
    monkeypatch.setattr("cotenant.daemon.report.time.monotonic", lambda: 100.0)
    shown.pause(0.001)
    assert shown.next_write == 100.25
    shown.pause(0.010)
    assert shown.next_write == 100.5


def test_of_several_gpus_the_smallest_knob_counts(attachment: Attachment) -> None:
    knobs = attachment.header.knobs

    def turned(*wanted: Knobs) -> tuple[int, int, int, int]:
        attachment.turn_all(wanted)
        return knobs.rule, knobs.gate_every_us, knobs.in_flight_us, knobs.turn_us

    assert turned(
        Knobs(rule=Rule.fair, gate_every_us=300, in_flight_us=9000),
        Knobs(rule=Rule.fair, gate_every_us=200, turn_us=7),
    ) == (Rule.fair, DEFAULTS["gate_every_us"] * 2, 9000, 7)
    assert turned(Knobs(gate_every_us=30), Knobs(gate_every_us=40)) == (
        1,
        30,
        DEFAULTS["in_flight_us"],
        DEFAULTS["turn_us"],
    )
    # One that leaves a knob alone wants the default.
    assert turned(Knobs(gate_every_us=300), Knobs())[1] == DEFAULTS["gate_every_us"]
    assert turned() == (1, DEFAULTS["gate_every_us"], DEFAULTS["in_flight_us"], DEFAULTS["turn_us"])


def test_each_gpu_has_a_controller_of_its_own(native: Path, tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.gpu(1, bytes(16))
    written.header.knobs = segment.Knobs(rule=1, stale_ms=60_000, **DEFAULTS)
    slot = add(written, 0, 100, TenantClass.production)
    slot.gpus[1].busy = 1
    slot.gpus[1].figures.bursts = 1
    attached = Attachment(written.to(tmp_path / "segment"))
    # One process is one tenant on both.
    assert [[place.id for place in places] for places in attached.look().places.values()] == [[1], [1]]
    one = counting(attached, tmp_path)
    one.tick()
    assert ticks_of(one) == 2 and set(one.controllers) == {0, 1}
    assert one.controllers[0] is not one.controllers[1]
    assert all(attached.slots[0].gpus[gpu].shut_until_ns for gpu in (0, 1))
    attached.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_it_leaves_a_segment_that_nobody_finds_any_more(
    attachment: Attachment, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    one = Daemon(attachment, "strict", linger_seconds=0)
    monkeypatch.setattr(loop, "somebody_under", lambda path: 4711)
    assert attachment.is_current() and one.is_needed()
    attachment.path.unlink()
    if how == "replaced":
        segment.ensure(attachment.path)
    assert not attachment.is_current() and not one.is_needed()
    # The report under that name is another daemon's now.
    one.tick()
    assert not report.file_for(attachment.path).exists()


def test_it_lingers_and_looks_for_jobs_only_then(
    attachment: Attachment, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Daemon(attachment, "strict", linger_seconds=10)
    found: list[int | None] = [None]
    monkeypatch.setattr(loop, "somebody_under", lambda path: found[0])
    assert one.is_needed()
    one.needed_at -= 11
    assert not one.is_needed()
    found[0] = 4711
    assert one.is_needed() and time.monotonic() - one.needed_at < 10


def test_a_job_that_was_found_is_looked_at_alone(
    attachment: Attachment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands of processes."""
    one = Daemon(attachment, "strict", linger_seconds=0)
    scans, living = [], {4711}

    def scan(path: Path) -> int | None:
        scans.append(path)
        return next(iter(living), None)

    monkeypatch.setattr(loop, "somebody_under", scan)
    monkeypatch.setattr(loop, "is_under", lambda path, pid: pid in living)
    assert one.is_needed() and one.is_needed() and len(scans) == 1
    living.clear()
    assert not one.is_needed() and len(scans) == 2


@pytest.mark.parametrize("name", ["segment", os.fsdecode(b"\xff")])
def test_only_who_was_started_by_run_is_a_job(tmp_path: Path, name: str) -> None:
    """Not a shell in which somebody has exported the segment's name: the daemon would never end."""
    path = tmp_path / name
    for more, is_job in (({}, False), ({"COTENANT_RUN_ID": "1"}, True)):
        env = {"PATH": os.environ["PATH"], "COTENANT_SEGMENT": str(path), **more}
        started = ["sh", "-c", "echo; cat"]
        with subprocess.Popen(started, stdin=-1, stdout=-1, env=env, bufsize=0) as process:
            # The kernel may show a process that has not begun without its environment.
            assert process.stdout and process.stdout.read(1)
            assert loop.is_under(path, process.pid) is is_job
            assert not loop.is_under(tmp_path / "another", process.pid)
            process.communicate()


def test_tenants_keep_it(attachment: Attachment) -> None:
    one = Daemon(attachment, "strict", linger_seconds=10)
    one.needed_at = 0
    one.tick()
    assert one.needed_at > 0
    one.needed_at = 0  # a tick that took long
    assert one.is_needed()
    for index in (0, 70):
        attachment.slots[index].owner = 0
    one.tick()
    assert not one.is_needed()
