"""`cotenant record`: the trace holds what the program did, in order, however the program ends; and never harms it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cotenant.tenants import breakdown
from cotenant.traces import Direction, Kind, Trace, read
from tests.interposer.conftest import PROGRAMS
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython

Record = Callable[..., subprocess.CompletedProcess[str]]
COTENANT = [sys.executable, "-m", "cotenant"]

BEGIN = """
import ctypes, os, sys, threading
from soft import Gpu, check, driver
gpu = Gpu(); empty = gpu.kernel('empty'); stream = gpu.stream()
host = ctypes.create_string_buffer(1 << 16); address = ctypes.addressof(host)
"""


@pytest.fixture
def env(softgpu_env: dict[str, str]) -> dict[str, str]:
    return softgpu_env | {"PYTHONPATH": os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]])}


@pytest.fixture
def record(cotenant: Run, env: dict[str, str], tmp_path: Path) -> Record:
    """`record(source, *options)`: runs the program to its end; its trace is in tmp_path/job.trace."""

    def run(source: str, *options: str, **extra: str) -> subprocess.CompletedProcess[str]:
        command = ["record", "-o", str(tmp_path / "job.trace"), *options, "--", sys.executable, "-c"]
        return cotenant(*command, BEGIN + source, env=env | extra)

    return run


@pytest.fixture
def start(env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The same for a program that is spoken to while it runs."""
    started = []

    def run(source: str, *options: str) -> subprocess.Popen[str]:
        command = [
            *COTENANT,
            "record",
            "-o",
            str(tmp_path / "job.trace"),
            *options,
            "--",
            sys.executable,
            "-u",
            "-c",
        ]
        started.append(
            subprocess.Popen(
                [*command, BEGIN + source],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def kinds(trace: Trace) -> list[str]:
    return [Kind(kind).name for kind in trace.operations.kind.tolist()]


def test_operations_are_there_in_order_with_what_makes_them(record: Record, tmp_path: Path) -> None:
    done = record("""
memory = check(driver.cuMemAlloc(1 << 20))
for step in range(20):
    check(driver.cuMemcpyHtoDAsync(memory, address, 5000, stream))
    for _ in range(3): gpu.launch(empty, stream)
    check(driver.cuLaunchKernel(empty, 40, 2, 1, 256, 1, 1, 0, stream, 0, 0))
    check(driver.cuLaunchKernel(empty, 2, 1, 1, 512, 2, 1, 0, stream, 0, 0))
    check(driver.cuMemsetD32Async(memory, 0, 1000, stream))
    check(driver.cuStreamSynchronize(stream))
check(driver.cuMemcpyDtoH(address, memory, 100))
check(driver.cuMemFree(memory))
gpu.synchronize()
print('the end')
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
    trace = read(tmp_path / "job.trace")
    assert (trace.complete, trace.damage, trace.lost) == (True, "", 0)
    step = ["copy", "kernel", "kernel", "kernel", "kernel", "kernel", "fill", "wait"]
    assert kinds(trace) == ["allocate", *step * 20, "copy", "free", "wait"]

    ops = trace.operations
    assert ops.bytes[0] == ops.bytes[-2] == 1 << 20
    assert [int(b) for b in ops.bytes[1:9]] == [5000, 0, 0, 0, 0, 0, 4000, 0]
    assert np.flatnonzero(ops.ends_request).tolist() == [*range(8, 161, 8), 161]
    assert (np.diff(ops.time_us) >= 0).all()
    assert (ops.wait_us[ops.kind == Kind.wait] > 0).all()
    *in_stream, last = ops.wait_us[ops.kind == Kind.copy].tolist()
    assert min(in_stream) == 0 < last

    (gpu,) = trace.gpus
    shapes = {(s.kind, s.grid, s.direction): s for s in trace.shapes}
    wide = shapes[Kind.kernel, (40, 2, 1), Direction.unknown]
    assert (wide.name, wide.block) == ("empty", (256, 1, 1))
    assert wide.sms == min(gpu.sms, -(-80 // wide.blocks_per_sm))
    # Two blocks, of many threads each: at most two SMs.
    few = shapes[Kind.kernel, (2, 1, 1), Direction.unknown]
    assert (few.block, few.sms) == ((512, 2, 1), min(gpu.sms, -(-2 // few.blocks_per_sm)))
    assert few.sms < gpu.sms
    narrow = shapes[Kind.kernel, (1, 1, 1), Direction.unknown]
    assert (narrow.name, narrow.sms) == ("empty", 1)
    assert shapes[Kind.copy, (0, 0, 0), Direction.to_device].bytes in range(4096, 5001)
    assert shapes[Kind.copy, (0, 0, 0), Direction.to_host].samples == 1
    assert trace.facts["class"] == "production"


def test_a_kernels_time_is_the_gpus(record: Record, tmp_path: Path) -> None:
    source = "long = gpu.kernel('long')\nfor _ in range(6): gpu.launch(long, stream)\ngpu.synchronize()"
    assert record(source).returncode == 0
    trace = read(tmp_path / "job.trace")
    (shape,) = trace.shapes
    # Of 20 ms: a busy machine makes it longer, nothing makes it shorter.
    assert shape.samples >= 1
    assert 19_900 < shape.min_us <= shape.mean_us <= shape.max_us
    assert trace.busy_share > 0.5


def test_gaps_between_operations_are_the_programs_own(record: Record, tmp_path: Path) -> None:
    done = record("""
import time
began = []
for pause in (0, 0.0003, 0.003, 0.03, 0.3):
    time.sleep(pause); began.append(time.monotonic()); gpu.launch(empty, stream)
gpu.synchronize(); began.append(time.monotonic())
print(*began)
""")
    assert done.returncode == 0, done.stderr
    began = [1e6 * float(moment) for moment in done.stdout.split()]
    trace = read(tmp_path / "job.trace")
    launched = trace.operations.time_us[trace.operations.kind == Kind.kernel]
    # Each time lies in its call; a gap is written with four binary digits.
    for number, (least, gap) in enumerate(zip((300, 3000, 30_000, 300_000), np.diff(launched), strict=True)):
        assert 0.96 * least < gap < 1.04 * (began[number + 2] - began[number])


def test_what_blocks_the_program_is_a_wait_however_short(record: Record, tmp_path: Path) -> None:
    done = record("""
memory = check(driver.cuMemAlloc(1 << 20))
for _ in range(30): check(driver.cuMemsetD8(memory, 0, 10)); check(driver.cuMemsetD2D8(memory, 16, 0, 8, 2))
""")
    assert done.returncode == 0, done.stderr
    operations = read(tmp_path / "job.trace").operations
    fills = operations.kind == Kind.fill
    assert fills.sum() == 60 and (operations.wait_us[fills] > 0).all()


# Copies that the software GPU does not have; these do nothing, and succeed.
BOXES = """
int cuMemcpy2D_v2(void* box) { return 0; }
int cuMemcpy2DAsync_v2(void* box, void* stream) { return 0; }
int cuMemcpy3D_v2(void* box) { return 0; }
int cuMemcpy3DAsync_v2(void* box, void* stream) { return 0; }
"""


def test_a_box_goes_where_its_ends_are_and_is_as_large_as_its_sides_say(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path], tmp_path: Path
) -> None:
    source = """
import ctypes
from soft import Gpu, driver
gpu = Gpu(); stream = ctypes.c_void_p(int(gpu.stream())); library = ctypes.CDLL('libcuda.so.1')
def box(to, source, height, depth=0, *stream):
    made = driver.CUDA_MEMCPY3D() if depth else driver.CUDA_MEMCPY2D()
    made.WidthInBytes, made.Height = 10, height
    if depth: made.Depth = depth
    for side, kind in (('dst', to), ('src', source)):
        setattr(made, side + 'MemoryType', getattr(driver.CUmemorytype, 'CU_MEMORYTYPE_' + kind))
    name = f"cuMemcpy{3 if depth else 2}D{'Async' if stream else ''}_v2"
    assert getattr(library, name)(ctypes.c_void_p(int(made.getPtr())), *stream) == 0
box('DEVICE', 'HOST', 2); box('HOST', 'DEVICE', 3); box('DEVICE', 'DEVICE', 4, 5); box('HOST', 'HOST', 6)
box('UNIFIED', 'HOST', 7); box('HOST', 'UNIFIED', 8); box('DEVICE', 'HOST', 9, 0, stream)
box('HOST', 'DEVICE', 3, 4, stream); gpu.synchronize()
"""
    told = {"COTENANT_DRIVER": str(driver_with(BOXES)), "COTENANT_RECORD": str(tmp_path / "job.trace")}
    done = run_python(source, preloaded | told)
    assert done.returncode == 0, done.stderr
    trace = read(tmp_path / "job.trace")
    copies = trace.operations.kind == Kind.copy
    went = [trace.shapes[shape].direction.name for shape in trace.operations.shape[copies]]
    assert list(zip(went, trace.operations.bytes[copies].tolist(), strict=True)) == [
        ("to_device", 20), ("to_host", 30), ("on_device", 200), ("on_host", 60), ("unknown", 70), ("unknown", 80),
        ("to_device", 90), ("to_host", 120),
    ]  # fmt: skip


def test_rows_take_what_lies_between_them(record: Record, tmp_path: Path) -> None:
    done = record("pointer, pitch = check(driver.cuMemAllocPitch(1000, 20, 4)); print(pitch)")
    assert done.returncode == 0, done.stderr
    operations = read(tmp_path / "job.trace").operations
    assert operations.bytes[operations.kind == Kind.allocate].tolist() == [20 * int(done.stdout)]


def test_a_launch_on_several_devices_is_in_its_stream(record: Record, tmp_path: Path) -> None:
    done = record("""
class Launch(ctypes.Structure):
    _fields_ = [('function', ctypes.c_void_p), ('shape', ctypes.c_uint * 7), ('stream', ctypes.c_void_p)]
    _fields_ += [('parameters', ctypes.c_void_p)]
gpu.launch(empty); gpu.launch(empty, stream)
one = Launch(int(empty), (ctypes.c_uint * 7)(*[1] * 6, 0), int(stream), None)
print(ctypes.CDLL('libcuda.so.1').cuLaunchCooperativeKernelMultiDevice(ctypes.byref(one), 1, 0))
gpu.synchronize()
""")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    operations = read(tmp_path / "job.trace").operations
    default, own, on_each = operations.stream[operations.kind == Kind.kernel]
    assert default != own == on_each


@contextmanager
def stopped(pid: int, name: str) -> Iterator[None]:
    """Keeps one thread of a process from running."""
    seize, interrupt, detach, any_thread = 0x4206, 0x4207, 17, 0x40000000
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    tasks = Path(f"/proc/{pid}/task")

    def found() -> list[int]:
        return [int(one.name) for one in tasks.iterdir() if (one / "comm").read_text().strip() == name]

    wait_for(lambda: found() != [])
    (thread,) = found()
    if ptrace(seize, thread, None, None) != 0:
        pytest.skip("threads of other processes cannot be stopped here")
    assert ptrace(interrupt, thread, None, None) == 0
    assert os.waitpid(thread, any_thread)[0] == thread
    try:
        yield
    finally:
        ptrace(detach, thread, None, None)


def test_what_was_lost_is_counted(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    job = start("""
gpu.launch(empty, stream); print('began'); input()
launch = ctypes.CDLL('libcuda.so.1').cuLaunchKernel
words = ctypes.c_void_p(int(empty)), *[ctypes.c_uint(1)] * 6, ctypes.c_uint(0), ctypes.c_void_p(int(stream)), None, None
print(sum(launch(*words) == 0 for _ in range(70000))); input()
""")
    assert job.stdin and job.stdout and job.stdout.readline() == "began\n"
    with stopped(job.pid, "cotenant-record"):
        job.stdin.write("go\n")
        job.stdin.flush()
        launched = int(job.stdout.readline())
    job.communicate("end\n", timeout=60)
    trace = read(tmp_path / "job.trace")
    assert (job.returncode, trace.complete, trace.damage) == (0, True, "")
    assert trace.lost > 0 and kinds(trace).count("kernel") + trace.lost == 1 + launched


def test_many_threads_and_their_own_streams(record: Record, tmp_path: Path) -> None:
    done = record("""
def work(number):
    gpu.use()
    mine = gpu.stream() if number % 2 else 2  # CU_STREAM_PER_THREAD
    for _ in range(500): gpu.launch(empty, mine)
    check(driver.cuStreamSynchronize(mine))
threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
""")
    assert done.returncode == 0, done.stderr
    trace = read(tmp_path / "job.trace")
    assert trace.lost == 0
    assert kinds(trace).count("kernel") == 3000
    ops = trace.operations
    launched = ops.kind == Kind.kernel
    pairs = {(int(t), int(s)) for t, s in zip(ops.thread[launched], ops.stream[launched], strict=True)}
    assert len(pairs) == len({stream for _, stream in pairs}) == 6
    for _, stream in pairs:
        assert (launched & (ops.stream == stream)).sum() == 500


def test_a_graph_is_one_operation_and_its_capture_none(record: Record, tmp_path: Path) -> None:
    done = record("""
gpu.launch(empty, stream)
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(7): gpu.launch(empty, stream)
graph = check(driver.cuStreamEndCapture(stream))
exec_ = check(driver.cuGraphInstantiate(graph, 0))
for _ in range(4): check(driver.cuGraphLaunch(exec_, stream))
gpu.synchronize()
""")
    assert done.returncode == 0, done.stderr
    trace = read(tmp_path / "job.trace")
    assert kinds(trace) == ["kernel", *["graph"] * 4, "wait"]
    (graph,) = [shape for shape in trace.shapes if shape.kind is Kind.graph]
    assert (graph.nodes, graph.sms) == (7, 1)
    assert graph.samples > 0


def test_timing_leaves_another_threads_capture_alone(record: Record, tmp_path: Path) -> None:
    done = record("""
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
def work():
    gpu.use(); mine = gpu.stream()
    for _ in range(40): gpu.launch(empty, mine)
thread = threading.Thread(target=work); thread.start(); thread.join()
gpu.launch(empty, stream)
graph = check(driver.cuStreamEndCapture(stream))
gpu.synchronize()
""")
    assert done.returncode == 0, done.stderr
    assert kinds(read(tmp_path / "job.trace")) == [*["kernel"] * 40, "wait"]


def test_a_killed_program_leaves_a_readable_trace(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start("""
for _ in range(1000): gpu.launch(empty, stream)
gpu.synchronize(); print('did', flush=True); input()
""")
    assert process.stdout and process.stdout.readline() == "did\n"
    path = tmp_path / "job.trace"
    # About once a second what there is is written.
    wait_for(lambda: path.exists() and len(read(path).operations) == 1001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    trace = read(path)
    assert (trace.complete, trace.damage) == (False, "")
    assert kinds(trace) == [*["kernel"] * 1000, "wait"]
    assert trace.shapes[0].samples > 0


def test_a_full_disk_ends_the_recording_and_not_the_job(record: Record, tmp_path: Path) -> None:
    # A limit on the size of files stands in for a full disk: what it allows is written, then nothing.
    done = record("""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))
for i in range(60000): gpu.launch(empty, stream)
gpu.synchronize(); print('unharmed')
""")
    assert (done.returncode, done.stdout) == (0, "unharmed\n")
    assert done.stderr.count("\n") == 1
    assert "recording into" in done.stderr and "the job goes on" in done.stderr
    trace = read(tmp_path / "job.trace")
    assert not trace.damage and not trace.complete


def test_a_job_that_may_write_no_file_is_not_ended_by_its_recording(record: Record, tmp_path: Path) -> None:
    """By a signal, as the first bytes are written on its own thread."""
    done = record("""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
gpu.launch(empty, stream); gpu.synchronize(); print('unharmed')
""")
    assert (done.returncode, done.stdout) == (0, "unharmed\n")
    assert "recording into" in done.stderr and "the job goes on" in done.stderr


@pytest.mark.parametrize("folder", ["none", None])
def test_a_job_that_cannot_be_recorded_runs_and_is_told_why(
    run_python: RunPython, preloaded: dict[str, str], native: Path, tmp_path: Path, folder: str | None
) -> None:
    path = str(tmp_path / folder / "job.trace") if folder else ""
    program = BEGIN + "gpu.launch(empty, stream); gpu.synchronize(); print('unharmed')"
    driver = str(native / "softgpu" / "libcuda.so.1")
    done = run_python(program, preloaded | {"COTENANT_DRIVER": driver, "COTENANT_RECORD": path})
    assert (done.returncode, done.stdout) == (0, "unharmed\n"), done.stderr
    told = f"cotenant: recording into {path} ends: No such file or directory; the job goes on\n"
    assert done.stderr == (told if folder else "")


def test_a_limit_ends_the_recording_in_order(record: Record, tmp_path: Path) -> None:
    source = "for i in range(120000): gpu.launch(empty, stream)\ngpu.synchronize(); print('unharmed')"
    done = record(source, "--limit", "64K")
    assert (done.returncode, done.stdout, done.stderr) == (0, "unharmed\n", "")
    trace = read(tmp_path / "job.trace")
    assert trace.complete and 0 < len(trace.operations) < 120000
    assert (tmp_path / "job.trace").stat().st_size <= 64 << 10


def test_after_some_seconds_the_job_goes_on_unrecorded(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start(
        "gpu.launch(empty, stream); print('did'); input(); gpu.launch(empty, stream)", "--seconds", "0.05"
    )
    assert process.stdout and process.stdin and process.stdout.readline() == "did\n"
    path = tmp_path / "job.trace"
    wait_for(lambda: path.exists() and path.stat().st_size >= 40 and read(path).complete)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(30) == 0
    assert kinds(read(path)) == ["kernel"]


def test_each_process_has_a_file_of_its_own(record: Record, tmp_path: Path) -> None:
    done = record("""
import subprocess
gpu.launch(empty, stream); gpu.synchronize()
child = "from soft import Gpu; g = Gpu(); k = g.kernel('empty'); [g.launch(k) for _ in range(5)]; g.synchronize()"
subprocess.run([sys.executable, '-c', child], check=True)
if os.fork() == 0:
    os._exit(0)
os.wait(); gpu.launch(empty, stream)
""")
    assert done.returncode == 0, done.stderr
    first, second = sorted(tmp_path.glob("job.trace*"))
    assert kinds(read(first)) == ["kernel", "wait", "kernel"]
    assert kinds(read(second)) == [*["kernel"] * 5, "wait"]
    assert second.name == f"job.trace.{read(second).facts['pid']}"


def test_both_gpus_of_a_machine(record: Record, tmp_path: Path) -> None:
    done = record(
        """
other = Gpu(1); k = other.kernel('empty')
for _ in range(3): other.launch(k)
other.synchronize(); gpu.use(); gpu.launch(empty); gpu.synchronize()
""",
        COTENANT_SOFTGPU="small,small",
    )
    assert done.returncode == 0, done.stderr
    trace = read(tmp_path / "job.trace")
    assert [gpu.number for gpu in trace.gpus] == [0, 1]
    assert trace.operations.gpu.tolist() == [1, 1, 1, 1, 0, 0]


def test_memory_given_back_is_known_by_its_size(record: Record, tmp_path: Path) -> None:
    done = record("""
blocks = [check(driver.cuMemAlloc(1000 * (i + 1))) for i in range(300)]
for block in blocks[::2] + blocks[1::2]: check(driver.cuMemFree(block))
later = check(driver.cuMemAllocAsync(7777, stream)); check(driver.cuMemFreeAsync(later, stream))
gpu.synchronize()
""")
    assert done.returncode == 0, done.stderr
    ops = read(tmp_path / "job.trace").operations
    freed = ops.bytes[ops.kind == Kind.free].tolist()
    sizes = [1000 * (i + 1) for i in range(300)]
    assert freed == [*sizes[::2], *sizes[1::2], 7777]
    assert ops.bytes[ops.kind == Kind.allocate].tolist() == [*sizes, 7777]


def test_timing_goes_on_after_the_end_of_a_context(record: Record, tmp_path: Path) -> None:
    done = record("""
for number in range(1, 16):
    for _ in range(300): check(driver.cuLaunchKernel(empty, number, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    gpu.synchronize()
    check(driver.cuDevicePrimaryCtxReset(gpu.device)); gpu = Gpu(); empty = gpu.kernel('empty')
for _ in range(20): check(driver.cuLaunchKernel(empty, 99, 1, 1, 1, 1, 1, 0, 0, 0, 0))
gpu.synchronize()
""")
    assert done.returncode == 0, done.stderr
    trace = read(tmp_path / "job.trace")
    assert kinds(trace).count("kernel") == 15 * 300 + 20
    # The context's events went with it: those of the next are new ones.
    assert trace.shapes[-1].samples > 0


def test_results_and_figures_are_those_of_a_plain_run(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    source = (
        BEGIN
        + """
memory = check(driver.cuMemAlloc(1 << 16)); check(driver.cuMemsetD8Async(memory, 65, 1 << 16, stream))
for _ in range(200): gpu.launch(empty, stream)
check(driver.cuMemcpyDtoHAsync(address, memory, 1 << 16, stream)); gpu.synchronize()
print(host.raw.count(b'A'))
"""
    )
    said, counted = set(), set()
    for words in (["run"], ["record", "-o", str(tmp_path / "job.trace")]):
        report = tmp_path / f"report-{words[0]}"
        done = cotenant(
            *words,
            "--class",
            "production",
            "--",
            sys.executable,
            "-c",
            source,
            env=env | {"COTENANT_REPORT": str(report)},
        )
        assert done.returncode == 0, done.stderr
        figures = json.loads(report.read_text())
        said.add(done.stdout)
        counted.add(tuple(figures[name] for name in ("kernels", "copies", "memory_ops", "escaped")))
    assert said == {"65536\n"}
    assert len(counted) == 1


def test_mistakes_are_told_before_the_program_starts(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    there = tmp_path / "there.trace"
    there.write_text("mine")
    program = ["--", "sh", "-c", "echo started"]
    for arguments, problem in (
        (["-o", there], f"{there} exists"),
        (["-o", tmp_path / "none" / "job.trace"], "there is no folder"),
        (["-o", tmp_path], "is a folder"),
        (["-o", "/proc/job.trace"], "/proc cannot be written"),
        ([], "no file for the trace"),
        (["-o", tmp_path / "new", "--limit", "much"], "no size: 'much'"),
        (["-o", tmp_path / "new", "--seconds", "-1"], "no number of seconds: '-1'"),
    ):
        done = cotenant("record", *arguments, *program, env=env)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert problem in done.stderr and "\nhint: " in done.stderr
    assert there.read_text() == "mine"
    assert not (tmp_path / "new").exists()


def test_a_program_without_work_on_a_gpu_leaves_no_file_and_is_told(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "job.trace"
    path.write_text("an old one")
    done = cotenant("record", "-o", path, "--force", "--", "sh", "-c", "echo started; exit 3", env=env)
    assert (done.returncode, done.stdout) == (3, "started\n")
    assert not path.exists()
    (line,) = done.stderr.splitlines()
    assert "nothing was recorded" in line and str(path) in line
    # Who tells is no child of the command's.
    done = cotenant("record", "-o", path, "--", sys.executable, "-c", "import os; os.wait()", env=env)
    assert "ChildProcessError" in done.stderr


def test_the_trace_says_where_the_time_of_the_bursts_went(
    record: Record, cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    source = """
import time
for _ in range(60):
    gpu.launch(empty, stream); gpu.synchronize(); time.sleep(0.025)
"""
    assert record(source).returncode == 0
    found = breakdown.in_trace(read(tmp_path / "job.trace").facts)
    assert found and found.burst_us > 0 and found.wait_us is None
    shown = cotenant("trace", "info", str(tmp_path / "job.trace"), env=env)
    assert "of a burst of " in shown.stdout, shown


@pytest.mark.parametrize(
    "text", ["", "1 bursts", "x bursts 1 busy_ns 0 waits 0 waited_ns 0 gap_ns", "0 bursts 0 busy_ns"]
)
def test_a_trace_without_a_breakdown_has_none(text: str) -> None:
    assert breakdown.in_trace({"breakdown": text}) is None
