"""Tenants in an administrator's segment: what holds among one user's tenants holds among several users'."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment, units
from tests.compiling import compile_program

# The claims of other files, here with `softgpu_env` below.
from tests.interposer.test_gates import (  # noqa: F401
    OBEDIENT,
    order,
    ready,
    test_a_class_changes_while_the_jobs_run,
    test_a_dead_production_job_releases_the_others,
    test_a_gate_stays_shut_until_the_last_of_several_is_idle,
    test_a_stopped_production_job_releases_the_others_until_it_goes_on,
    test_an_opportunistic_job_that_ends_behind_a_closed_gate_does_end,
    test_gates_are_placed_by_time,
    test_the_lower_class_waits_while_the_higher_is_busy,
    use,
)
from tests.interposer.test_memory_quota import (  # noqa: F401
    test_the_limit_holds_for_many_threads_of_many_processes,
    test_what_a_killed_process_had_is_free_again,
)
from tests.interposer.test_sharing import (  # noqa: F401
    test_a_floor_holds_while_production_never_rests,
    test_equals_divide_the_gpu_by_weight,
)
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

NOBODY = 65534
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")


@pytest.fixture
def softgpu_env(softgpu_env: dict[str, str], cotenant: Run) -> Iterator[dict[str, str]]:
    """The segment is a folder, with the software GPU's number in it."""
    # Not in tmp_path, where other users do not come in.
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as beside:
        Path(beside).chmod(0o755)
        folder = Path(beside) / "segment"
        done = cotenant("segment", "create", folder, env=softgpu_env)
        assert done.returncode == 0, done.stderr
        yield softgpu_env | {"COTENANT_SEGMENT": str(folder)}


@pytest.fixture
def folder(softgpu_env: dict[str, str]) -> Path:
    return Path(softgpu_env["COTENANT_SEGMENT"])


class Holder:
    """A busy tenant of another user, without a GPU of its own."""

    def __init__(self, program: Path, folder: Path, tenant_class: int) -> None:
        command = [str(program), str(folder), "hold", str(NOBODY), str(tenant_class)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        assert self.process.stdout.readline() == "holding\n"

    def end(self, signal_number: int | None = None) -> None:
        if signal_number is not None:
            self.process.send_signal(signal_number)
        self.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def holding_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("holder"), "tests/wire/shared_slots.cpp")


@pytest.fixture
def holder(holding_program: Path, folder: Path) -> Iterator[Callable[[int], Holder]]:
    started: list[Holder] = []

    def start(tenant_class: int) -> Holder:
        started.append(Holder(holding_program, folder, tenant_class))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@NEEDS_ROOT
@pytest.mark.parametrize("how", [None, signal.SIGKILL])
def test_another_users_production_job_is_waited_for_until_it_ends(
    tenant: Start, tenants_now: TenantsNow, holder: Callable[[int], Holder], how: int | None
) -> None:
    low = ready(tenant("opportunistic", OBEDIENT))
    other = holder(0)
    wait_for(lambda: use(tenants_now(), low).gated or order(low, "queue 1") != "did queue")
    assert order(low, "queue 5") == "did queue"
    assert order(low, "done?") == "False"
    assert {one.uid for one in tenants_now()} == {0, NOBODY}
    other.end(how)
    wait_for(lambda: order(low, "done?") == "True")


