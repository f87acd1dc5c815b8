"""PyTorch jobs: what the allocator holds free is not copied, a training leaves between two steps, and the helper comes
by itself. With a stand-in for PyTorch (programs/stand_in), which does not start on the software GPU."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.launch import python_path
from cotenant.segment import Where
from cotenant.tenants import pausing
from tests.interposer.conftest import PROGRAMS, tell
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

MiB = 1 << 20
SCRATCH = 16 * MiB
STAND_IN = str(PROGRAMS / "stand_in")


@pytest.fixture
def tenant(tenant: Start, softgpu_env: dict[str, str]) -> Start:
    """Where PyTorch's stand-in can be imported, and memory moves."""
    path = os.pathsep.join([STAND_IN, str(PROGRAMS), softgpu_env["PYTHONPATH"]])

    def start(source: str | list[str], **settings: str) -> Tenant:
        settings = {"COTENANT_OVERSUBSCRIBE": "1", "PYTHONPATH": path} | settings
        return tenant("opportunistic", source, **settings)

    return start


@pytest.fixture
def training(tenant: Start) -> Tenant:
    one = tenant([sys.executable, "-u", str(PROGRAMS / "training.py")])
    assert one.hear() == "ready"
    listening(one)
    return one


def listening(one: Tenant) -> None:
    """The helper's thread has asked for its first question: its answers count from now on."""
    path, pid = whereabouts(one)
    for _ in range(50):
        before = pausing.tenant_with(path, pid).dropped_bytes
        pausing.pause(path, pid)
        now = pausing.resume(path, pid, 30)
        if now.dropped_bytes > before:
            return
    pytest.fail("the helper says nothing")


def whereabouts(one: Tenant) -> tuple[Path, int]:
    assert one.process
    return Path(one.env["COTENANT_SEGMENT"]), one.process.pid


@contextmanager
def paused(one: Tenant) -> Iterator[tuple[Callable[[], bool], Callable[[], int]]]:
    """It is asked to leave; whether it has, and how much was dropped by then. It is back afterwards."""
    path, pid = whereabouts(one)
    before = pausing.tenant_with(path, pid).dropped_bytes
    pausing.ask(path, pid, pause=True)
    yield (
        lambda: pausing.tenant_with(path, pid).where == Where.evicted,
        lambda: pausing.tenant_with(path, pid).dropped_bytes - before,
    )
    pausing.resume(path, pid, 30)


# --- the end of a step


def test_a_training_leaves_at_the_end_of_its_step(training: Tenant) -> None:
    # A step and a half last longer than an idle tenant takes to see two requests: half a second each.
    tell(training, "training.steps_of(0.9); training.begin(); say('amid')", "amid")
    with paused(training) as (is_away, dropped):
        # Not in the middle, where the activations are in use.
        assert not is_away()
        # It stays there only until it is known what is free. Then the next step takes it, and waits to use it.
        training.say("training.end(); say('ended'); training.begin(); say(training.weights.is_whole())")
        wait_for(is_away)
        assert dropped() == SCRATCH
        assert training.hear() == "ended"
    assert training.hear() == "True"


def test_without_the_helper_everything_is_saved(tenant: Start) -> None:
    one = tenant([sys.executable, "-u", str(PROGRAMS / "training.py")], COTENANT_TORCH="0")
    assert one.hear() == "ready"
    tell(one, "training.steps_of(0.01); say('on')", "on")
    with paused(one) as (is_away, dropped):
        wait_for(is_away)
        assert dropped() == 0
    tell(one, "import sys; say('_cotenant_torch' in sys.modules)", "False")


def test_one_that_does_not_come_to_an_end_leaves_amid_its_step(training: Tenant) -> None:
    tell(training, "training.steps_of(0.05); training.begin(); say('amid')", "amid")
    with paused(training) as (is_away, dropped):
        wait_for(is_away)
        assert dropped() == 0
    tell(training, "training.end(); say(training.weights.is_whole())", "True")


def test_who_need_not_leave_any_more_stays(training: Tenant) -> None:
    tell(training, "training.steps_of(0.9); training.begin(); say('amid')", "amid")
    path, pid = whereabouts(training)
    left = pausing.tenant_with(path, pid).evictions
    pausing.ask(path, pid, pause=True)
    pausing.ask(path, pid, pause=False)
    tell(training, "training.end(); training.begin(); say('goes on')", "goes on")
    assert pausing.tenant_with(path, pid).evictions == left


