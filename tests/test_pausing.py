"""Pausing by hand: what the command makes of how a tenant stands, one look after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotenant import segment
from cotenant.commands import pause
from cotenant.errors import Problem
from cotenant.segment import Refusal, Tenant, Where, wire
from cotenant.tenants import jobs, pausing
from tests.test_figures import a_use

PID = 4711
NOW_NS = 1_000_000
TENANT = Tenant(
    pid=PID,
    uid=1000,
    started=1,
    program="python",
    job="finetune.py",
    run_id="",
    tenant_class=2,
    unknown_functions=0,
    time_slice_us=0,
    time_slice_refused=False,
    uses=(),
    where=Where.resident,
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tenant]]:
    """What the looks at the segment find, the last of them for ever; every request is taken at once."""
    found: list[Tenant] = []
    monkeypatch.setattr(segment, "ask", lambda path, pid, wanted: True)
    monkeypatch.setattr(segment, "now_ns", lambda: NOW_NS)
    monkeypatch.setattr(jobs, "read", lambda path: (found.pop(0) if len(found) > 1 else found[0],))
    yield found


def test_what_it_refused_before_it_was_asked_does_not_count(looks: list[Tenant]) -> None:
    earlier = replace(TENANT, refusal=Refusal.does_not_drain, refused_ns=NOW_NS - 1)
    looks += [
        earlier,
        earlier,
        earlier,
        replace(earlier, where=Where.evicting),
        replace(TENANT, where=Where.evicted),
    ]
    assert pausing.pause(Path("segment"), PID).where == Where.evicted


def test_what_it_refuses_now_is_told(looks: list[Tenant]) -> None:
    looks += [TENANT, TENANT, replace(TENANT, refusal=Refusal.does_not_drain, refused_ns=NOW_NS + 1)]
    with pytest.raises(Problem, match="its work on the GPU did not end in time") as told:
        pausing.pause(Path("segment"), PID)
    assert told.value.hint == Refusal.does_not_drain.remedy


@pytest.mark.parametrize("shown", [[replace(TENANT, paused=True, where=Where.evicting)], []])
def test_one_that_somebody_resumes_meanwhile_is_not_waited_for(
    looks: list[Tenant], monkeypatch: pytest.MonkeyPatch, shown: list[Tenant]
) -> None:
    """Also where it was resumed so soon that no look saw it paused."""
    if not shown:
        monkeypatch.setattr(pausing, "ANSWER_SECONDS", 0.05)
    looks += [TENANT, TENANT, *shown, TENANT]
    with pytest.raises(Problem, match="was resumed meanwhile"):
        pausing.pause(Path("segment"), PID)


def test_a_pause_that_was_taken_and_is_not_shown_yet_is_waited_for(looks: list[Tenant]) -> None:
    looks += [TENANT] * 5 + [replace(TENANT, paused=True), replace(TENANT, paused=True, where=Where.evicted)]
    assert pausing.pause(Path("segment"), PID).paused


def test_where_one_refuses_all_run_on_that_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, refuses = TENANT, replace(TENANT, pid=PID + 1)
    tenants = {
        one.pid: one for one in (ran, refuses, replace(TENANT, pid=PID + 2, where=Where.evicted, paused=True))
    }

    def take(path: Path, pid: int, wanted: dict[str, int]) -> bool:
        if "pause" in wanted:
            paused = bool(wanted["pause"])
            tenants[pid] = replace(
                tenants[pid], paused=paused, where=Where.evicted if paused else Where.resident
            )
        tenants[refuses.pid] = replace(refuses, refusal=Refusal.does_not_drain, refused_ns=NOW_NS + 1)
        return True

    monkeypatch.setattr(segment, "ask", take)
    monkeypatch.setattr(segment, "now_ns", lambda: NOW_NS)
    monkeypatch.setattr(jobs, "read", lambda path: tuple(tenants.values()))
    with pytest.raises(Problem, match=f"finetune.py .{PID + 1}. was not paused"):
        pausing.pause_all(Path("segment"), list(tenants))
    assert [one.paused for one in tenants.values()] == [False, False, True]


@pytest.mark.parametrize("word", wire.Refusal)
def test_each_refusal_has_words_and_a_remedy(word: wire.Refusal) -> None:
    refusal = Refusal.of(word)
    if word == wire.Refusal.none_refused:
        assert refusal is None
    else:
        assert refusal is Refusal[word.name] and refusal.text and refusal.remedy


def test_a_refusal_that_nobody_knows_is_one_all_the_same() -> None:
    assert Refusal.of(4711) is Refusal.unknown


def test_one_that_ends_meanwhile_is_left_out_unless_it_is_the_last() -> None:
    def waited(*ended: int) -> list[int]:
        def wait(pid: int) -> Tenant:
            if pid in ended:
                raise pausing.Ended(f"tenant {pid} has ended")
            return replace(TENANT, pid=pid)

        return [one.pid for one in pausing.of_those_left([1, 2, 3], wait)]

    assert [waited(), waited(1), waited(3), waited(1, 2)] == [[1, 2, 3], [2, 3], [1, 2], [3]]
    with pytest.raises(pausing.Ended, match="tenant 3"):
        waited(1, 2, 3)


def test_what_stays_on_the_gpu_is_told_apart_from_what_is_not_evicted_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused = replace(
        TENANT, uses=(a_use(memory_bytes=1 << 30), a_use(memory_bytes=2 << 30)), host_bytes=5 << 30
    )
    monkeypatch.setattr(jobs, "read", lambda path: ())
    monkeypatch.setattr(jobs, "select", lambda words, tenants: ())
    monkeypatch.setattr(pausing, "pause_all", lambda path, pids: [paused])
    monkeypatch.setattr(pausing, "could_still_go", lambda tenant: 1 << 30)
    said = CliRunner().invoke(pause.command, ["finetune.py"]).output
    assert said == (
        "finetune.py (4711) is paused: 5G on the host; 2G that cannot move stay on the GPU; "
        "1G are not evicted yet: it refused; the tenant tries again\n"
    )
