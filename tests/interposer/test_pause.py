"""A paused tenant leaves the GPU and goes on where it was: every byte at its address."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.daemon.attachment import Attachment
from cotenant.segment import Where
from tests.compiling import cuda_headers
from tests.interposer.conftest import MOVING_JOB, tell
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

MiB = 1 << 20


@pytest.fixture
def tenant(tenant: Start) -> Start:
    """The opportunistic ones' memory moves."""

    def start(tenant_class: str, source: str | list[str], **settings: str) -> Tenant:
        moves = {"COTENANT_OVERSUBSCRIBE": "1"} if tenant_class == "opportunistic" else {}
        return tenant(tenant_class, source, **(moves | settings))

    return start


@pytest.fixture
def job(tenant: Start) -> Tenant:
    one = tenant("opportunistic", MOVING_JOB)
    assert one.hear() == "ready"
    return one


def pid_of(one: Tenant) -> str:
    assert one.process
    return str(one.process.pid)


def pause(cotenant: Run, one: Tenant) -> str:
    done = cotenant("pause", pid_of(one), env=one.env)
    assert done.returncode == 0, done.stderr
    return done.stderr


def resume(cotenant: Run, one: Tenant) -> None:
    done = cotenant("resume", pid_of(one), env=one.env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("runs on\n")


def test_every_kind_of_memory_comes_back_whole(job: Tenant, cotenant: Run, tenants_now: TenantsNow) -> None:
    for way, size in (
        ("alloc", 100),
        ("alloc", 3 * MiB + 5),
        ("ordered", 1000),
        ("ordered", 9 * MiB),
        ("mapped", 6 * MiB),
        ("mapped-again", 4 * MiB),
    ):
        tell(job, f"add {way} {size}", "added")
    tell(job, "add alloc 700 500", "added")
    before = tenants_now()[0].uses[0].memory_bytes
    for _ in range(3):
        assert "is paused: 26M on the host" in pause(cotenant, job)
        (now,) = tenants_now()
        assert (now.where, now.uses[0].memory_bytes, now.host_bytes) == (Where.evicted, 0, before)
        resume(cotenant, job)
        tell(job, "check", "whole")
        (now,) = tenants_now()
        assert (now.where, now.uses[0].memory_bytes, now.host_bytes) == (Where.resident, before, 0)
    assert now.evictions == 3


def test_policies_are_told_when_memory_left_and_when_it_came_back(job: Tenant, cotenant: Run) -> None:
    """Its stay counts from then, too."""
    attachment = Attachment(Path(job.env["COTENANT_SEGMENT"]))
    tell(job, f"add alloc {MiB}", "added")
    # Only who has used the GPU is in a view.
    tell(job, "gpu.launch(gpu.kernel('empty')); say('launched')", "launched")
    for move in (pause, resume):
        before_us = segment.now_ns() / 1000
        move(cotenant, job)
        (one,) = attachment.look().views[0].tenants
        assert before_us <= one.moved_us <= segment.now_ns() / 1000
    attachment.close()


def test_its_memory_is_free_for_others_meanwhile(job: Tenant, tenant: Start, cotenant: Run) -> None:
    tell(job, "check(driver.cuMemAlloc(550 << 20)); say(1)", "1")
    tell(job, f"add alloc {50 * MiB}", "added")
    pause(cotenant, job)
    other = tenant("standard", MOVING_JOB)
    assert other.hear() == "ready"
    tell(other, "info", f"{1024 * MiB} {1024 * MiB}")
    tell(other, "memory.pieces.append((int(check(driver.cuMemAlloc(900 << 20))), b'')); say(1)", "1")
    done = cotenant("resume", pid_of(job), "--wait", "0", env=job.env)
    assert "is restored when 600M of the GPU's memory are free" in done.stderr
    tell(job, "say('runs')", "runs")  # what needs no GPU goes on
    job.say("check")
    tell(other, "free", "freed")
    assert job.hear() == "whole"


def test_one_that_is_over_its_limit_is_told_so_when_it_is_resumed(job: Tenant, cotenant: Run) -> None:
    tell(job, f"add alloc {40 * MiB}", "added")
    pause(cotenant, job)
    assert cotenant("ctl", pid_of(job), "--memory", "20M", env=job.env).returncode == 0
    done = cotenant("resume", pid_of(job), "--wait", "1", env=job.env)
    assert "has more memory than its limit 20M" in done.stderr, done.stderr
    assert cotenant("ctl", pid_of(job), "--memory", "none", env=job.env).returncode == 0
    tell(job, "check", "whole")


def test_what_is_free_is_said_when_the_memory_is_back(tenant: Start, cotenant: Run) -> None:
    """Meanwhile it would be more than the job can have."""
    job = tenant("opportunistic", MOVING_JOB, COTENANT_MEMORY="256M")
    assert job.hear() == "ready"
    tell(job, f"add alloc {100 * MiB}", "added")
    tell(job, "info", f"{156 * MiB} {256 * MiB}")
    pause(cotenant, job)
    job.say("info")
    resume(cotenant, job)
    assert job.hear() == f"{156 * MiB} {256 * MiB}"


def test_it_stays_paused_until_it_is_resumed(job: Tenant, cotenant: Run, tenants_now: TenantsNow) -> None:
    tell(job, f"add alloc {4 * MiB}", "added")
    pause(cotenant, job)
    job.say("check")
    # Its launch waits, whatever room there is: many looks of its mover later it is still away.
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        (now,) = tenants_now()
        assert now.where == Where.evicted and now.paused
    resume(cotenant, job)
    assert job.hear() == "whole"


def test_what_is_queued_ends_first(job: Tenant, cotenant: Run) -> None:
    tell(job, f"add alloc {4 * MiB}", "added")
    job.say(
        "stream = gpu.stream(); [gpu.launch(gpu.kernel('long'), stream) for _ in range(10)]; "
        "check(driver.cuMemsetD8Async(memory.pieces[0][0], 7, 100, stream)); say('queued')"
    )
    assert job.hear() == "queued"
    pause(cotenant, job)
    resume(cotenant, job)
    job.say("b = bytearray(100); check(driver.cuMemcpyDtoH(b, memory.pieces[0][0], 100)); say(set(b) == {7})")
    assert job.hear() == "True"


GRAPH = """
from moving import *
gpu = Gpu(); memory = Memory(); memory.add('alloc', 4 << 20); memory.add('alloc', 4 << 20)
stream = gpu.stream(); first, second = (pointer for pointer, _ in memory.pieces)
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
check(driver.cuStreamBeginCapture(stream, mode))
print('capturing', flush=True); input()
check(driver.cuMemcpyDtoDAsync(second, first, 4 << 20, stream))
check(driver.cuMemsetD8Async(first, 3, 1000, stream))
exec_ = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(stream)), 0))
print('captured', flush=True); input()
memory.fill(0, 4 << 20); expected = memory.pieces[0][1]
check(driver.cuGraphLaunch(exec_, stream)); check(driver.cuStreamSynchronize(stream))
memory.pieces = [(second, expected), (first, bytes([3]) * 1000 + expected[1000:])]
print(memory.is_whole())
"""


def test_a_graph_captured_before_replays_after(tenant: Start, cotenant: Run) -> None:
    one = tenant("opportunistic", GRAPH)
    assert one.hear() == "capturing"
    # Never while a graph is captured: it is said why, and the capture goes on.
    done = cotenant("pause", pid_of(one), env=one.env)
    assert done.returncode == 1
    assert "was not paused: a graph was being captured" in done.stderr
    one.say("")
    assert one.hear() == "captured"
    pause(cotenant, one)
    one.say("")
    resume(cotenant, one)
    assert one.finish() == "True\n"


ALLOCATING_GRAPH = """
from moving import *
gpu = Gpu(); memory = Memory(); memory.add('alloc', 4 << 20); stream = gpu.stream()
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
check(driver.cuStreamBeginCapture(stream, mode))
check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(32 << 20, stream)), stream))
graph = check(driver.cuStreamEndCapture(stream))
print('captured', flush=True); input()
result, exec_ = driver.cuGraphInstantiate(graph, 0)
print(result.name, flush=True); input()
"""


def test_what_a_graph_will_take_is_asked_for_when_its_tenant_is_back(
    tenant: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    one = tenant("opportunistic", ALLOCATING_GRAPH, COTENANT_CAPACITY="128M")
    assert one.hear() == "captured"
    pause(cotenant, one)
    other = tenant("standard", MOVING_JOB)
    assert other.hear() == "ready"
    tell(other, f"add alloc {92 * MiB}", "added")
    one.say("")
    # There is no room for it now: that is nothing to one that is away.
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert [about.where for about in tenants_now()] == [Where.evicted, Where.pinned]
    tell(other, "free", "freed")
    resume(cotenant, one)
    assert one.hear() == "CUDA_SUCCESS"
    one.say("")


def test_what_is_exported_stays(tenant: Start, cotenant: Run) -> None:
    one = tenant(
        "opportunistic",
        """
from moving import *
gpu = Gpu(); memory = Memory(); memory.add('alloc', 4 << 20)
prop = driver.CUmemAllocationProp(); prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location = device_location()
prop.requestedHandleTypes = fd = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
handle = check(driver.cuMemCreate(PAGE, prop, 0)); base = check(driver.cuMemAddressReserve(PAGE, 0, 0, 0))
check(driver.cuMemMap(base, PAGE, 0, handle, 0)); access = driver.CUmemAccessDesc(); access.location = device_location()
access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
check(driver.cuMemSetAccess(base, PAGE, [access], 1))
print(check(driver.cuMemExportToShareableHandle(handle, fd, 0)) > 2, flush=True); input()
check(driver.cuMemsetD8(base, 5, PAGE)); print(memory.is_whole()); check(driver.cuMemUnmap(base, PAGE))
check(driver.cuMemRelease(handle)); print(int(driver.cuMemRelease(handle)[0]))
""",
    )
    assert one.hear() == "True"
    assert "4M on the host; 2M that cannot move stay on the GPU" in pause(cotenant, one)
    resume(cotenant, one)
    one.say("")
    assert one.finish().split() == ["True", "1"]


def test_threads_wait_and_go_on_together(tenant: Start, cotenant: Run) -> None:
    one = tenant(
        "opportunistic",
        """
import threading
from moving import *
gpu = Gpu(); memory = Memory(); stop = False; counts = [0] * 6
def work(n):
    gpu.use(); mine = Memory(n); mine.add('alloc', 3 << 20); mine.add('ordered', 5000)
    while not stop:
        extra = mine.add('alloc', 100 + 300_000 * n); good = mine.is_whole(); mine.free_last(); assert good
        counts[n] += 1
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
[t.start() for t in threads]; print('on', flush=True)
for line in sys.stdin: print(min(counts), flush=True)
stop = True; [t.join() for t in threads]; print('ended', gpu.synchronize())
""",
    )
    assert one.hear() == "on"

    def fewest() -> int:
        one.say("count")
        return int(one.hear())

    def wait_for_more_than(count: int) -> None:
        wait_for(lambda: fewest() > count)

    wait_for_more_than(0)
    for _ in range(3):
        pause(cotenant, one)
        before = fewest()
        assert fewest() == before
        resume(cotenant, one)
        wait_for_more_than(before + 1)
    assert one.process and one.process.stdin
    one.process.stdin.close()
    one.process.stdin = None
    assert one.finish() == "ended None\n"


def test_work_that_does_not_end_is_not_torn_away(tenant: Start, cotenant: Run) -> None:
    one = tenant(
        "opportunistic",
        """
from moving import *
import ctypes
gpu = Gpu(); memory = Memory(); memory.add('alloc', 4 << 20); stream = gpu.stream()
word = check(driver.cuMemHostAlloc(64, 0)); ctypes.c_uint32.from_address(word).value = 0
check(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
check(driver.cuMemsetD8Async(memory.pieces[0][0], 9, 100, stream)); print('waits', flush=True); input()
ctypes.c_uint32.from_address(word).value = 1; check(driver.cuStreamSynchronize(stream))
print('went on', flush=True); input()
""",
    )
    assert one.hear() == "waits"
    done = cotenant("pause", pid_of(one), env=one.env)
    assert (done.returncode, "its work on the GPU did not end in time" in done.stderr) == (1, True)
    one.say("")
    assert one.hear() == "went on"
    pause(cotenant, one)


def test_who_cannot_be_paused(tenant: Start, cotenant: Run, tenants_now: TenantsNow) -> None:
    one = tenant("standard", MOVING_JOB)
    assert one.hear() == "ready"
    tell(one, f"add alloc {MiB}", "added")
    # Whether memory can move is settled at the start: the change of class says that it cannot, `pause` what to do.
    done = cotenant("ctl", pid_of(one), "--class", "opportunistic", env=one.env)
    assert (done.returncode, "its memory stays on the GPU" in done.stderr) == (0, True)
    done = cotenant("pause", pid_of(one), env=one.env)
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert "cannot be paused" in error and "a change of class" in hint and "--oversubscribe" in hint
    for command in ("pause", "resume"):
        done = cotenant(command, "1", env=one.env)
        assert (done.returncode, "no job has the name, id or PID '1'" in done.stderr) == (1, True)
    with_option = tenant("standard", MOVING_JOB, COTENANT_OVERSUBSCRIBE="1")
    assert with_option.hear() == "ready"
    tell(with_option, f"add alloc {MiB}", "added")
    pause(cotenant, with_option)
    resume(cotenant, with_option)
    tell(with_option, "check", "whole")


def test_a_program_that_ends_while_it_is_paused_ends(
    job: Tenant, cotenant: Run, tenants_now: TenantsNow
) -> None:
    tell(job, f"add alloc {4 * MiB}", "added")
    pause(cotenant, job)
    assert job.finish() == ""
    wait_for(lambda: not tenants_now())


def test_what_a_killed_one_had_is_charged_to_nobody(
    job: Tenant, cotenant: Run, tenants_now: TenantsNow, tenant: Start
) -> None:
    tell(job, f"add alloc {40 * MiB}", "added")
    pause(cotenant, job)
    assert job.process
    job.process.kill()
    job.process.wait()
    other = tenant("opportunistic", MOVING_JOB)
    assert other.hear() == "ready"
    tell(other, "check(driver.cuMemAlloc(1 << 30)); say(1)", "1")
    wait_for(lambda: len(tenants_now()) == 1)
    assert tenants_now()[0].host_bytes == 0


def test_status_and_explain_say_so(job: Tenant, cotenant: Run) -> None:
    tell(job, f"add alloc {4 * MiB}", "added")
    pause(cotenant, job)
    about = json.loads(cotenant("status", "-o", "json", env=job.env).stdout)["tenants"][0]
    assert (about["where"], about["paused"], about["host_bytes"]) == ("evicted", True, 4 * MiB)
    assert " paused " in cotenant("status", env=job.env).stdout
    words = cotenant("explain", pid_of(job), env=job.env).stdout
    assert "memory is evicted, because of a pause by hand: 4M" in words
    assert "`cotenant resume " + pid_of(job) + "`" in words


def test_host_memory_is_pinned_ahead_only_where_the_gpu_is_crowded(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    one, other = tenant("opportunistic", MOVING_JOB, COTENANT_CAPACITY="64M"), tenant("standard", MOVING_JOB)
    for job in (one, other):
        assert job.hear() == "ready"
        tell(job, f"add alloc {8 * MiB}", "added")
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert not any(about.host_pinned_bytes for about in tenants_now())
    tell(other, f"add alloc {40 * MiB}", "added")
    wait_for(lambda: any(about.host_pinned_bytes for about in tenants_now()))


def test_one_too_large_for_the_budget_leaves_it_to_those_for_whom_it_is_enough(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    limits = {"COTENANT_CAPACITY": "150M", "COTENANT_HOST_MEMORY": "64M"}
    large, small = (tenant("opportunistic", MOVING_JOB, **limits) for _ in range(2))
    for job, size in ((large, 100 * MiB), (small, 40 * MiB)):
        assert job.hear() == "ready"
        tell(job, f"add alloc {size}", "added")

    def pinned() -> dict[str, int]:
        return {str(about.pid): about.host_pinned_bytes for about in tenants_now()}

    wait_for(lambda: pinned() == {pid_of(large): 0, pid_of(small): 64 * MiB})


def test_host_memory_that_is_not_needed_any_more_is_given_back(
    job: Tenant, cotenant: Run, tenants_now: TenantsNow
) -> None:
    for size in (8 * MiB, 110 * MiB):
        tell(job, f"add alloc {size}", "added")
    pause(cotenant, job)
    resume(cotenant, job)
    assert tenants_now()[0].host_pinned_bytes == 128 * MiB
    tell(job, "free", "freed")
    wait_for(lambda: tenants_now()[0].host_pinned_bytes == 32 * MiB)
    pause(cotenant, job)
    resume(cotenant, job)
    tell(job, "check", "whole")


def test_whatever_is_done_in_another_context_the_thread_stays_in_its_own(tenant: Start) -> None:
    one = tenant(
        "opportunistic",
        """
from moving import *
gpu = Gpu(); pointer = check(driver.cuMemAlloc(4 << 20)); stream = gpu.stream()
own = check(driver.cuCtxCreate(None, 0, 0))
# The first use of a stream of the other context, and a free that waits there.
check(driver.cuMemsetD8Async(pointer, 1, 100, stream)); first = int(check(driver.cuCtxGetCurrent())) == int(own)
check(driver.cuMemFree(pointer)); print(first, int(check(driver.cuCtxGetCurrent())) == int(own))
""",
    )
    assert one.finish() == "True True\n"


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_program_that_ends_while_it_is_paused_touches_nothing_that_is_not_there(
    tenant: Start, cotenant: Run, native: Path, compiled: Compile, is_paused: bool
) -> None:
    """What would use its memory is answered as the driver answers at the end of a process; what frees it is done."""
    driver = str(native / "softgpu" / "libcuda.so.1")
    program = compiled("exit_while_paused", "-pthread", f"-I{cuda_headers()}", "-Wl,--no-as-needed", driver)
    one = tenant("opportunistic", [str(program)])
    assert one.hear() == "ready"
    if is_paused:
        pause(cotenant, one)
    one.say("")
    used = 4 if is_paused else 0  # CUDA_ERROR_DEINITIALIZED
    assert one.finish() == f"thread {used} copy {used} launch {used} free 0 in order 0 synchronize 0\n"


@pytest.mark.parametrize(
    ("options", "on_terminal", "lines"),
    [((), True, ["this job is paused", "runs on"]), (("--quiet",), True, []), ((), False, [])],
)
def test_ctrl_c_ends_a_paused_python_job_and_its_terminal_tells_of_the_pause(
    softgpu_env: dict[str, str], cotenant: Run, options: tuple[str, ...], on_terminal: bool, lines: list[str]
) -> None:
    ours, theirs = os.openpty() if on_terminal else os.pipe()
    env = softgpu_env | {"PYTHONPATH": f"{Path(MOVING_JOB[-1]).parent}:{softgpu_env['PYTHONPATH']}"}
    command = [
        sys.executable,
        "-m",
        "cotenant",
        "run",
        "--require",
        "--class",
        "opportunistic",
        *options,
        *MOVING_JOB,
    ]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        assert process.stdin and process.stdout

        def order(line: str) -> str:
            assert process.stdin and process.stdout
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        try:
            assert process.stdout.readline() == "ready\n"
            assert order(f"add alloc {4 * MiB}") == "added"
            done = cotenant("pause", str(process.pid), env=env)
            assert done.returncode == 0, done.stderr
            assert order("say('calls'); memory.is_whole()") == "calls"
            state = Path(f"/proc/{process.pid}/task/{process.pid}/stat")
            wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "S")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == -signal.SIGINT
        finally:
            process.kill()
    said = ""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 4096):
            said += part.decode()
    os.close(ours)
    assert "KeyboardInterrupt" in said
    told = [line for line in said.splitlines() if line.startswith("cotenant: ")]
    assert len(told) == len(lines) and all(part in line for part, line in zip(lines, told, strict=True))
