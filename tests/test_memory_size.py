"""Amounts of memory as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant import memory_size
from cotenant.errors import USAGE, Problem

if TYPE_CHECKING:
    from tests.conftest import Run

GiB = 1 << 30


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("20G", 20 * GiB, "20G"),
        ("20 GiB", 20 * GiB, "20G"),
        ("20gb", 20 * GiB, "20G"),
        ("1.5G", GiB * 3 // 2, "1536M"),
        ("1048577", 1048577, "1048577"),
        ("2T", 2048 * GiB, "2T"),
        ("30%", memory_size.SHARE_OF_GPU | 300_000, "30%"),
        ("12.5 %", memory_size.SHARE_OF_GPU | 125_000, "12.5%"),
        ("100%", memory_size.SHARE_OF_GPU | 1_000_000, "100%"),
    ],
)
def test_what_is_understood(text: str, value: int, written: str) -> None:
    assert memory_size.encoded(text) == value
    assert memory_size.limit(text) == written
    assert memory_size.limit_or_none(text) == value


@pytest.mark.parametrize(
    "text", ["", "G", "20X", "-1G", "0", "0%", "101%", "1e3G", "20", "20K", "nan", "9" * 30]
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(Problem) as caught:
        memory_size.encoded(text)
    assert caught.value.status == USAGE and "20G" in caught.value.hint


@given(st.one_of(st.integers(memory_size.LEAST, 1 << 50), st.integers(1, 1_000_000)))
def test_what_is_written_is_read_as_the_same(number: int) -> None:
    value = number if number >= memory_size.LEAST else memory_size.SHARE_OF_GPU | number
    assert memory_size.encoded(memory_size.written(value)) == value


def test_none_is_for_a_running_tenant_only() -> None:
    assert memory_size.limit_or_none("none") == 0
    with pytest.raises(Problem):
        memory_size.limit("none")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "-"),
        (20 * GiB, "20G"),
        (memory_size.encoded("30%"), "30%"),
        (GiB + GiB // 8, "1.12G"),
        (5 << 20, "5M"),
        (1200 << 30, "1.17T"),
        (1010 << 20, "1010M"),
    ],
)
def test_in_a_table(value: int, text: str) -> None:
    assert memory_size.shown(value) == text


@pytest.mark.parametrize(
    "command", [["run", "--memory", "20X", "--", "true"], ["ctl", "1", "--memory", "20X"]]
)
def test_the_command_line_says_what_it_takes(
    cotenant: Run, plain_env: dict[str, str], command: list[str]
) -> None:
    done = cotenant(*command, env=plain_env)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: no memory limit: '20X'", f"hint: {memory_size.HINT}"]


def test_an_inner_run_takes_the_outer_ones_limit_over(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    words = ["run", "--dry-run", "--memory", "1.5 GiB", "--", "true"]
    done = cotenant(*words, env=softgpu_env)
    assert "COTENANT_MEMORY=1536M" in done.stdout.splitlines()
    inner = cotenant("run", "--dry-run", "--", "true", env=softgpu_env | {"COTENANT_MEMORY": "1536M"})
    assert "COTENANT_MEMORY=1536M" in inner.stdout.splitlines()
