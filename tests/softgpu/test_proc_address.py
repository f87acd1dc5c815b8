"""cuGetProcAddress answers as the recorded driver did, for every name, version and flag."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REAL_GPU

pytestmark = pytest.mark.skipif(REAL_GPU, reason="about the software GPU's library")

FACTS = Path(__file__).parents[2] / "native" / "facts" / "driver-580.procs.txt"
DRIVER_VERSION = 13000
FLAGS = {"legacy": (0, 1), "per-thread": (2,)}


@pytest.fixture(scope="module")
def library(native: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(native / "softgpu" / "libcuda.so.1"))


def facts() -> Iterator[tuple[str, str, int, str]]:
    for line in FACTS.read_text().splitlines():
        if line and not line.startswith("#"):
            name, stream, since, symbol = line.split()
            yield name, stream, int(since), symbol


def address_of(library: ctypes.CDLL, symbol: str) -> int | None:
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value


def ask(library: ctypes.CDLL, name: str, version: int, flags: int) -> tuple[int, int | None, int]:
    found, status = ctypes.c_void_p(1), ctypes.c_int(-1)
    result = library.cuGetProcAddress_v2(
        name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    return result, found.value, status.value


def test_every_recorded_answer(library: ctypes.CDLL) -> None:
    for name, stream, since, symbol in facts():
        for flags in FLAGS[stream]:
            assert ask(library, name, since, flags) == (0, address_of(library, symbol), 0), (
                name,
                since,
                flags,
            )


def test_a_version_before_the_first_is_not_sufficient(library: ctypes.CDLL) -> None:
    first: dict[tuple[str, str], int] = {}
    for name, stream, since, _ in facts():
        first[name, stream] = min(since, first.get((name, stream), since))
    for (name, stream), since in first.items():
        for flags in FLAGS[stream]:
            assert ask(library, name, since - 1, flags) == (0, None, 2), (name, since, flags)


def test_the_newest_variant_is_given_at_the_drivers_own_version(library: ctypes.CDLL) -> None:
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for name, stream, since, symbol in facts():
        newest[name, stream] = max((since, symbol), newest.get((name, stream), (0, "")))
    for (name, stream), (_, symbol) in newest.items():
        for flags in FLAGS[stream]:
            assert ask(library, name, DRIVER_VERSION, flags) == (0, address_of(library, symbol), 0), (
                name,
                flags,
            )


def test_an_unknown_name_is_not_found(library: ctypes.CDLL) -> None:
    assert ask(library, "cuNoSuchThing", 12000, 0) == (0, None, 1)
    found = ctypes.c_void_p(1)
    arguments = (b"cuNoSuchThing", ctypes.byref(found), 12000, ctypes.c_uint64(0))
    assert library.cuGetProcAddress(*arguments) == 500
    assert found.value is None


@pytest.mark.parametrize(("version", "flags"), [(DRIVER_VERSION + 1, 0), (12000, 3), (12000, 4)])
def test_a_newer_version_or_another_flag_is_invalid(library: ctypes.CDLL, version: int, flags: int) -> None:
    assert ask(library, "cuInit", version, flags)[0] == 1


def test_every_function_of_the_driver_is_exported(library: ctypes.CDLL) -> None:
    exports = (FACTS.parent / "driver-580.exports.txt").read_text().splitlines()
    missing = [name for name in exports if name and not name.startswith("#") and not hasattr(library, name)]
    assert not missing
