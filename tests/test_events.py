"""`cotenant events`: what happened between two looks at a segment, and the file in which it is kept."""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.commands import events as events_command
from cotenant.daemon import report
from cotenant.daemon.attachment import Attachment
from cotenant.daemon.loop import Daemon
from cotenant.errors import Problem
from cotenant.events import Event, Kind, kinds, log, read
from cotenant.events.observer import ESCAPES_SECONDS, Observer
from cotenant.events.watching import Watching
from cotenant.segment import Where
from cotenant.tenants.verdicts import SURE, UNMEASURED_NS, Verdict, Verdicts
from tests.compiling import TREE
from tests.segments import UUID, Written

if TYPE_CHECKING:
    from tests.conftest import Run

SECOND = 1_000_000_000


class Scene:
    """Looks at a segment that is written by hand, a second apart."""

    def __init__(self, folder: Path) -> None:
        self.written = Written()
        self.written.gpu(0, UUID)
        self.path = folder / "segment"
        self.observer = Observer()
        self.at = 1000
        self.shift = 0  # from a tenant's PID in its container to the one that the daemon sees

    def tenant(self, pid: int, name: str, tenant_class: TenantClass = TenantClass.standard) -> segment.Slot:
        slot = self.written.tenant(len(self.written.slots), pid, name.encode(), tenant_class)
        slot.weight, slot.started = 1000, pid
        slot.gpus[0].figures.bursts = 1
        return slot

    def look(self) -> list[Event]:
        self.at += 1
        seen = segment.read(self.written.to(self.path))
        if self.shift:
            tenants = [replace(one, pid=one.pid + self.shift, own_pid=one.pid) for one in seen.tenants]
            seen = replace(seen, tenants=tuple(tenants))
        return self.observer.look(seen, float(self.at), self.at * SECOND, lambda pid, started: False)

    def told(self) -> list[tuple[Kind, int, str]]:
        return [(event.kind, event.pid, event.cause) for event in self.look()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_who_comes_and_who_leaves(scene: Scene) -> None:
    scene.tenant(10, "serve", TenantClass.production)
    assert scene.told() == [(Kind.joined, 10, "its first use of a GPU, as production")]
    assert scene.told() == []
    scene.written.slots.clear()
    scene.tenant(20, "train")
    joined, left = scene.look()
    assert (joined.kind, joined.subject) == (Kind.joined, "train (20)")
    assert (left.kind, left.subject, left.cause) == (Kind.left, "serve (10)", "its process has ended")


def test_the_next_daemon_tells_nobody_twice_and_whom_it_missed(scene: Scene) -> None:
    scene.tenant(10, "serve")
    scene.tenant(20, "train")
    told = scene.look()
    scene.observer = Observer(told)
    del scene.written.slots[0]
    assert [(kind, pid) for kind, pid, _ in scene.told()] == [(Kind.left, 10)]


def test_memory_that_goes_and_comes_back_with_its_cause(scene: Scene) -> None:
    slot = scene.tenant(20, "train", TenantClass.opportunistic)
    slot.residence.where = Where.resident
    scene.look()
    slot.residence.where, slot.host_bytes, slot.residence.evictions = Where.evicted, 10 << 20, 1
    slot.residence.waiting_since_ns, slot.residence.wanted_bytes = 1, 10 << 20
    assert scene.told() == [(Kind.evicted, 20, "other tenants need the space: 10M went to the host")]
    slot.residence.where, slot.host_bytes = Where.resident, 0
    assert scene.told() == [(Kind.restored, 20, "there was space for its memory")]
    slot.residence.evictions, slot.residence.saved_bytes = 2, 5 << 20
    # Between two looks: nobody saw why.
    cause = "other tenants needed the space, or it was paused and resumed at once: 5M went to the host"
    assert scene.told() == [
        (Kind.evicted, 20, cause),
        (Kind.restored, 20, "there was space for its memory"),
    ]
    # The second time, what went then.
    slot.residence.evictions, slot.residence.saved_bytes = 3, 7 << 20
    assert scene.told()[0] == (Kind.evicted, 20, cause.replace("5M", "2M"))
    slot.memory_limit, slot.residence.evictions = 1 << 20, 4
    slot.residence.where, slot.host_bytes, slot.residence.waiting_since_ns = Where.evicted, 3 << 20, 0
    assert scene.told() == [(Kind.evicted, 20, "its own memory limit: 3M went to the host")]


def test_a_pause_is_no_eviction_for_others(scene: Scene) -> None:
    slot = scene.tenant(20, "train")
    slot.residence.where = Where.resident
    scene.look()
    slot.residence.where, slot.residence.paused, slot.host_bytes = Where.evicted, 1, 1 << 20
    assert scene.told() == [(Kind.paused, 20, "asked by hand: 1M went to the host")]
    slot.residence.where, slot.residence.paused = Where.resident, 0
    assert [kind for kind, *_ in scene.told()] == [Kind.resumed]


def test_changes_and_refusals(scene: Scene) -> None:
    slot = scene.tenant(20, "train")
    scene.look()
    slot.tenant_class = TenantClass.opportunistic
    assert scene.told() == [(Kind.class_changed, 20, "asked by hand: from standard to opportunistic")]
    slot.residence.refusal, slot.residence.refused_ns = 3, 5
    assert scene.told() == [(Kind.eviction_refused, 20, "the host memory budget is used up")]
    slot.memory[0].refused, slot.memory_limit, slot.gpus[0].memory_bytes = 2, 1 << 30, 1
    (event,) = scene.look()
    assert (event.kind, event.gpu) == (Kind.allocation_refused, 0)
    assert event.cause == "the memory limit 1G: 2 allocations refused"


def test_allocations_are_counted_for_each_gpu_by_itself(scene: Scene) -> None:
    scene.written.gpu(1, bytes(16))
    slot = scene.tenant(20, "train")
    slot.gpus[1].figures.bursts, slot.memory_limit = 1, 1 << 30
    slot.memory[0].refused, slot.memory[1].refused = 1, 5
    scene.look()
    slot.memory[1].refused = 6
    (event,) = scene.look()
    assert (event.gpu, event.cause) == (1, "the memory limit 1G: 1 allocation refused")


def test_who_has_left_is_not_told_to_have_left_by_the_next_daemon(scene: Scene) -> None:
    scene.tenant(10, "serve")
    told = scene.look()
    scene.written.slots.clear()
    told += scene.look()
    scene.observer = Observer(told)
    assert scene.look() == []


def test_a_pause_that_was_over_before_the_next_look_is_one_all_the_same(scene: Scene) -> None:
    slot = scene.tenant(20, "train")
    slot.residence.where, slot.residence.paused = Where.evicted, 1
    scene.look()
    # It was resumed, and paused again.
    slot.residence.evictions = 1
    assert scene.look() == []
    slot.residence.where, slot.residence.paused, slot.residence.evictions = Where.resident, 0, 2
    slot.residence.saved_bytes = 1 << 20
    assert [kind for kind, *_ in scene.told()] == [Kind.paused, Kind.resumed]


def test_a_verdict_needs_looks_in_a_row_and_is_on_one_promise(scene: Scene) -> None:
    scene.tenant(20, "notebook").floor = 100
    (tenant,) = segment.read(scene.written.to(scene.path)).tenants
    place, verdicts = (20, 20, 0), Verdicts()
    assert SURE == 3
    for at, says in enumerate((False, False, True, False, False)):
        assert verdicts.look(place, tenant, says, at) == (None, None)
    broken = Verdict(False, 3)
    assert verdicts.look(place, tenant, False, 5) == (None, broken)
    # Nothing is measured for a while: it stands, from the last measurement on.
    assert verdicts.look(place, tenant, False, 100 + UNMEASURED_NS) == (broken, broken)
    assert verdicts.look(place, tenant, None, 200 + UNMEASURED_NS) == (broken, broken)
    # Another promise is another case.
    assert verdicts.look(place, replace(tenant, floor=200), False, 300 + UNMEASURED_NS) == (broken, None)
    assert verdicts.now() == {}


def test_a_verdict_goes_with_its_tenant() -> None:
    verdicts = Verdicts()
    for pid in (10, 20):
        verdicts.remember((pid, 1, 0), Verdict(False, 5))
    verdicts.keep_only([(20, 1, 0), (30, 1, 0)])
    assert verdicts.now() == {(20, 1, 0): Verdict(False, 5)}


def test_a_promise_that_is_broken_and_kept_again_is_told_once_each(scene: Scene) -> None:
    slot = scene.tenant(20, "notebook")
    slot.floor = 100
    here = slot.gpus[0]
    scene.look()

    def seconds(count: int, share: float) -> list[Event]:
        events = []
        for _ in range(count):
            here.busy_ns += SECOND
            here.used_ns += int(share * SECOND)
            events += scene.look()
        return events

    assert seconds(SURE - 1, 0.01) == []
    (broken,) = seconds(5, 0.01)
    assert (broken.kind, broken.cause) == (Kind.promise_broken, "it got 1.0% of the GPU, 10% was promised")
    (kept,) = seconds(20, 0.5)
    assert (kept.kind, kept.gpu) == (Kind.promise_kept, 0)


def seconds_of(scene: Scene, slot: segment.Slot, count: int, share: float) -> list[Event]:
    events = []
    for _ in range(count):
        slot.gpus[0].busy_ns += SECOND
        slot.gpus[0].used_ns += int(share * SECOND)
        events += scene.look()
    return events


@pytest.mark.parametrize("shift", [0, 1000])
def test_the_next_daemon_goes_on_with_the_verdict(scene: Scene, shift: int) -> None:
    scene.shift = shift
    slot = scene.tenant(20, "notebook")
    slot.floor = 100
    told = scene.look() + seconds_of(scene, slot, 5, 0.01)
    ((place, verdict),) = scene.observer.verdicts.now().items()
    assert place == (20, 20, 0) and not verdict.kept and verdict.since_ns == 1002 * SECOND
    scene.observer = Observer(told, float(scene.at), scene.at * SECOND)
    (again,) = scene.observer.verdicts.now().values()
    assert not again.kept and again.since_ns == 1004 * SECOND, "when it was told"
    assert seconds_of(scene, slot, 5, 0.01) == [], "nobody is told twice"
    (kept,) = seconds_of(scene, slot, 20, 0.5)
    assert kept.kind is Kind.promise_kept


def test_a_verdict_ends_with_its_promise_and_without_work(scene: Scene) -> None:
    slot = scene.tenant(20, "serve", TenantClass.production)
    slot.slowdown = 50
    here = slot.gpus[0]
    scene.look()

    def slow(count: int) -> list[Event]:
        events = []
        for _ in range(count):
            here.figures.bursts += 100
            here.busy_ns += SECOND // 2
            here.waits += 10
            here.waited_ns += SECOND // 200
            events += scene.look()
        return events

    assert [event.kind for event in slow(SURE + 1)] == [Kind.promise_broken]
    assert [one.kept for one in scene.observer.verdicts.now().values()] == [False]
    idle = [event for _ in range(UNMEASURED_NS // SECOND + 12) for event in scene.look()]
    assert [(event.kind, event.cause) for event in idle] == [
        (Kind.promise_kept, "it has had no work for a minute")
    ]
    assert scene.observer.verdicts.now() == {}
    assert [event.kind for event in slow(12)] == [Kind.promise_broken]
    slot.slowdown = 900
    assert [event.kind for event in slow(1)] == [Kind.promise_kept], "the promise is another"
    slot.slowdown = 0
    assert slow(5) == [] and scene.observer.verdicts.now() == {}


def test_a_failed_mps_server_is_told_of_each_tenant_once(scene: Scene) -> None:
    one, other = scene.tenant(20, "train"), scene.tenant(30, "eval")
    one.mps_daemon = other.mps_daemon = 77
    scene.look()
    one.mps_fault = 719
    assert scene.told() == [
        (Kind.mps_failed, 20, "CUDA error 719, by its own fault, or another's in the same server")
    ]
    other.mps_fault, other.mps_daemon = 805, 78
    (told,) = scene.look()
    assert (told.pid, told.cause) == (30, "CUDA error 805, by its own fault")
    scene.observer = Observer([told])
    assert [pid for kind, pid, _ in scene.told() if kind is Kind.mps_failed] == [20]


def test_trouble_with_an_mps_daemon_is_told_once(
    native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTENANT_MPS_DIR", str(tmp_path / "mps"))
    for number, trouble in ((1, "of yesterday"), (2, "")):
        (tmp_path / "mps" / str(number)).mkdir(parents=True)
        (tmp_path / "mps" / str(number) / "trouble").write_text(trouble)
    written = Written()
    written.tenant(0, pid=os.getpid(), name=b"train").mps_daemon = 5
    path = written.to(tmp_path / "segment")
    watching = Watching(path)
    watching.look(is_news=True)
    (tmp_path / "mps" / "2" / "trouble").write_text("its server 4711 has ended\n")
    watching.look(is_news=True)
    watching.look(is_news=True)
    assert [(event.kind, event.cause) for event in read(path) if event.kind is not Kind.joined] == [
        (Kind.mps_replaced, "its server 4711 has ended")
    ]


def test_why_a_tenant_left_goes_by_its_process_and_not_by_its_number(native: Path, tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    ours = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        began = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
        own = os.getpid()
        there = {b"zombie": (child.pid, began), b"reused": (own, ours - 1), b"alive": (own, ours)}
        slots: list[segment.Slot] = []
        for name, (pid, started) in there.items():
            slots.append(written.tenant(len(slots), pid=pid, name=name))
            slots[-1].started = started
        watching = Watching(written.to(tmp_path / "segment"))
        watching.look(is_news=True)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # nobody has asked how it ended
        for slot in slots:
            slot.owner = 0
        written.to(watching.path)
        watching.look(is_news=True)
    assert {one.job: one.cause for one in read(watching.path) if one.kind is Kind.left} == {
        "zombie": "its process has ended",
        "reused": "its process has ended",
        "alive": "it gave its slot back",
    }


def test_work_that_escapes_is_told_once_a_minute(scene: Scene) -> None:
    slot = scene.tenant(20, "train")
    scene.look()
    slot.gpus[0].figures.escaped = 3
    assert scene.told() == [(Kind.escaped, 20, "3 operations reached the GPU without a gate")]
    slot.gpus[0].figures.escaped = 5
    assert scene.told() == []
    scene.at += int(ESCAPES_SECONDS)
    assert scene.told() == [(Kind.escaped, 20, "2 operations reached the GPU without a gate")]


def some(count: int, job: str = "train") -> list[Event]:
    return [Event(float(at), Kind.joined, "why", job, at, at, "ab" * 16, 7) for at in range(1, count + 1)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = Written().to(tmp_path / "segment")
    events = [*some(2), Event(3.0, Kind.daemon_ended, "a signal ended it", pid=5, gpu=None)]
    log.append(path, events[:1])
    log.append(path, events[1:])
    with log.file_for(path).open("ab") as file:
        file.write(b'nonsense\n[1]\n{"at": "now"}\n\xff\n')
    assert read(path) == events
    assert log.file_for(path).stat().st_mode & 0o777 == 0o600


def test_the_file_has_a_bound_and_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_BYTES", 2000)
    path = Written().to(tmp_path / "segment")
    events = some(100)
    for event in events:
        log.append(path, [event])
    kept = read(path)
    assert kept == events[-len(kept) :] and 10 <= len(kept) < 40
    assert sum(file.stat().st_size for file in tmp_path.glob("segment.daemon.events*")) < 2 * 2400


def test_an_event_that_a_full_disk_has_cut_off_spoils_no_later_one(tmp_path: Path) -> None:
    path = Written().to(tmp_path / "segment")
    events = some(4)
    log.append(path, events[:1])
    following = log.follow(path, from_start=True)
    assert next(following) == events[0]
    room = log.file_for(path).stat().st_size * 5 // 2  # for the second event, and half of the third
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        log.append(path, events[1:3])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.append(path, events[3:])
    assert read(path) == [*events[:2], events[3]]
    assert [next(following), next(following)] == [events[1], events[3]]


def test_whoever_follows_goes_on_after_somebody_has_emptied_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Written().to(tmp_path / "segment")
    events = some(4)
    log.append(path, events[:3])
    following = log.follow(path, from_start=True)
    assert [next(following) for _ in range(3)] == events[:3]
    # As the follower waits for more.
    looks = itertools.count()

    def meanwhile(_: float) -> None:
        if next(looks) == 0:
            os.truncate(log.file_for(path), 0)
        else:
            log.append(path, events[3:])

    monkeypatch.setattr("cotenant.events.log.time.sleep", meanwhile)
    assert next(following) == events[3]


def test_a_planted_file_is_neither_read_nor_written(tmp_path: Path) -> None:
    path = Written().to(tmp_path / "segment")
    victim = tmp_path / "victim"
    victim.write_text("")
    log.file_for(path).symlink_to(victim)
    for act in (lambda: log.append(path, some(1)), lambda: read(path)):
        with pytest.raises(Problem, match="is a link"):
            act()
    assert victim.read_text() == ""


def test_whoever_follows_sees_what_comes_also_over_a_change_of_files(tmp_path: Path) -> None:
    path = Written().to(tmp_path / "segment")
    log.append(path, some(1))
    following = log.follow(path, from_start=True)
    assert next(following).pid == 1
    log.append(path, some(2)[1:])
    with log.file_for(path).open("ab") as file:
        file.write(b'{"half of')  # the disk was full
    assert next(following).pid == 2
    log.file_for(path).replace(log.old(log.file_for(path)))
    log.append(path, some(4)[2:])
    assert [next(following).pid, next(following).pid] == [3, 4]


def test_whoever_follows_sees_an_event_that_was_read_in_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Written().to(tmp_path / "segment")
    log.append(path, some(2))
    file = log.file_for(path)
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:9])

    def write_the_rest(_: float) -> None:
        assert file.read_bytes() == first + second[:9], "it waits for more"
        with file.open("ab") as opened:
            opened.write(second[9:])

    monkeypatch.setattr("cotenant.events.log.time.sleep", write_the_rest)
    following = log.follow(path, from_start=True)
    assert [next(following).pid, next(following).pid] == [1, 2]


@pytest.fixture
def kept(plain_env: dict[str, str]) -> dict[str, str]:
    path = Written().to(Path(plain_env["COTENANT_SEGMENT"]))
    log.append(
        path, [*some(2), *some(1, job="serve\x1b"), Event(4.0, Kind.daemon_started, "policy guard", pid=9)]
    )
    return plain_env


def test_the_command_prints_each_with_time_subject_and_cause(cotenant: Run, kept: dict[str, str]) -> None:
    done = cotenant("events", env=kept | {"TZ": "UTC"})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split(None, 3) == ["1970-01-01", "00:00:01", "joined", "train (1): why"]
    assert "daemon (9): policy guard" in lines[-1] and "\x1b" not in done.stdout
    records = [json.loads(line) for line in cotenant("events", "-o", "json", env=kept).stdout.splitlines()]
    assert [one["kind"] for one in records] == ["joined", "joined", "joined", "daemon-started"]
    assert records[0].keys() == {
        *("schema", "at", "kind", "cause", "job", "pid", "started", "run_id", "uid", "gpu")
    }


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["train"], 2),
        (["2"], 1),
        (["abab"], 3),
        (["--since", "1970-01-01T00:00:03+00:00"], 1),
        (["nobody"], 0),
    ],
)
def test_only_what_was_asked_for(cotenant: Run, kept: dict[str, str], words: list[str], count: int) -> None:
    done = cotenant("events", *words, env=kept)
    assert len(done.stdout.splitlines()) == count
    assert done.stderr == ("" if count else "no events\n")


def test_a_moment_is_a_length_before_now_or_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_command, "time", SimpleNamespace(time=lambda: 1_000_000.0))
    for text, ago in (("30s", 30), ("1.5m", 90), (" 2h ", 7200), ("1d", 86400)):
        assert events_command.moment(text) == 1_000_000 - ago
    assert events_command.moment("1970-01-02T00:00+00:00") == 86400