def test_a_capture_is_not_held_up(training: Tenant) -> None:
    mode = "driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED"
    tell(training, "training.steps_of(0.3); say('on')", "on")
    training.say(
        f"s = training.gpu.stream(); check(driver.cuStreamBeginCapture(s, {mode})); torch.s = s; say(1)"
    )
    assert training.hear() == "1"
    with paused(training) as (is_away, _):
        tell(training, "training.optimiser.step(); say('captures')", "captures")
        assert not is_away()
        tell(training, "check(driver.cuStreamEndCapture(torch.s)); say('captured')", "captured")
        wait_for(is_away)


THREADS = """
import os, sys, threading, time, torch
from moving import *
gpu = Gpu(); torch.cuda.init(); stop = False; counts = [0] * 4; failed = []
def train(n):
    gpu.use(); mine = Memory(n); optimiser = torch.optim.Optimizer()
    base = mine.add('alloc', 4 << 20); blocks = torch.cuda.add_segment(base, ['active_allocated'] * 2)
    scratch = int(check(driver.cuMemAlloc(4 << 20))); free = torch.cuda.add_segment(scratch, ['inactive'] * 2)
    while not stop:
        for block in free: block['state'] = 'active_allocated'
        check(driver.cuMemsetD8(scratch, n, 1000)); time.sleep(0.002 * n)
        if not mine.is_whole(): failed.append(n)
        for block in free: block['state'] = 'inactive'
        optimiser.step(); counts[n] += 1
threads = [threading.Thread(target=train, args=(n,), daemon=True) for n in range(4)]
[t.start() for t in threads]; print('on', flush=True)
for line in sys.stdin:
    if line == 'fork\\n':
        if not (child := os.fork()):
            for _ in range(100): torch.optim.Optimizer().step()
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
    elif line == 'go\\n': break
    else: print(min(counts), flush=True)
print(failed, flush=True)
"""


def test_several_trainings_in_threads_go_on_and_end(tenant: Start) -> None:
    one = tenant(THREADS)
    assert one.hear() == "on"

    def fewest() -> int:
        one.say("count")
        return int(one.hear())

    path, pid = whereabouts(one)
    wait_for(lambda: fewest() > 2)
    for _ in range(4):
        pausing.pause(path, pid)
        before = fewest()
        pausing.resume(path, pid, 30)
        wait_for(lambda before=before: fewest() > before + 2)  # type: ignore[misc]
    # A child has the parent's thread that waits, and no mover that would let it go.
    pausing.ask(path, pid, pause=True)
    tell(one, "fork", "0")
    pausing.resume(path, pid, 30)
    # It ends while some are at the end of a step, and it is to leave.
    pausing.ask(path, pid, pause=True)
    one.say("go")
    assert one.finish() == "[]\n"


# --- what is free


HELPED = """
import sys, torch
from moving import *
gpu = Gpu(); memory = Memory(); base = memory.add('alloc', 16 << 20); _, contents = memory.pieces[0]
block = torch.cuda.BLOCK; states = ['active_allocated', 'inactive'] * 3 + ['active_pending_free', 'inactive']
of_a_graph = memory.add('alloc', 16 << 20)
torch.cuda.init(); torch.cuda.add_segment(base, states); torch.cuda.add_segment(of_a_graph, states, (0, 1))
import cotenant.guest.torch
assert cotenant.guest.torch.active
import threading
assert sum(thread.name == 'cotenant-torch' for thread in threading.enumerate()) == 1
assert len(torch.optim.optimizer._hooks) == 1
print('ready', flush=True); input()
(_, graphs), there = memory.pieces[1], bytearray(16 << 20)
check(driver.cuMemcpyDtoH(there, base, 16 << 20))
kept = [there[i * block:(i + 1) * block] == contents[i * block:(i + 1) * block] for i in range(8)]
memory.pieces = [(of_a_graph, graphs)]; print([int(k) for k in kept], memory.is_whole())
"""


