"""`cotenant timeline` and `run --timeline` on the software GPU: what every tenant did is in one picture, bounded."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant import segment
from cotenant.commands import timeline
from cotenant.errors import Problem
from cotenant.launch import detached
from cotenant.segment.file import FileSegment
from cotenant.timeline import recordings
from cotenant.timeline.collecting import Collection
from cotenant.timeline.rings import ENTRIES_AT, ENTRY, HEADER, MAGIC, VERSION, Event, Ring
from tests.conftest import TREE
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run

COTENANT = [sys.executable, "-m", "cotenant"]
PROGRAMS = TREE / "tests" / "interposer" / "programs"

# Obeys lines of Python: `burst(KERNELS)`, `copy(TIMES)`.
PROGRAM = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from soft import Gpu, check, driver
gpu = Gpu()
spin = gpu.kernel('spin')
memory = check(driver.cuMemAlloc(1 << 22))
def burst(kernels, us=300):
    length = ctypes.c_uint64(us)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    for _ in range(kernels):
        gpu.launch(spin, parameters=ctypes.addressof(parameters))
    gpu.synchronize()
def copy(times):
    for _ in range(times):
        check(driver.cuMemcpyHtoD(memory, bytes(4096), 4096))
def hold_bus():
    global value
    word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP)); stream = gpu.stream()
    host = check(driver.cuMemHostAlloc(1 << 20, 0)); value = ctypes.c_uint32.from_address(word)
    check(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    check(driver.cuMemcpyHtoDAsync(memory, host, 1 << 20, stream))
def rings():
    folder = '/proc/self/fd'
    return [int(one) for one in os.listdir(folder) if 'cotenant-timeline' in link(f'{folder}/{one}')]
def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ''
burst(1)
print('ready', flush=True)
for line in sys.stdin:
    exec(line)
    print('done', flush=True)
"""


class Job:
    def __init__(self, env: dict[str, str], tenant_class: str, *options: str) -> None:
        pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
        command = [
            *COTENANT,
            "run",
            "--require",
            "--class",
            tenant_class,
            "--name",
            tenant_class,
            *options,
            "--",
        ]
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", PROGRAM, str(PROGRAMS)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.answer() == "ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def begin(self, line: str) -> None:
        assert self.process.stdin
        print(line, file=self.process.stdin, flush=True)

    def do(self, line: str) -> None:
        self.begin(line)
        assert self.answer() == "done\n"

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(60) == 0


@contextmanager
def jobs(env: dict[str, str], *classes: str) -> Iterator[list[Job]]:
    started: list[Job] = []
    try:
        for one in classes:
            started.append(Job(env, one))
        yield started
    finally:
        for job in started:
            job.process.kill()
            job.process.wait()


class Picture:
    """Of tenants by class, and of tracks by title."""

    def __init__(self, file: Path) -> None:
        told = json.loads(file.read_text())
        self.about = told["otherData"]
        processes, tracks = {}, {}
        self.events: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for event in told["traceEvents"]:
            if event["ph"] == "M" and event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"].partition(":")[0]
                self.events.setdefault(processes[event["pid"]], {})
            elif event["ph"] == "M" and event["name"] == "thread_name":
                tracks[event["pid"], event["tid"]] = event["args"]["name"]
            elif event["ph"] == "X":
                assert event["ts"] >= 0 and event["dur"] >= 0
                track = tracks[event["pid"], event["tid"]]
                self.events[processes[event["pid"]]].setdefault(track, []).append(event)

    def track(self, tenant: str, title: str) -> list[dict[str, Any]]:
        return self.events[tenant].get(title, [])

    def named(self, tenant: str, name: str) -> list[dict[str, Any]]:
        return [
            one for track in self.events[tenant].values() for one in track if one["name"].startswith(name)
        ]


