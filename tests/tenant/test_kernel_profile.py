"""What the interposer reads of kernel profiles, and that nothing else than a table of ours counts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.profile import store, tables_for_tenants
from cotenant.profile.columns import Columns, KernelClass
from cotenant.profile.kernel import Kernel
from tests.compiling import compile_program, cuda_headers

Ask = Callable[[str, str], str]
MODEL = "NVIDIA (H200)  SXM."


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("kernel_profile"),
        "tests/tenant/kernel_profile.cpp",
        "native/tenant/kernel_profile.cpp",
        headers=cuda_headers(),
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Of two hundred kernels, and two of which more is known."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    found = [
        Kernel(
            "kernel", name, (2, 3, 4), (5, 6, 7), 8, 0, samples=samples, mean_us=9.5, columns=Columns(bound)
        )
        for name, samples, bound in (
            ("gemm", 1, KernelClass.compute),
            ("long" * 500, 0, KernelClass.memory),
            *((f"other{i}", 1, KernelClass.unknown) for i in range(200)),
        )
    ]
    store.add(environment, store.Model(MODEL, 132, 0.0), found)
    place = tables_for_tenants.folder(environment)
    assert place
    (made,) = place.glob("*.table")
    return made


@pytest.fixture
def ask(program: Path, table: Path) -> Ask:
    def asked(model: str, name: str) -> str:
        environment = {tables_for_tenants.VARIABLE: str(table.parent)}
        done = subprocess.run(
            [str(program), model, name],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    return asked


def test_class_and_time_are_those_of_the_profile(ask: Ask) -> None:
    assert ask(MODEL, "gemm") == "1 9.5"
    assert ask(MODEL, "long" * 500) == "2 -1", "its first 1024 bytes count, and no time is known"
    assert {ask(MODEL, f"other{i}") for i in (0, 99, 199)} == {"0 9.5"}
    assert ask(MODEL, "nobody's") == "none"
    assert ask("another", "gemm") == "none"


@pytest.mark.parametrize(
    "damage",
    ["short", "long count", "magic", "version", "empty", "folder", "newer profile", "longer profile"],
)
def test_what_is_no_table_of_the_profile_counts_for_nothing(ask: Ask, table: Path, damage: str) -> None:
    whole = bytearray(table.read_bytes())
    if damage.endswith("profile"):
        profile = table.with_suffix(".json")
        before = profile.stat()
        if damage == "longer profile":
            profile.write_text(profile.read_text() + " ")
        moment = before.st_mtime_ns + (damage == "newer profile")
        os.utime(profile, ns=(moment, moment))
    elif damage == "folder":
        table.unlink()
        table.mkdir()
    else:
        if damage == "long count":
            whole[12:16] = b"\xff\xff\0\0"
        elif damage in ("magic", "version"):
            whole[0 if damage == "magic" else 8] ^= 1
        table.write_bytes(whole[: {"short": len(whole) - 1, "empty": 0}.get(damage, len(whole))])
    assert ask(MODEL, "gemm") == "none"


def test_garbage_in_a_table_gives_no_class_that_there_is_not(ask: Ask, table: Path) -> None:
    head = table.read_bytes()[: tables_for_tenants.HEAD.size]
    for byte in (0x00, 0x7F, 0xFF):
        table.write_bytes(head + bytes([byte]) * (table.stat().st_size - len(head)))
        assert ask(MODEL, "gemm") == "none"
