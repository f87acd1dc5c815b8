"""The driver is the same through the interposer: the software GPU's own tests pass in a tenant too, whose memory is
counted, limited or made movable and whose streams have gates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU, TREE, Run

pytestmark = pytest.mark.skipif(REAL_GPU, reason="bench/coverage does this on a GPU")

# Without those of programs of their own (APART has the rest of them), and those that measure.
FILES = {
    "memory": ("memory", "pool", "vmm", "host_memory"),
    "work": ("stream", "event", "launch", "capture", "graph", "copy", "module", "value_operations"),
    "contexts": ("context", "green_context", "strictness"),
}
APART = (
    "test_kernels_that_need_few_sms_run_side_by_side",
    "test_elapsed_time_is_modelled_time",
    "test_the_run_time_comes_from_a_parameter",
    "visible_device",
    "test_nothing_works_before_init",
    "test_a_forked_child_is_told_that_nothing_is_initialised",
    "test_a_child_of_a_process_without_cuda_may_begin",
)
# What differs, as docs/memory.md says.
MOVABLE = (
    # Movable memory is of no pool, and an allocation in stream order is freed like any other.
    "test_memory_is_of_the_default_pool_or_of_the_one_named",
    "test_a_plain_free_waits_for_the_stream_that_frees",
    "free_plainly_what_a_stream_was_told_to_free",
)
LIMITED = (
    # The limit is all that there is; a pool keeps what was freed within it.
    "test_a_stream_reuses_what_it_freed_without_waiting",
    "test_a_plain_allocation_is_freed_in_a_stream_once",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("options", "files", "differs"),
    [
        *(
            pytest.param(("--class", "production"), names, (), id=f"production-{of}")
            for of, names in FILES.items()
        ),
        *(
            pytest.param(("--class", "opportunistic"), names, MOVABLE, id=f"opportunistic-{of}")
            for of, names in FILES.items()
        ),
        pytest.param(("--memory", "90%"), FILES["memory"], LIMITED, id="limited"),
    ],
)
def test_the_drivers_own_tests_pass_in_a_tenant(
    cotenant: Run,
    softgpu_env: dict[str, str],
    tmp_path: Path,
    options: tuple[str, ...],
    files: tuple[str, ...],
    differs: tuple[str, ...],
) -> None:
    paths = [TREE / "tests" / "softgpu" / f"test_{name}.py" for name in files]
    others = " and ".join(f"not {name}" for name in (*APART, *differs))
    words = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:xdist", "--rootdir", str(TREE)]
    words += ["-k", others, "--basetemp", str(tmp_path / "inner"), "-o", f"cache_dir={tmp_path / 'cache'}"]
    run = ("run", "--require", *options, "--", *words, *map(str, paths))
    done = cotenant(*run, env=softgpu_env, timeout=280)
    if done.returncode == 1:
        # A machine that is busy keeps some of these from what they wait for; twice, it is the interposer.
        done = cotenant(*run, "--last-failed", env=softgpu_env, timeout=280)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "cotenant:" not in done.stderr  # it joined, and left nothing to say