def ends_at(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def path_of(env: dict[str, str]) -> Path:
    return Path(env["COTENANT_SEGMENT"])


def are_noting(env: dict[str, str]) -> int:
    return sum(bool(one.timeline) for one in segment.read(path_of(env)).tenants)


def test_run_records_itself_and_everybody_on_its_gpu(softgpu_env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    with jobs(softgpu_env, "opportunistic") as [below]:
        production = Job(softgpu_env, "production", "--timeline", str(file))
        wait_for(lambda: are_noting(softgpu_env) == 2)
        below.begin("burst(400, 1000)")
        for _ in range(5):
            production.do("burst(20, 1000)")
        production.end()
        assert below.answer() == "done\n"
        wait_for(file.exists)
        wait_for(lambda: are_noting(softgpu_env) == 0)
    picture = Picture(file)
    bursts = picture.track("production", "GPU 0 bursts")
    assert sum(one["args"]["operations"] for one in bursts) == 101, "every launch is in a burst"
    for one, after in itertools.pairwise(bursts):
        assert ends_at(one) <= after["ts"] + 1, "bursts follow each other"
    closed = picture.track("opportunistic", "GPU 0 gate")
    assert any("a higher class has work" in one["name"] for one in closed)
    for one in closed:
        if "higher class" in one["name"] and one["dur"] > 5000:
            overlap = [b for b in bursts if b["ts"] < ends_at(one) and ends_at(b) > one["ts"]]
            assert overlap, "a gate is closed while production has a burst"
    assert picture.track("opportunistic", "time slice")
    assert not list(recordings.folder().glob(f"*{production.pid}*"))


def test_copies_that_wait_for_copies_say_so(softgpu_env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "out.json"

    def seen() -> segment.Tenant:
        return next(one for one in segment.read(path_of(softgpu_env)).tenants if one.pid == below.pid)

    with jobs(softgpu_env, "production") as [production]:
        below = Job(softgpu_env, "opportunistic", "--timeline", str(file))
        wait_for(lambda: are_noting(softgpu_env) == 2)
        production.do("hold_bus()")
        below.begin("check(driver.cuMemcpyHtoD(memory, bytes(1 << 22), 1 << 22))")
        wait_for(lambda: seen().uses[0].only_copies and seen().uses[0].held)
        looks: set[int] = set()

        def has_looked() -> bool:
            """Its watcher, at its gates: between the second heartbeat and the third."""
            looks.add(seen().heartbeat_ns)
            return len(looks) > 2

        wait_for(has_looked)
        production.do("value.value = 1")
        assert below.answer() == "done\n"
        below.end()
        wait_for(file.exists)
    closed = Picture(file).track("opportunistic", "GPU 0 gate")
    assert "gate for copies closed: a higher class copies" in {one["name"] for one in closed}


def test_start_and_stop_on_running_jobs(cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    with jobs(softgpu_env, "production", "opportunistic") as [production, below]:
        below.do("copy(3)")  # before: not in the picture
        told = cotenant("timeline", "start", "opportunistic", "-o", file, env=softgpu_env)
        assert (told.returncode, told.stdout) == (0, ""), told.stderr
        wait_for(lambda: are_noting(softgpu_env) == 2)
        below.do("copy(5)")
        production.do("copy(2)")
        assert cotenant("pause", str(below.pid), env=softgpu_env).returncode == 0
        assert cotenant("resume", str(below.pid), env=softgpu_env).returncode == 0
        told = cotenant("timeline", "stop", str(below.pid), env=softgpu_env)
        assert told.returncode == 0 and f"{file}: 2 tenants" in told.stderr
        wait_for(lambda: are_noting(softgpu_env) == 0)
        picture = Picture(file)
        copies = picture.named("opportunistic", "copy")
        assert len(copies) == 5 and all(one["args"]["bytes"] == 4096 for one in copies)
        assert len(picture.named("production", "copy")) == 2, "who shares its GPU is in the picture"
        memory = [one["name"] for one in picture.track("opportunistic", "memory")]
        assert memory == ["evicting", "evicted", "restoring"]
        assert picture.track("opportunistic", "memory")[1]["args"]["host_bytes"] >= 1 << 22

        # Once more: the ring begins anew.
        again = tmp_path / "again.json"
        assert cotenant("timeline", "start", "opportunistic", "-o", again, env=softgpu_env).returncode == 0
        wait_for(lambda: are_noting(softgpu_env) == 2)
        below.do("copy(1)")
        assert cotenant("timeline", "stop", env=softgpu_env).returncode == 0
        assert len(Picture(again).named("opportunistic", "copy")) == 1
        told = cotenant("timeline", "stop", env=softgpu_env)
        assert told.returncode == 1 and told.stderr.startswith("error: nothing is being recorded\nhint: ")


def is_production(tenant: segment.Tenant) -> bool:
    return tenant.job == "production"


def test_a_job_that_ends_between_two_looks_leaves_its_neighbour_in_the_picture(
    softgpu_env: dict[str, str],
) -> None:
    with jobs(softgpu_env, "production", "opportunistic") as [production, below]:
        collection = Collection(path_of(softgpu_env))
        collection.look(is_production)
        wait_for(lambda: are_noting(softgpu_env) == 2)
        production.end()
        collection.look(is_production)
        assert [key[0] for key in collection.rings] == [below.pid]
        collection.stop()
        wait_for(lambda: are_noting(softgpu_env) == 0)
        collection.close()


def asked_or_noting(env: dict[str, str]) -> int:
    return sum(bool(one.timeline or one.asked) for one in segment.read(path_of(env)).tenants)


def test_a_recording_that_ends_at_once_leaves_nobody_noting(softgpu_env: dict[str, str]) -> None:
    with jobs(softgpu_env, "production", "opportunistic"):
        for _ in range(20):
            collection = Collection(path_of(softgpu_env))
            collection.look(is_production)
            collection.stop()
            wait_for(lambda: asked_or_noting(softgpu_env) == 0)
            assert are_noting(softgpu_env) == 0
            collection.close()


def test_a_terminal_that_is_closed_ends_a_recording_as_ctrl_c_does(
    softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    file, path = tmp_path / "all.json", Path(softgpu_env["COTENANT_SEGMENT"])
    with jobs(softgpu_env, "standard") as (job,):
        with subprocess.Popen(
            [*COTENANT, "timeline", "collect", "-o", str(file)],
            env=softgpu_env,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - pytest's own thread forks
        ) as recorder:
            assert recorder.stderr and recorder.stderr.readline() == "recording; Ctrl-C ends it\n"
            wait_for(lambda: all(one.timeline for one in segment.read(path).tenants))
            recorder.send_signal(signal.SIGHUP)
            assert recorder.wait(60) == 0
        job.do("burst(1)")
        wait_for(lambda: not any(one.timeline for one in segment.read(path).tenants))
    assert json.loads(file.read_text())["traceEvents"]


def test_the_last_recording_to_end_stops_all(softgpu_env: dict[str, str]) -> None:
    with jobs(softgpu_env, "production"):
        first, last = Collection(path_of(softgpu_env)), Collection(path_of(softgpu_env))
        first.look(is_production)
        wait_for(lambda: are_noting(softgpu_env) == 1)
        last.stop()  # it has seen nobody
        wait_for(lambda: are_noting(softgpu_env) == 0)


def test_a_recording_that_begins_while_another_ends_goes_on(softgpu_env: dict[str, str]) -> None:
    with jobs(softgpu_env, "production") as [production]:
        ending, beginning = Collection(path_of(softgpu_env)), Collection(path_of(softgpu_env))
        ending.look(is_production)
        wait_for(lambda: are_noting(softgpu_env) == 1)
        beginning.look(is_production)
        ending.stop()
        wait_for(lambda: asked_or_noting(softgpu_env) == 0)
        beginning.look(is_production)
        wait_for(lambda: are_noting(softgpu_env) == 1)
        production.do("copy(3)")
        beginning.stop()
        wait_for(lambda: are_noting(softgpu_env) == 0)
        ((_, noted),) = beginning.read()
        assert sum(one.event is Event.copy for one in noted.intervals) == 3
        for one in (ending, beginning):
            one.close()


def test_a_recorder_that_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "STARTED_SECONDS", float("inf"))
    recorder = detached.spawn(["/bin/false"], {})
    with pytest.raises(Problem, match="the recording did not start"):
        recordings.wait_for_start(recorder, tmp_path / "segment", tmp_path / "out")


def test_a_recorder_that_does_not_start_records_nothing_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "STARTED_SECONDS", 0)
    recorder = detached.spawn(["/bin/sleep", "300"], {})
    with pytest.raises(Problem, match="the recording did not start"):
        recordings.wait_for_start(recorder, tmp_path / "segment", tmp_path / "out")
    wait_for(lambda: not detached.is_running(recorder))


IN_LANE = """
import cotenant
lane = cotenant.tenant('opportunistic', name='side')
def in_lane(kernels):
    length = ctypes.c_uint64(300)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    with lane:
        stream = driver.CUstream(lane.stream)
        for _ in range(kernels):
            gpu.launch(spin, stream, ctypes.addressof(parameters))
        check(driver.cuStreamSynchronize(stream))
"""


def test_a_lane_has_tracks_of_its_own(cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    with jobs(softgpu_env, "production") as [job]:
        job.do(f"exec({IN_LANE!r})")
        job.do("in_lane(5)")  # before: not in the picture
        assert cotenant("timeline", "start", "production", "-o", file, env=softgpu_env).returncode == 0
        job.do("in_lane(7)")
        job.do("burst(3)")
        told = cotenant("timeline", "stop", "production", env=softgpu_env)
        assert told.returncode == 0 and f"{file}: 2 tenants" in told.stderr, told.stderr
    picture = Picture(file)
    for tenant, launched in (("production", 3), ("opportunistic", 7)):
        bursts = picture.track(tenant, "GPU 0 bursts")
        assert sum(one["args"]["operations"] for one in bursts) == launched
    assert "production/side" in file.read_text()


def test_a_full_ring_keeps_the_newest_and_says_what_it_dropped(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "out.json"
    with jobs(softgpu_env, "standard") as [job]:
        start = ("timeline", "start", "standard", "--ring", "64K", "-o", file)
        assert cotenant(*start, env=softgpu_env).returncode == 0
        job.do("copy(2500)")
        job.do("burst(1)")
        told = cotenant("timeline", "stop", "standard", env=softgpu_env)
        assert told.returncode == 0 and "older intervals did not fit" in told.stderr
    picture = Picture(file)
    assert len(picture.named("standard", "copy")) <= (64 << 10) // ENTRY.size
    ((_, dropped),) = picture.about["dropped"].items()
    assert dropped >= 2500 - (64 << 10) // ENTRY.size
    assert picture.track("standard", "GPU 0 bursts"), "the newest are there"


def test_a_job_that_ends_writes_the_picture(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "out.json"
    with jobs(softgpu_env, "standard") as [job]:
        assert cotenant("timeline", "start", str(job.pid), "-o", file, env=softgpu_env).returncode == 0
        job.do("copy(4)")
        job.end()
        wait_for(file.exists)
    assert len(Picture(file).named("standard", "copy")) == 4, "its ring outlives it"


def test_a_job_that_ends_once_its_ring_is_held_is_in_the_picture(
    softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    """`timeline start` returns when the recording says so. Looks are a moment apart: here the job ends before the next
    one."""
    file = tmp_path / "out.json"
    recording = recordings.Recording(os.getpid(), str(path_of(softgpu_env)), str(file), ("all",))
    with jobs(softgpu_env, "standard") as [job], recordings.registered(recording):

        def is_over(are_jobs_there: bool) -> bool:
            if recordings.rings_file(os.getpid()).exists() and job.process.poll() is None:
                job.do("copy(4)")
                job.end()
            return not are_jobs_there

        timeline.record(path_of(softgpu_env), file, 1 << 20, lambda _: True, is_over, recording, False)
    assert len(Picture(file).named("standard", "copy")) == 4
    assert not recordings.rings_file(os.getpid()).exists()


def test_a_program_that_closes_the_ring_runs_on(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    """Programs that become daemons close every descriptor that they do not know."""
    file = tmp_path / "out.json"
    start = ("timeline", "start", "standard", "-o", file)
    with jobs(softgpu_env, "standard") as [job]:
        assert cotenant(*start, env=softgpu_env).returncode == 0
        assert cotenant("timeline", "stop", env=softgpu_env).returncode == 0
        job.do("for one in rings(): os.close(one)")
        assert cotenant(*start, env=softgpu_env).returncode == 0
        job.do("copy(2)")
        told = cotenant("timeline", "stop", env=softgpu_env)
        assert told.returncode == 0 and "has closed its timeline" in told.stderr
        job.do("burst(1)")


def test_a_forked_child_leaves_its_parents_ring_alone(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "out.json"
    with jobs(softgpu_env, "standard") as [job]:
        assert cotenant("timeline", "start", "standard", "-o", file, env=softgpu_env).returncode == 0
        job.do("while not rings(): pass  # it begins with the watcher's next look")
        job.do("child = os.fork(); os._exit(len(rings())) if not child else None")
        job.do("assert os.waitpid(child, 0)[1] == 0")
        job.do("copy(1)")
        assert cotenant("timeline", "stop", env=softgpu_env).returncode == 0
    assert len(Picture(file).named("standard", "copy")) == 1


def test_a_request_that_nobody_has_sealed_is_dropped(softgpu_env: dict[str, str]) -> None:
    with jobs(softgpu_env, "standard") as [job]:
        job.do("burst(1)")
        memory = FileSegment(path_of(softgpu_env)).writable()
        places = range(segment.PLACE, segment.SEGMENT_BYTES, segment.PLACE)
        slots = (segment.Slot.from_buffer(memory, at) for at in places)
        slot = next(slot for slot in slots if segment.is_live(slot) and slot.pid == job.pid)
        slot.asked_timeline = 1 + 64
        wait_for(lambda: not slot.asked_timeline)
        assert are_noting(softgpu_env) == 0


def test_what_cannot_be_recorded_is_refused_before(
    cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    segment.ensure(path_of(softgpu_env))
    mistakes: list[tuple[list[str | Path], str]] = [
        (["timeline", "start", "x", "-o", tmp_path / "no" / "out"], "error: there is no folder"),
        (["timeline", "start", "x", "-o", tmp_path / "out"], "error: no job has the name"),
        (
            ["timeline", "start", "x", "--ring", "1K", "-o", tmp_path / "out"],
            "error: no size of a ring: '1K'",
        ),
        (["run", "--timeline", tmp_path, "true"], f"error: {tmp_path} is a folder"),
    ]
    for arguments, error in mistakes:
        told = cotenant(*arguments, env=softgpu_env)
        assert told.returncode and told.stderr.startswith(error) and "\nhint: " in told.stderr


def fake(memory: bytes, own_pid: int = 0) -> tuple[Ring, int]:
    """A ring of this very process; `own_pid`: what it calls itself in its container."""
    file = os.memfd_create("cotenant-timeline")
    os.write(file, memory)
    try:
        return ring_in(file, own_pid), file
    except Problem:
        os.close(file)
        raise


def ring_in(file: int, own_pid: int = 0) -> Ring:
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    tenant = segment.Tenant(
        os.getpid(), os.getuid(), started, "liar", "", 1, 0, 0, False, (), timeline=file + 1, own_pid=own_pid
    )
    return Ring(tenant)


def header(capacity: int, count: int, pid: int = 0) -> bytes:
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    made = HEADER.pack(MAGIC, VERSION, ENTRY.size, capacity, pid or os.getpid(), 0, started, count)
    return made.ljust(ENTRIES_AT, b"\0")


def test_a_ring_from_a_container_has_the_pid_there() -> None:
    ring, file = fake(header(1, 0, pid=7), own_pid=7)
    assert ring.read().intervals == []
    ring.close()
    os.close(file)
    with pytest.raises(Problem, match="another file in its place"):
        fake(header(1, 0), own_pid=7)


WORDS = st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    WORDS, WORDS, st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS), max_size=6), st.binary(max_size=50)
)
def test_nonsense_in_a_ring_is_left_out(
    capacity: int, count: int, entries: list[tuple[int, int, int, int, int]], more: bytes
) -> None:
    memory = header(capacity, count) + b"".join(ENTRY.pack(*one) for one in entries) + more
    ring, file = fake(memory)
    for one in ring.read().intervals:
        assert one.begin_ns <= one.end_ns and one.event in Event
    ring.close()
    os.close(file)


def test_an_entry_that_is_overwritten_while_it_is_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of it may have the sequence of one and the times of the other."""
    whole, torn = ENTRY.pack(1, 10, 20, 0, Event.copy), ENTRY.pack(2, 30, 41, 0, Event.copy)
    ring, file = fake(header(2, 2) + whole + torn)
    pread = os.pread

    def read_then_write(*of: int) -> bytes:
        memory = pread(*of)
        os.pwrite(file, ENTRY.pack(4, 40, 41, 0, Event.copy), ENTRIES_AT + ENTRY.size)
        return memory

    monkeypatch.setattr(os, "pread", read_then_write)
    assert [(one.begin_ns, one.end_ns) for one in ring.read().intervals] == [(10, 20)]
    ring.close()
    os.close(file)


def test_a_descriptor_that_is_no_ring_is_refused() -> None:
    for memory in (b"", b"cotline", header(1, 1).replace(MAGIC, b"another\0"), bytes(200)):
        with pytest.raises(Problem, match="has closed its timeline"):
            fake(memory)


def test_a_pipe_in_a_rings_place_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = os.open(
        tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK
    )  # nobody writes: to open it again would wait
    try:
        with pytest.raises(Problem, match="another file in its place"):
            ring_in(file)
    finally:
        os.close(file)


def test_a_ring_that_is_cut_off_stops_no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = ENTRY.pack(1, 10, 20, 0, Event.copy) * 2
    cut, cut_file = fake(header(2, 2) + entries)
    cut_within, within_file = fake(header(2, 2) + entries)
    whole, whole_file = fake(header(2, 2) + entries)
    short, short_file = fake(header(2, 2)[: HEADER.size])
    os.ftruncate(cut_file, 0)
    pread = os.pread

    def read_then_cut(file: int, *of: int) -> bytes:
        memory = pread(file, *of)
        if file == cut_within.file:
            os.ftruncate(within_file, ENTRIES_AT + ENTRY.size)
        return memory

    monkeypatch.setattr(os, "pread", read_then_cut)
    collector = Collection(Path("segment"))
    for number, ring in enumerate((cut, cut_within, whole, short)):
        collector.rings[(number, 0)] = ring
    assert [tenant for tenant, _ in collector.read()] == [whole.tenant]
    assert set(collector.refused) == {(0, 0), (1, 0), (3, 0)}
    assert "another file in its place" in collector.refused[(0, 0)]
    for ring, file in ((cut, cut_file), (cut_within, within_file), (whole, whole_file), (short, short_file)):
        ring.close()
        os.close(file)


def test_events_have_the_numbers_of_the_source() -> None:
    import re

    source = (TREE / "native" / "tenant" / "timeline.h").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"^    (\w+) = (\d+),", source, re.MULTILINE)}
    assert numbers == {one.name: one.value for one in Event}
