"""Guests under hard conditions: what the interposer writes, starts or reads there costs them nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REAL_GPU
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]

pytestmark = pytest.mark.skipif(REAL_GPU, reason="what the real driver needs there is its own business")


# The software GPU keeps movable memory in files, so "no room in files" is for production only.
@pytest.mark.parametrize(
    ("harsh", "tenant_class"),
    [
        ("no room in files", "production"),
        ("small stacks", "opportunistic"),
        ("empty environment", "production"),
        ("file at our number", "opportunistic"),
    ],
)
def test_it_runs_to_its_end(tenant: Start, compiled: Compile, harsh: str, tenant_class: str) -> None:
    one = tenant(tenant_class, [str(compiled("harsh_guest", "-pthread")), harsh])
    assert one.finish() == "ran\n"


@pytest.mark.parametrize("tenant_class", ["production", "opportunistic"])
def test_a_child_of_a_bare_clone_passes_through_and_says_so(
    tenant: Start, compiled: Compile, tenant_class: str
) -> None:
    one = tenant(tenant_class, [str(compiled("harsh_guest", "-pthread")), "bare clone"])
    assert one.process
    out, errors = one.process.communicate(timeout=120 * PATIENCE)
    assert (one.process.returncode, out) == (0, "ran\n"), errors
    assert errors.count("cotenant: this process is a child that was made by a bare clone()") == 1


def test_a_constructor_may_use_the_gpu_under_a_memory_limit(tenant: Start, compiled: Compile) -> None:
    """Then NVML cannot be loaded by another thread: the constructor has the loader's lock."""
    library = str(compiled("harsh_guest", "-shared", "-DAT_LOAD"))
    program = [str(compiled("harsh_guest", "-pthread")), "constructor", library]
    assert tenant("production", program, COTENANT_MEMORY="256M").finish() == "ran\n"


def test_a_thread_that_is_cancelled_in_its_first_launch_takes_no_lock_with_it(
    preloaded: dict[str, str], compiled: Compile
) -> None:
    # The software GPU ends a program whose thread is cancelled inside of it; this driver makes no call of the system.
    preloaded["COTENANT_DRIVER"] = str(compiled("null_driver", "-shared"))
    program = [str(compiled("harsh_guest", "-pthread")), "cancelled"]
    done = subprocess.run(program, env=preloaded, timeout=60 * PATIENCE, check=False)
    assert done.returncode == 0


# As docs/support.md says.
MOST_OF_A_STACK = 8192


@pytest.mark.parametrize("tenant_class", ["production", "opportunistic"])
def test_a_call_needs_little_of_the_callers_stack(
    tenant: Start, softgpu_env: dict[str, str], compiled: Compile, tenant_class: str
) -> None:
    program = [str(compiled("harsh_guest", "-pthread")), "stack"]
    alone = subprocess.run(
        program, env=softgpu_env, capture_output=True, text=True, timeout=60 * PATIENCE, check=True
    )
    shared = tenant(tenant_class, program, COTENANT_MEMORY="256M", COTENANT_CAPACITY="512M").finish()
    assert 0 < int(shared) <= int(alone.stdout) + MOST_OF_A_STACK


@pytest.mark.parametrize("harsh", ["stderr that nobody reads", "full stderr"])
def test_a_line_that_cannot_be_written_is_not(
    preloaded: dict[str, str], native: Path, compiled: Compile, harsh: str
) -> None:
    Path(preloaded["COTENANT_SEGMENT"]).unlink()
    preloaded["COTENANT_DRIVER"] = str(native / "softgpu" / "libcuda.so.1")
    program = [str(compiled("harsh_guest", "-pthread")), harsh]
    done = subprocess.run(
        program, env=preloaded, capture_output=True, text=True, timeout=60 * PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")
