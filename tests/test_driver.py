"""Finding the driver's file where the loader would, and passing over what is none."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.launch import architecture, driver

HERE = architecture.HERE
[ELSEWHERE] = [one for one in architecture.ARCHITECTURES if one is not HERE]
FLAGS = HERE.loader_cache_flags
NO_CACHE = Path("/no/such/cache")


def elf(bits: int = 2, kind: int = 3, machine: int = HERE.elf_machine) -> bytes:
    """The head of an ELF file: 64-bit shared object for this processor unless told."""
    return b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9) + struct.pack("<HH", kind, machine) + bytes(44)


def library(folder: Path, name: str = "libcuda.so.1", content: bytes | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(elf() if content is None else content)
    return path


def loader_cache(entries: list[tuple[int, str, str]], before: bytes = b"") -> bytes:
    """A cache as ldconfig writes it: header, entries of (flags, name, path), strings."""
    head = 48 + 24 * len(entries)
    table, strings = b"", b""
    for flags, name, path in entries:
        key = head + len(strings)
        strings += name.encode() + b"\0"
        value = head + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, key, value, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + bytes(20)
    return before + header + table + strings


def test_the_order_is_setting_library_path_cache_usual_folders(tmp_path: Path) -> None:
    given_file = library(tmp_path / "given", "my-driver.so")
    on_path = library(tmp_path / "path")
    in_cache = library(tmp_path / "cached")
    usual = library(tmp_path / "usual")
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(loader_cache([(FLAGS, "libcuda.so.1", str(in_cache))]))
    folders = (str(tmp_path / "nothing"), str(usual.parent))
    environment = {
        "COTENANT_DRIVER": str(given_file),
        "LD_LIBRARY_PATH": f"/no/such/folder::{on_path.parent}",
    }
    assert driver.find(environment, cache, folders) == given_file
    del environment["COTENANT_DRIVER"]
    assert driver.find(environment, cache, folders) == on_path
    assert driver.find({}, cache, folders) == in_cache
    assert driver.find({}, NO_CACHE, folders) == usual


@pytest.mark.parametrize(
    "content",
    [b"", b"not a library", elf(bits=1), elf(machine=ELSEWHERE.elf_machine), elf(kind=2), b"\x7fELF"],
    ids=["empty", "text", "32 bits", "another processor", "a program", "cut off"],
)
def test_what_is_no_library_for_this_machine_is_passed_over(tmp_path: Path, content: bytes) -> None:
    wrong = library(tmp_path / "wrong", content=content)
    right = library(tmp_path / "right")
    environment = {"LD_LIBRARY_PATH": f"{wrong.parent}:{right.parent}"}
    assert driver.find(environment, NO_CACHE, ()) == right


def test_the_toolkits_stubs_are_passed_over(tmp_path: Path) -> None:
    stub = library(tmp_path / "cuda" / "lib64" / "stubs")
    link = tmp_path / "linked" / "libcuda.so.1"
    link.parent.mkdir()
    link.symlink_to(stub)
    with pytest.raises(driver.NoDriver):
        driver.find({"LD_LIBRARY_PATH": f"{stub.parent}:{link.parent}"}, NO_CACHE, ())


def test_our_own_interposer_is_passed_over(tmp_path: Path) -> None:
    shim = library(tmp_path / "cotenant" / "native" / "shim")
    library(tmp_path / "cotenant" / "native", "libcotenant_wire.so")
    with pytest.raises(driver.NoDriver):
        driver.find({"LD_LIBRARY_PATH": str(shim.parent)}, NO_CACHE, ())
    with pytest.raises(driver.NoDriver, match="own interposer"):
        driver.find({"COTENANT_DRIVER": str(shim)}, NO_CACHE, ())


def test_a_mounted_driver_without_links_is_found(tmp_path: Path) -> None:
    file = library(tmp_path, "libcuda.so.580.95.05")
    assert driver.find({}, NO_CACHE, (str(tmp_path),)) == file


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [("missing", None, "cannot be read"), ("text", b"text", f"not a {HERE.words} shared library")],
)
def test_a_given_driver_that_cannot_be_one_is_said_and_nothing_else_is_taken(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    good = library(tmp_path / "good")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    environment = {"COTENANT_DRIVER": str(tmp_path / name), "LD_LIBRARY_PATH": str(good.parent)}
    with pytest.raises(driver.NoDriver, match=reason):
        driver.find(environment, NO_CACHE, ())


def test_the_cache_is_read_for_this_name_and_machine_only(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    entries = [
        (0x0003, "libcuda.so.1", "/32-bit/libcuda.so.1"),
        (ELSEWHERE.loader_cache_flags, "libcuda.so.1", "/elsewhere/libcuda.so.1"),
        (FLAGS, "libcuda.so.10", "/other/libcuda.so.10"),
        (FLAGS, "libcuda.so.1", "/first/libcuda.so.1"),
        (FLAGS, "libcuda.so.1", "/second/libcuda.so.1"),
    ]
    expected = [Path("/first/libcuda.so.1"), Path("/second/libcuda.so.1")]
    cache.write_bytes(loader_cache(entries))
    assert driver.cached("libcuda.so.1", cache) == expected
    cache.write_bytes(loader_cache(entries, before=b"ld.so-1.7.0\0" + bytes(36)))
    assert driver.cached("libcuda.so.1", cache) == expected


LDCONFIG_SAYS = {"x86_64": "x86-64", "aarch64": "AArch64"}


def test_this_machines_cache_reads_as_ldconfig_prints_it() -> None:
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if ldconfig is None or not driver.LOADER_CACHE.exists():
        pytest.skip("no ldconfig or no loader cache")
    printed = subprocess.run([ldconfig, "-p"], check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in printed.splitlines() if line.startswith("\tlibc.so.6 ")]
    expected = [Path(line[-1]) for line in lines if LDCONFIG_SAYS[HERE.name] in " ".join(line)]
    assert driver.cached("libc.so.6", driver.LOADER_CACHE) == expected


WHOLE_CACHE = loader_cache([(FLAGS, "libcuda.so.1", "/a/libcuda.so.1"), (FLAGS, "libc.so.6", "/b")])


@given(st.integers(0, len(WHOLE_CACHE)), st.binary(max_size=40), st.integers(0, len(WHOLE_CACHE)))
def test_a_damaged_cache_is_no_cache(end: int, noise: bytes, at: int) -> None:
    damaged = bytearray(WHOLE_CACHE[:end])
    damaged[at : at + len(noise)] = noise

    class File:
        def read_bytes(self) -> bytes:
            return bytes(damaged)

    assert isinstance(driver.cached("libcuda.so.1", File()), list)  # type: ignore[arg-type]