@pytest.mark.parametrize("by_itself", [True, False])
def test_blocks_that_the_program_holds_free_are_not_copied(
    tenant: Start, tenants_now: TenantsNow, by_itself: bool
) -> None:
    """Also where the program imports the helper by hand, it is there once."""
    one = tenant(HELPED, COTENANT_TORCH=str(int(by_itself)))
    assert one.hear() == "ready"
    listening(one)
    (about,) = tenants_now()
    assert about.dropped_bytes == 8 * MiB
    assert about.saved_bytes == about.evictions * 32 * MiB - 8 * MiB
    one.say("")
    assert one.finish() == "[1, 0, 1, 0, 1, 0, 1, 0] True\n"


def test_the_helper_does_nothing_without_cotenant(run_python: RunPython, plain_env: dict[str, str]) -> None:
    done = run_python("import cotenant.guest.torch; print(cotenant.guest.torch.active)", plain_env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_imported_by_hand_before_pytorch_it_sees_the_steps_later(tenant: Start) -> None:
    one = tenant(
        "import cotenant.guest.torch, torch\n"
        "while not torch.optim.optimizer._hooks: pass\n"
        "print(cotenant.guest.torch.active, len(torch.optim.optimizer._hooks))",
        COTENANT_TORCH="0",
    )
    assert one.finish() == "True 1\n"


# --- by itself

ABOUT = """
import sys, threading
before = set(sys.modules)
import torch
helper = sys.modules.get('_cotenant_torch')
print(helper is not None and helper.active, len(torch.optim.optimizer._hooks),
      type(torch.__loader__).__name__, vars(torch.__loader__).keys() - {'name', 'path'} or '',
      torch.__spec__.loader is torch.__loader__, '_cotenant_torch' in before,
      any(type(finder).__name__ == 'AfterTorch' for finder in sys.meta_path))
"""
HELPED_SO = "True 1 SourceFileLoader  True False False\n"


def test_a_script_a_module_and_a_line_have_it(tenant: Start, tmp_path: Path) -> None:
    (tmp_path / "about.py").write_text(ABOUT)
    assert tenant([sys.executable, str(tmp_path / "about.py")]).finish() == HELPED_SO
    assert tenant(["env", f"--chdir={tmp_path}", sys.executable, "-m", "about"]).finish() == HELPED_SO
    assert tenant(ABOUT).finish() == HELPED_SO
    # Whoever only asks whether PyTorch is there has not imported it.
    assert tenant("import importlib.util; importlib.util.find_spec('torch')\n" + ABOUT).finish() == HELPED_SO


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_who_wants_no_such_thing_has_none(tenant: Start, flag: str) -> None:
    source = (
        f"import sys; sys.path.insert(0, {STAND_IN!r}); import torch; print('_cotenant_torch' in sys.modules)"
    )
    assert tenant([sys.executable, flag, "-c", source]).finish() == "False\n"


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_that_it_starts_have_it(tenant: Start, tmp_path: Path, method: str) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import multiprocessing, sys, threading\n"
        "def work():\n"
        "    import torch; torch.cuda.init(); names = [thread.name for thread in threading.enumerate()]\n"
        "    print(sys.modules['_cotenant_torch'].active, names.count('cotenant-torch'), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    import torch\n"
        f"    child = multiprocessing.get_context({method!r}).Process(target=work)\n"
        "    child.start(); child.join(); print(child.exitcode, len(threading.enumerate()))\n"
    )
    assert tenant([sys.executable, str(script)]).finish() == "True 1\n0 1\n"


def test_a_program_without_pytorch_is_as_it_would_be(tenant: Start, softgpu_env: dict[str, str]) -> None:
    source = (
        "import sys; print(*sorted(sys.modules)); print(*sys.path); print(*sorted(sys.path_importer_cache))\n"
        "print(*(getattr(finder, '__name__', type(finder).__name__) for finder in sys.meta_path))"
    )
    plain = tenant(source, COTENANT_TORCH="0").finish().splitlines()
    helped = tenant(source).finish().splitlines()
    assert set(helped[0].split()) - set(plain[0].split()) <= {"cotenant_startup", "__future__"}
    assert helped[1:3] == plain[1:3]
    assert helped[3] == "AfterTorch " + plain[3]


