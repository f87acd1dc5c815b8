"""How much memory a process may take: the least of what the groups around it allow."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program

MiB = 1 << 20


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("host_memory"),
        "tests/tenant/host_memory.cpp",
        "native/tenant/memory/host_memory.cpp",
    )


class Groups:
    """Folders as the kernel shows them."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.membership = folder / "membership"
        self.machine = folder / "meminfo"
        (folder / "groups").mkdir()

    def have(self, path: str, limit: str, name: str = "memory.max") -> None:
        group = self.folder / "groups" / path
        group.mkdir(parents=True, exist_ok=True)
        (group / name).write_text(f"{limit}\n")

    def ask(self, membership: str, *more: str) -> tuple[int, bool, int]:
        self.membership.write_text(membership)
        command = [
            str(self.program),
            str(self.membership),
            str(self.folder / "groups"),
            str(self.machine),
            *more,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        found, known, left = map(int, done.stdout.split())
        return found, bool(known), left

    def seen(self, membership: str, *more: str) -> tuple[int, bool]:
        return self.ask(membership, *more)[:2]

    def left(self, membership: str) -> int:
        return self.ask(membership)[2]


MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def groups(program: Path, tmp_path: Path) -> Groups:
    return Groups(program, tmp_path)


@pytest.mark.parametrize(
    "membership", ["", "0::/\n", "0::/a/b\n", "7:cpu:/a\n", "nonsense\n", "1:memory:/\n"]
)
def test_without_a_limit_it_is_the_machine(groups: Groups, membership: str) -> None:
    assert groups.seen(membership) == (MACHINE, True)


def test_a_group_without_a_limit_is_none(groups: Groups) -> None:
    groups.have("a", "max")
    assert groups.seen("0::/a\n") == (MACHINE, True)


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a/b/not-there", "/../../elsewhere"])
def test_the_containers_own_limit_holds_wherever_it_says_it_is(groups: Groups, path: str) -> None:
    groups.have(".", str(64 * MiB))
    assert groups.seen(f"0::{path}\n") == (64 * MiB, True)


@pytest.mark.parametrize(
    ("tree", "line", "name", "none"),
    [
        ("", "0::", "memory.max", "max"),
        ("memory/", "4:memory:", "memory.limit_in_bytes", str(1 << 62)),
        ("memory/", "4:cpu,memory:", "memory.limit_in_bytes", str(1 << 62)),
    ],
)
def test_the_tightest_group_counts(groups: Groups, tree: str, line: str, name: str, none: str) -> None:
    groups.have(f"{tree}slice", str(96 * MiB), name)
    groups.have(f"{tree}slice/job", str(64 * MiB), name)
    groups.have(f"{tree}slice/job/step", none, name)
    groups.have(f"{tree}slice/other", str(MiB), name)
    assert groups.seen(f"2:cpuset:/x\n{line}/slice/job/step\n") == (64 * MiB, True)


def test_what_cannot_be_read_is_not_taken_for_none(groups: Groups) -> None:
    groups.have(".", str(64 * MiB))
    assert groups.seen("0::/\n", "no descriptors") == (MACHINE, False)


def test_a_limit_that_is_there_and_cannot_be_read_is_not_taken_for_none(groups: Groups) -> None:
    """What could be read of the groups around it still holds."""
    groups.have("slice", str(96 * MiB))
    (groups.folder / "groups" / "slice" / "job" / "memory.max").mkdir(parents=True)
    assert groups.seen("0::/slice/job\n") == (96 * MiB, False)


NO_BOUND = 2**64 - 1


def test_what_is_left_is_what_the_machine_and_each_group_still_have(groups: Groups) -> None:
    assert groups.left("0::/slice/job\n") == NO_BOUND
    groups.machine.write_text("MemTotal:  999 kB\nMemAvailable:    92160 kB\n")
    assert groups.left("0::/slice/job\n") == 90 * MiB
    # A group that has no limit, or does not say what it has, is no bound.
    groups.have("slice/job", str(200 * MiB), "memory.current")
    groups.have("slice/job", "max")
    groups.have("slice", str(64 * MiB))
    assert groups.left("0::/slice/job\n") == 90 * MiB
    groups.have("slice", str(50 * MiB), "memory.current")
    assert groups.left("0::/slice/job\n") == 14 * MiB
    # What the kernel would give up at once counts as left; memory of processes does not.
    figures = {"anon": 30, "inactive_file": 3, "active_file": 2, "slab_reclaimable": 1, "slab": 9, "shmem": 8}
    groups.have("slice", "\n".join(f"{name} {count * MiB}" for name, count in figures.items()), "memory.stat")
    assert groups.left("0::/slice/job\n") == 20 * MiB
    groups.have("slice", str(70 * MiB), "memory.current")
    assert groups.left("0::/slice/job\n") == 0
    groups.have("slice/job", str(90 * MiB))
    groups.have("slice", str(10 * MiB), "memory.current")
    assert groups.left("0::/slice/job\n") == 0


def test_what_is_left_of_a_group_of_the_first_version(groups: Groups) -> None:
    groups.have("memory/job", str(64 * MiB), "memory.limit_in_bytes")
    groups.have("memory/job", str(60 * MiB), "memory.usage_in_bytes")
    groups.have(
        "memory/job", f"active_file 1\ntotal_active_file {2 * MiB}\ntotal_inactive_file {MiB}", "memory.stat"
    )
    assert groups.left("4:memory:/job\n") == 7 * MiB
