"""Kernel profiles as the interposer reads them: a table as new as its profile."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from cotenant.profile import store
from cotenant.profile.columns import Columns, KernelClass
from cotenant.profile.kernel import Kernel
from cotenant.profile.tables_for_tenants import ENTRY, HEAD, MAGIC, VERSION, folder

GPU = store.Model("NVIDIA H200", 132, 4800.0)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path)}


def kernel(name: str, bound: KernelClass, samples: int = 1, kind: str = "kernel") -> Kernel:
    return Kernel(
        kind, name, (2, 3, 4), (5, 6, 7), 8, 0, samples=samples, mean_us=9.5, columns=Columns(bound)
    )


def entries(environment: dict[str, str]) -> list[tuple[float, ...]]:
    place = folder(environment)
    assert place
    table = (place / "NVIDIA-H200.table").read_bytes()
    profile = (place / "NVIDIA-H200.json").stat()
    magic, version, count, *of = HEAD.unpack(table[: HEAD.size])
    assert (magic, version, of) == (MAGIC, VERSION, [profile.st_mtime_ns, profile.st_size])
    found = list(ENTRY.iter_unpack(table[HEAD.size :]))
    assert len(found) == count
    return found


def test_a_table_has_class_and_time_of_each_kernel(environment: dict[str, str]) -> None:
    store.add(
        environment,
        GPU,
        [
            kernel("gemm", KernelClass.compute),
            kernel("untimed", KernelClass.memory, samples=0),
            kernel("a copy", KernelClass.copy, kind="copy"),
        ],
    )
    sizes = (2, 3, 4, 5, 6, 7, 8)
    assert entries(environment) == sorted(
        [(zlib.crc32(b"gemm"), 4, *sizes, 1, 9.5), (zlib.crc32(b"untimed"), 7, *sizes, 2, 0.0)]
    )


def test_a_table_follows_its_profile(environment: dict[str, str]) -> None:
    store.add(environment, GPU, [kernel("one", KernelClass.compute)])
    entries(environment)
    place = folder(environment)
    assert place
    table = place / "NVIDIA-H200.table"
    written = os.stat(table).st_ino
    folder(environment)
    assert os.stat(table).st_ino == written, "it is not made again for nothing"
    store.add(environment, GPU, [kernel("two", KernelClass.memory)])
    folder(environment, dry=True)
    assert os.stat(table).st_ino == written
    assert len(entries(environment)) == 2


def test_without_profiles_there_is_no_folder_and_a_damaged_one_is_no_trouble(
    environment: dict[str, str],
) -> None:
    assert folder(environment) is None
    assert folder({}) is None
    place = store.folder(environment)
    assert place
    (place / "kernels").mkdir(parents=True)
    (place / "kernels" / "NVIDIA-H200.json").write_text("{")
    assert folder(environment) == place / "kernels"
    assert not list((place / "kernels").glob("*.table"))