@pytest.mark.parametrize(
    ("own", "says", "complains"),
    [
        (
            "import sys; print('own', __file__.endswith('here/sitecustomize.py')); value = 3",
            "own True\n3\n",
            "",
        ),
        ("1 / 0", "none\n", "ZeroDivisionError"),
        ("import no_such_module", "none\n", "no_such_module"),
        (None, "none\n", ""),
    ],
)
def test_the_programs_own_sitecustomize_runs(
    tenant: Start, tmp_path: Path, softgpu_env: dict[str, str], own: str | None, says: str, complains: str
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    if own is not None:
        (folder / "sitecustomize.py").write_text(own + "\n")
    source = "try:\n    import sitecustomize; print(sitecustomize.value)\nexcept Exception: print('none')\nimport torch"
    results = []
    for helper in ("0", "1"):
        path = os.pathsep.join([str(folder), STAND_IN, softgpu_env["PYTHONPATH"]])
        # Where the test has none, there may be a distribution's.
        one = tenant([sys.executable, "-c", source], PYTHONPATH=path, COTENANT_TORCH=helper)
        assert one.process
        out, errors = one.process.communicate(timeout=60)
        errors = "".join(line for line in errors.splitlines(True) if not line.startswith("cotenant:"))
        results.append((one.process.returncode, out, errors))
    assert results[0] == results[1]
    if own is not None:
        # `cotenant run` itself is a Python program that has it, too.
        assert results[1][0] == 0 and results[1][1].endswith(says)
        assert complains in results[1][2]


def bare_python() -> str:
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    check = [str(python), "-c", "import cotenant"]
    if (
        not python.exists()
        or subprocess.run(check, capture_output=True, cwd="/", check=False).returncode == 0
    ):
        pytest.skip("no Python without cotenant")
    return str(python)


def test_a_python_without_cotenant_has_it_and_nothing_else_of_ours(tenant: Start, native: Path) -> None:
    source = (
        "import torch, sys; print(sys.modules['_cotenant_torch'].active)\n"
        "try: import click\nexcept ImportError: pass\n"
        "try: import cotenant\nexcept ImportError: print('not here')"
    )
    command = ["env", f"PYTHONPATH={python_path.FOLDER}:{STAND_IN}", bare_python(), "-c", source]
    assert tenant(command).finish() == "True\nnot here\n"


def test_a_helper_that_fails_changes_nothing(tenant: Start, tmp_path: Path) -> None:
    """Something else of that name, hooks that are not there or refuse, an import that fails."""
    for number, (source, ends) in enumerate(
        (
            ("value = 1", "1"),
            ("import sys; sys.modules['torch.optim.optimizer'] = None; value = 2", "2"),
            (
                "import sys, types; o = types.ModuleType('o'); value = 3\n"
                "def refuse(hook): raise RuntimeError('no')\n"
                "o.register_optimizer_step_post_hook = refuse; sys.modules['torch.optim.optimizer'] = o",
                "3",
            ),
            ("raise ImportError('libcudart is missing')", "libcudart is missing"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "torch.py").write_text(source)
        one = tenant(
            f"import sys; sys.path.insert(0, {str(folder)!r})\n"
            "try:\n    import torch; print(torch.value)\nexcept ImportError as error: print(error)"
        )
        assert one.finish() == ends + "\n"


def test_the_sources_are_for_old_pythons_too() -> None:
    import ast

    guest = python_path.FOLDER.parent
    for name, version in (
        ("torch.py", (3, 9)),
        ("startup/cotenant_startup.py", (3, 9)),
        ("startup/sitecustomize.py", (3, 4)),
    ):
        ast.parse((guest / name).read_text(), feature_version=version)


def test_run_brings_it_only_where_memory_moves(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    startup = str(python_path.FOLDER)

    def path_with(*options: str, **settings: str) -> str | None:
        env = softgpu_env | {"PYTHONPATH": softgpu_env["PYTHONPATH"] + ":x y"} | settings
        done = cotenant("run", *options, "--dry-run", "--", "true", env=env)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("PYTHONPATH=")]
        return shlex.split(lines[0])[0].partition("=")[2] if lines else None

    others = softgpu_env["PYTHONPATH"] + ":x y"
    assert path_with("--class", "opportunistic") == f"{startup}:{others}"
    assert path_with("--oversubscribe") == f"{startup}:{others}"
    assert path_with() is None
    assert path_with("--class", "opportunistic", "--no-oversubscribe") is None
    assert path_with("--class", "opportunistic", COTENANT_TORCH="0") is None
    # An inner run has it once, or takes it away.
    inner = f"{startup}:{others}"
    assert path_with("--class", "opportunistic", PYTHONPATH=inner) is None
    assert path_with("--class", "production", PYTHONPATH=inner) == others
