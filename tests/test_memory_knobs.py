"""`cotenant ctl --capacity` and its like: what holds for all tenants where memory is short."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.errors import Problem
from cotenant.tenants import memory_knobs

if TYPE_CHECKING:
    from tests.conftest import Run


@pytest.fixture
def path(native: Path, plain_env: dict[str, str]) -> Path:
    made = Path(plain_env["COTENANT_SEGMENT"])
    segment.ensure(made)
    return made


def header(path: Path) -> segment.Header:
    return segment.Header.from_buffer_copy(path.read_bytes())


def test_what_is_said_stands_in_the_segment_and_the_rest_stays(
    path: Path, cotenant: Run, plain_env: dict[str, str]
) -> None:
    done = cotenant("ctl", "--headroom", "2G", "--host-memory", "64G", "--stay", "1.5s", env=plain_env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "2G of it are kept free for the higher classes; the tenants pin up to 64G on the host; "
        "a restored tenant stays for 1500 ms\n"
    )
    assert cotenant("ctl", "--headroom", "0", env=plain_env).returncode == 0
    now = header(path).memory_knobs
    # 0 means that nothing was said, so no headroom is 1.
    assert (now.headroom, now.host_memory, now.stay_ms) == (1, 64 << 30, 1500)


def test_default_takes_back_what_was_said(path: Path, cotenant: Run, plain_env: dict[str, str]) -> None:
    options = ("--headroom", "--host-memory", "--stay")
    for option, amount in zip(options, ("2G", "64G", "1s"), strict=True):
        assert cotenant("ctl", option, amount, env=plain_env).returncode == 0
    words = [word for option in options for word in (option, "default")]
    assert cotenant("ctl", *words, env=plain_env).returncode == 0
    now = header(path).memory_knobs
    assert (now.headroom, now.host_memory, now.stay_ms) == (0, 0, 0)


@pytest.mark.parametrize("option", ["--capacity", "--headroom", "--host-memory", "--stay"])
def test_none_is_no_amount_of_all_tenants(
    path: Path, cotenant: Run, plain_env: dict[str, str], option: str
) -> None:
    done = cotenant("ctl", option, "none", env=plain_env)
    assert done.returncode == 2 and "default" in done.stderr


def test_a_capacity_is_for_gpus_that_are_known(path: Path) -> None:
    with pytest.raises(Problem, match="no GPU has been used yet"):
        memory_knobs.change(path, memory_knobs.Change(capacity=1 << 30))
    with path.open("r+b") as file:
        for number in (0, 2):
            gpu = segment.Header.gpus.offset + number * ctypes.sizeof(segment.Gpu)
            file.seek(gpu + segment.Gpu.known.offset)
            file.write(segment.GPU_VALID.to_bytes(4, "little"))
    memory_knobs.change(path, memory_knobs.Change(capacity=1 << 30))
    assert [gpu.capacity for gpu in header(path).gpus[:3]] == [1 << 30, 0, 1 << 30]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("4711", "--capacity", "24G"), "capacity, headroom, host memory and stay are for all tenants"),
        (("--capacity", "30%"), "no size: '30%'"),
        (("--stay", "5"), "no length of a stay: '5'"),
        (("--headroom", "much"), "no size: 'much'"),
        (("--headroom", "5"), "did you forget the unit?"),
        (("--host-memory", "0"), "no size: '0'"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    path: Path, cotenant: Run, plain_env: dict[str, str], words: tuple[str, ...], said: str
) -> None:
    before = path.read_bytes()
    done = cotenant("ctl", *words, env=plain_env)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert path.read_bytes() == before


def test_without_a_segment_it_says_so(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("ctl", "--stay", "1s", env=plain_env)
    assert (done.returncode, "there is no segment" in done.stderr) == (1, True)


def test_what_is_said_counts_with_its_check_words(path: Path) -> None:
    """Tenants do not believe a header that somebody has scribbled over."""
    memory_knobs.change(path, memory_knobs.Change(headroom=5, host_memory=1 << 30, stay_ms=7))
    now, sealed = header(path), header(path)
    segment.seal(sealed)
    assert bytes(now) == bytes(sealed)
