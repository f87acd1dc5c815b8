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
        (folder / "groups").mkdir()

    def have(self, path: str, limit: str, used: int, names: tuple[str, str]) -> None:
        group = self.folder / "groups" / path
        group.mkdir(parents=True, exist_ok=True)
        (group / names[0]).write_text(f"{limit}\n")
        (group / names[1]).write_text(f"{used}\n")

    def seen(self, membership: str, *more: str) -> tuple[int, int, bool]:
        self.membership.write_text(membership)
        command = [str(self.program), str(self.membership), str(self.folder / "groups"), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        every, free, known = map(int, done.stdout.split())
        return every, free, bool(known)


SECOND = ("memory.max", "memory.current")
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes")
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def groups(program: Path, tmp_path: Path) -> Groups:
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2":
        pytest.skip("this machine counts every mapping")
    return Groups(program, tmp_path)


@pytest.mark.parametrize(
    "membership", ["", "0::/\n", "0::/a/b\n", "7:cpu:/a\n", "nonsense\n", "1:memory:/\n"]
)
def test_without_a_limit_it_is_the_machine(groups: Groups, membership: str) -> None:
    every, free, known = groups.seen(membership)
    assert (every, 0 < free <= every, known) == (MACHINE, True, True)


def test_a_group_without_a_limit_is_none(groups: Groups) -> None:
    groups.have("a", "max", 5 * MiB, SECOND)
    assert groups.seen("0::/a\n")[0] == MACHINE


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a/b/not-there", "/../../elsewhere"])
def test_the_containers_own_limit_holds_wherever_it_says_it_is(groups: Groups, path: str) -> None:
    groups.have(".", str(64 * MiB), 16 * MiB, SECOND)
    assert groups.seen(f"0::{path}\n") == (64 * MiB, 48 * MiB, True)


@pytest.mark.parametrize(
    ("tree", "line", "names"),
    [("", "0::", SECOND), ("memory/", "4:memory:", FIRST), ("memory/", "4:cpu,memory:", FIRST)],
)
def test_the_tightest_group_counts(groups: Groups, tree: str, line: str, names: tuple[str, str]) -> None:
    groups.have(f"{tree}slice", str(96 * MiB), 90 * MiB, names)
    groups.have(f"{tree}slice/job", str(64 * MiB), 16 * MiB, names)
    groups.have(f"{tree}slice/job/step", "max" if names is SECOND else str(1 << 62), 0, names)
    groups.have(f"{tree}slice/other", str(MiB), MiB, names)
    assert groups.seen(f"2:cpuset:/x\n{line}/slice/job/step\n") == (64 * MiB, 6 * MiB, True)


def test_one_that_has_taken_more_than_it_may_has_none_free(groups: Groups) -> None:
    groups.have(".", str(64 * MiB), 80 * MiB, SECOND)
    assert groups.seen("0::/\n") == (64 * MiB, 0, True)


def test_what_cannot_be_read_is_not_taken_for_none(groups: Groups) -> None:
    groups.have(".", str(64 * MiB), 16 * MiB, SECOND)
    assert groups.seen("0::/\n", "no descriptors") == (MACHINE, 0, False)