@NEEDS_ROOT
def test_a_tenant_in_a_user_namespace_is_outside_the_user_that_started_it(
    tenant: Start, tenants_now: TenantsNow, holding_program: Path, folder: Path
) -> None:
    """Inside it is root, and number 1: it waits for nobody by that, and nobody takes it for root's."""
    namespaces = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *namespaces]
    if not (shutil.which("setpriv") and shutil.which("unshare")):
        pytest.skip("no setpriv or unshare command")
    tried = subprocess.run([*as_nobody, "true"], check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no user namespaces for other users here: {tried.stderr.strip()}")
    program = shutil.copy(holding_program, folder.parent)
    low = ready(tenant("opportunistic", OBEDIENT))
    other = subprocess.Popen(
        [*as_nobody, program, str(folder), "hold", "0", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout and other.stdout.readline() == "holding\n"
        (seen,) = [one for one in tenants_now() if one.tenant_class == 0]
        assert (seen.uid, seen.own_pid, seen.is_here) == (NOBODY, 1, True)
        assert Path(f"/proc/{seen.pid}").stat().st_uid == NOBODY
        wait_for(lambda: use(tenants_now(), low).gated or order(low, "queue 1") != "did queue")
        assert order(low, "queue 5") == "did queue"
        assert order(low, "done?") == "False"
        os.kill(seen.pid, signal.SIGKILL)
        wait_for(lambda: order(low, "done?") == "True")
    finally:
        other.kill()
        other.communicate()


@NEEDS_ROOT
def test_who_may_not_be_production_is_not_waited_for(
    tenant: Start, tenants_now: TenantsNow, holder: Callable[[int], Holder], folder: Path, cotenant: Run
) -> None:
    assert cotenant("segment", "grants", folder, "--allow", f"{NOBODY}=opportunistic").returncode == 0
    one = ready(tenant("standard", OBEDIENT))
    holder(0)
    wait_for(lambda: {t.tenant_class for t in tenants_now()} == {1, 2})
    assert order(one, "work 20") == "did work"


def test_a_class_is_no_better_than_allowed(tenant: Start, folder: Path, cotenant: Run) -> None:
    def own_class() -> int:
        # As its owner has it: readers would take more than is allowed for what is allowed.
        return int(segment.Slot.from_buffer_copy((folder / "slots" / "0").read_bytes()).tenant_class)

    me = str(os.geteuid())
    assert cotenant("segment", "grants", folder, "--allow", f"{me}=standard").returncode == 0
    one = ready(tenant("production", OBEDIENT))
    assert own_class() == 1
    assert one.process
    done = cotenant("ctl", str(one.process.pid), "--class", "production", "--segment", folder)
    assert done.returncode == 1 and "may be standard at most" in done.stderr
    # Also one that runs already, when its right is taken.
    assert cotenant("segment", "grants", folder, "--allow", f"{me}=opportunistic").returncode == 0
    wait_for(lambda: order(one, "work 1") == "did work" and own_class() == 2)


ALLOCATES = """
import sys
from soft import Gpu, check, driver
gpu = Gpu()
def take(mebibytes):
    result = driver.cuMemAlloc(mebibytes << 20)[0]
    print('got it' if result == driver.CUresult.CUDA_SUCCESS else result.name, flush=True)
print('ready', flush=True)
for line in sys.stdin: take(int(line))
"""


def test_a_users_jobs_share_the_memory_limit_that_the_administrator_set(
    tenant: Start, folder: Path, cotenant: Run
) -> None:
    """Whatever the environment says: each `run` here has no limit of its own, or a larger one."""
    assert cotenant("segment", "grants", folder, "--limit", f"{os.geteuid()}=300M").returncode == 0
    command = [sys.executable, "-u", "-c", ALLOCATES]
    one, other = (
        ready(tenant("standard", command)),
        ready(tenant("standard", command, COTENANT_MEMORY="900M")),
    )
    assert order(one, "160") == "got it"
    assert order(other, "160") == "CUDA_ERROR_OUT_OF_MEMORY"
    assert order(other, "60") == "got it"
    assert cotenant("segment", "grants", folder, "--limit", f"{os.geteuid()}=none").returncode == 0
    assert order(other, "160") == "got it"


def test_a_job_that_is_paused_leaves_nothing_of_the_users_limit_to_others(
    tenant: Start, folder: Path, cotenant: Run
) -> None:
    """When it is resumed, the user's jobs would have more than the administrator allows."""
    assert cotenant("segment", "grants", folder, "--limit", f"{os.geteuid()}=300M").returncode == 0
    command = [sys.executable, "-u", "-c", ALLOCATES]
    one, other = (ready(tenant("opportunistic", command, COTENANT_OVERSUBSCRIBE="1")) for _ in range(2))
    assert order(one, "160") == "got it"
    assert one.process
    paused = cotenant("pause", str(one.process.pid), env=one.env)
    assert paused.returncode == 0, paused.stderr
    assert order(other, "160") == "CUDA_ERROR_OUT_OF_MEMORY"
    assert order(other, "120") == "got it"


TELLS = """
import sys
from soft import Gpu, check, driver
check(driver.cuInit(0)); early = check(driver.cuDeviceTotalMem(0)) >> 20
gpu = Gpu(); check(driver.cuMemAlloc(10 << 20))
print('ready', flush=True)
for line in sys.stdin:
    free, total = check(driver.cuMemGetInfo())
    print(early, check(driver.cuDeviceTotalMem(0)) >> 20, total >> 20, free >> 20, flush=True)
"""


def test_a_users_limit_that_comes_later_holds_for_a_job_without_one_of_its_own(
    tenant: Start, folder: Path, cotenant: Run
) -> None:
    one, teller = (ready(tenant("standard", [sys.executable, "-u", "-c", one])) for one in (ALLOCATES, TELLS))
    assert order(teller, "?").split()[1] == "1024"
    assert order(one, "160") == "got it"
    assert cotenant("segment", "grants", folder, "--limit", f"{os.geteuid()}=300M").returncode == 0
    assert order(one, "160") == "CUDA_ERROR_OUT_OF_MEMORY"
    assert order(one, "60") == "got it"
    assert order(teller, "?").split()[1:3] == ["300"] * 2


@pytest.mark.parametrize(
    ("limit_of_run", "limit_of_user", "total"),
    [("250M", "300M", 250), ("900M", "300M", 300), ("50%", "40%", 409)],
)
def test_of_two_limits_everybody_tells_the_smaller_one(
    tenant: Start,
    tenants_now: TenantsNow,
    folder: Path,
    cotenant: Run,
    limit_of_run: str,
    limit_of_user: str,
    total: int,
) -> None:
    """Also where the other one leaves less: another job of the user's has taken memory."""
    assert cotenant("segment", "grants", folder, "--limit", f"{os.geteuid()}={limit_of_user}").returncode == 0
    one = ready(tenant("standard", [sys.executable, "-u", "-c", TELLS], COTENANT_MEMORY=limit_of_run))
    before = order(one, "?").split()
    other = ready(tenant("standard", [sys.executable, "-u", "-c", ALLOCATES]))
    assert order(other, "100") == "got it"
    after = order(one, "?").split()
    assert before[:3] == after[:3] == [str(total)] * 3
    assert int(after[3]) < int(before[3])
    smaller = limit_of_run if limit_of_run == "250M" else limit_of_user
    assert one.process and other.process
    assert {seen.pid: seen.memory_limit for seen in tenants_now()} == {
        one.process.pid: units.encoded_limit(smaller),
        other.process.pid: units.encoded_limit(limit_of_user),
    }


def test_a_gpu_that_the_administrator_did_not_enter_is_passed_through(
    softgpu_env: dict[str, str], tenant: Start, folder: Path
) -> None:
    with segment.open(folder).writable_header() as header:
        header.gpus[0].known = 0
        del header
    one = tenant("opportunistic", OBEDIENT)
    ready(one)
    assert order(one, "work 10") == "did work"
    one.say("quit")
    assert one.process
    _, errors = one.process.communicate(timeout=60)
    assert one.process.returncode == 0
    assert errors.count("cotenant:") == 1 and "does not know GPU 0" in errors


IN_ANOTHER_PLACE = """
set -e
mount -t tmpfs none /dev/shm
unset COTENANT_SEGMENT
"$1" -m cotenant segment create > /dev/null 2>&1
exec "$@"
"""
LAUNCHES_WITHOUT_THE_VARIABLE = """
import os, sys
from cotenant import segment
os.environ.pop('COTENANT_SEGMENT')
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, '-c', '''
from soft import Gpu
from cotenant import segment
gpu = Gpu(); gpu.launch(gpu.kernel("empty")); gpu.synchronize()
print(len(segment.read(segment.SHARED).tenants))
'''])
os.wait()
"""


@NEEDS_ROOT
def test_the_administrators_segment_is_found_without_the_variable(
    softgpu_env: dict[str, str], tenant: Start
) -> None:
    """In a mount namespace: the real place is for the whole machine."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    command = ["unshare", "--mount", "--", "sh", "-c", IN_ANOTHER_PLACE, "-", sys.executable]
    env = softgpu_env | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "programs"), softgpu_env["PYTHONPATH"]])
    }
    done = subprocess.run(
        [
            *command,
            "-m",
            "cotenant",
            "run",
            "--require",
            "--",
            sys.executable,
            "-c",
            LAUNCHES_WITHOUT_THE_VARIABLE,
        ],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