def test_a_time_that_is_none(cotenant: Run, kept: dict[str, str]) -> None:
    done = cotenant("events", "--since", "yesterday", env=kept)
    assert (done.returncode, done.stdout) == (2, "") and "no time: 'yesterday'" in done.stderr


def test_the_daemon_writes_it_down(native: Path, tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.tenant(0, pid=os.getpid(), name=b"train").gpus[0].figures.bursts = 1
    path = written.to(tmp_path / "segment")
    attachment = Attachment(path)
    daemon = Daemon(attachment, "strict", 0.0, events=Watching(path))
    daemon.tick()
    attachment.policy = "fair"
    daemon.tick()
    attachment.close()
    assert [(event.kind, event.job) for event in read(path)] == [
        (Kind.daemon_started, ""),
        (Kind.joined, "train"),
        (Kind.policy_changed, ""),
    ]
    own = [event for event in read(path) if not event.job]
    assert {(event.pid, event.uid) for event in own} == {(os.getpid(), os.geteuid())}


def test_the_page_has_every_kind() -> None:
    assert kinds.page() in (TREE / "docs" / "events.md").read_text()


def test_the_daemons_report_has_its_verdicts_until_they_lapse(native: Path, tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    slot = written.tenant(0, pid=os.getpid(), name=b"serve", tenant_class=TenantClass.production)
    slot.slowdown, slot.gpus[0].figures.bursts = 50, 1
    path = written.to(tmp_path / "segment")
    attachment = Attachment(path)
    watching = Watching(path)
    place, verdict = (os.getpid(), 0, 0), Verdict(False, segment.now_ns())
    watching.observer.verdicts.remember(place, verdict)
    daemon = Daemon(attachment, "strict", 0.0, events=watching)
    daemon.tick()
    shown = report.read(path)
    assert shown is not None and shown.promises == {place: verdict}
    watching.observer.verdicts.cases[place].measured_ns -= UNMEASURED_NS
    watching.next_look = daemon.report.next_write = 0.0
    daemon.tick()
    shown = report.read(path)
    attachment.close()
    assert shown is not None and shown.promises == {}, "though no tenant is at work"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"at": 2**40}, ValueError), ({"at": -1}, ValueError), ({"at": True}, TypeError), ({"pid": "7"}, TypeError),
        ({"cause": 7}, TypeError), ({"gpu": "0"}, ValueError), ({"gpu": True}, ValueError),
        ({"kind": "sang"}, ValueError), ({"pid": math.inf}, ValueError), ({"started": -math.inf}, ValueError),
        ({"uid": math.nan}, ValueError),
    ],
)  # fmt: skip
def test_what_is_no_event_is_none(changed: dict[str, object], error: type[Exception]) -> None:
    event = Event(7.5, Kind.evicted, "why", "train", 1, 2, "ab", 3, gpu=0)
    record = event.record()
    assert Event.of(record) == event and Event.of(record | {"at": 2**40 - 1, "later": 1}).at == 2**40 - 1
    with pytest.raises(error):
        Event.of(record | changed)


def test_what_the_daemon_does_is_told_when_it_changes(tmp_path: Path) -> None:
    watching = Watching(tmp_path / "segment")
    for policy, problem, wrong in (
        ("guard", "", ""),
        ("guard", "", "user.toml: unknown key"),
        ("guard", "", "user.toml: unknown key"),
        ("strict", "guard failed: strict goes on in its place", ""),
        ("strict", "guard failed: strict goes on in its place", ""),
        ("fair", "", "user.toml: unknown key"),
    ):
        watching.decides(policy, problem, wrong)
    watching.ended("no tenant was left")
    told = [(event.kind, event.cause) for event in log.read(tmp_path / "segment")]
    assert told == [
        (Kind.daemon_started, "policy guard"),
        (Kind.settings_wrong, "user.toml: unknown key"),
        (Kind.policy_failed, "guard failed: strict goes on in its place"),
        (Kind.policy_changed, "from strict to fair"),
        (Kind.settings_wrong, "user.toml: unknown key"),
        (Kind.daemon_ended, "no tenant was left"),
    ]
