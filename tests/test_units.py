"""Amounts as people write them, and how they are rounded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant import segment, units
from cotenant.errors import USAGE, Problem

if TYPE_CHECKING:
    from tests.conftest import Run

GiB = 1 << 30


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5%", 50),
        ("0.05", 50),
        (" 5 % ", 50),
        ("0.0004", 0),
        ("0.0005", 1),
        ("0.0015", 2),
        ("0.0025", 3),  # halves go up, not to the even one
        ("0.04%", 0),
        ("0.05%", 1),
        ("12.34%", 123),
        ("99.95%", 1000),
        (".5", 500),
        ("2.", 2000),
        ("-1", None),
        ("1e3", None),
        ("five", None),
        ("5%%", None),
        ("", None),
        ("9" * 400, None),
    ],
)
def test_a_share_is_rounded_to_thousandths(text: str, value: int | None) -> None:
    assert units.thousandths(text) == value


@pytest.mark.parametrize(
    ("value", "text"), [(50, "5%"), (1, "0.1%"), (125, "12.5%"), (1000, "100%"), (0, "0%")]
)
def test_thousandths_are_shown_as_per_cent(value: int, text: str) -> None:
    assert units.percent(value) == text


@pytest.mark.parametrize(
    ("text", "kept"), [("0.1", "0.1"), ("100", "100"), ("1.2345", "1.235"), ("0.0995", "0.1")]
)
def test_a_weight_is_one_of_a_range(text: str, kept: str) -> None:
    assert units.weight(text) == kept


@pytest.mark.parametrize("text", ["0", "0.0994", "100.001", "5%", "nan", "-1"])
def test_what_is_no_weight(text: str) -> None:
    with pytest.raises(Problem, match="no weight"):
        units.weight(text)


def test_a_share_without_a_sign_is_less_than_one() -> None:
    assert (units.slowdown("0.05"), units.slowdown("0.999"), units.slowdown("150%")) == (
        "5%",
        "99.9%",
        "150%",
    )
    for text in ("1", "5", "5.", "1.5"):
        with pytest.raises(Problem) as caught:
            units.slowdown(text)
        assert f"did you mean {text}%?" in caught.value.hint


def test_the_ends_of_promises() -> None:
    assert (units.slowdown("0.1%"), units.slowdown("1000%")) == ("0.1%", "1000%")
    assert (units.floor("0%"), units.floor("90%")) == ("0%", "90%")
    assert units.slowdown_or_none("none") == units.slowdown_or_none("0%") == "0%"
    for read, text in ((units.slowdown, "0%"), (units.slowdown, "1000.1%"), (units.floor, "90.1%")):
        with pytest.raises(Problem):
            read(text)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("50us", 50),
        ("2ms", 2000),
        ("1.5 s", 1_500_000),
        ("0.6us", 1),
        ("1.4us", 1),
        ("5", 0),
        ("ms", 0),
        ("9" * 400 + "s", 0),
    ],
)
def test_a_length_of_time_is_rounded_to_microseconds(text: str, us: int) -> None:
    assert units.microseconds(text) == us


def test_the_ends_of_lengths() -> None:
    assert (units.time_slice_us("1us"), units.time_slice_us("10s")) == (1, 10_000_000)
    assert (units.stay_us("1ms"), units.stay_us("3600s")) == (1000, 3_600_000_000)
    assert units.time_slice_us("default") == units.stay_us("default") == 0
    for read, text in (
        (units.time_slice_us, "10.1s"),
        (units.stay_us, "999us"),
        (units.stay_us, "3601s"),
    ):
        with pytest.raises(Problem):
            read(text)


@pytest.mark.parametrize(
    ("length", "ms"), [("1ms", 1), ("1001us", 2), ("1999us", 2), ("2ms", 2), ("2500us", 3)]
)
def test_ctl_rounds_a_stay_up(
    cotenant: Run, native: Path, plain_env: dict[str, str], length: str, ms: int
) -> None:
    path = Path(plain_env["COTENANT_SEGMENT"])
    segment.ensure(path)
    done = cotenant("ctl", "--stay", length, env=plain_env)
    assert done.returncode == 0, done.stderr
    assert segment.Header.from_buffer_copy(path.read_bytes()).memory_knobs.stay_ms == ms
    assert f"stays for {ms} ms" in done.stderr


# --- memory


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("20G", 20 * GiB, "20G"),
        ("20 GiB", 20 * GiB, "20G"),
        ("20gb", 20 * GiB, "20G"),
        ("1.5G", GiB * 3 // 2, "1536M"),
        ("1048577", 1048577, "1048577"),
        ("2T", 2048 * GiB, "2T"),
        ("30%", units.SHARE_OF_GPU | 300_000, "30%"),
        ("12.5 %", units.SHARE_OF_GPU | 125_000, "12.5%"),
        ("100%", units.SHARE_OF_GPU | 1_000_000, "100%"),
    ],
)
def test_a_memory_limit_is_a_size_or_a_share(text: str, value: int, written: str) -> None:
    assert units.encoded_limit(text) == value
    assert units.memory_limit(text) == written
    assert units.encoded_limit_or_none(text) == value


@pytest.mark.parametrize(
    "text", ["", "G", "20X", "-1G", "0", "0%", "101%", "1e3G", "20", "20K", "nan", "9" * 30]
)
def test_what_is_no_memory_limit(text: str) -> None:
    with pytest.raises(Problem) as caught:
        units.encoded_limit(text)
    assert caught.value.status == USAGE and "20G" in caught.value.hint


@given(st.one_of(st.integers(units.LEAST_LIMIT, 1 << 50), st.integers(1, 1_000_000)))
def test_a_limit_that_is_written_is_read_as_the_same(number: int) -> None:
    value = number if number >= units.LEAST_LIMIT else units.SHARE_OF_GPU | number
    assert units.encoded_limit(units.limit_written(value)) == value


def test_no_limit_is_for_a_running_tenant_only() -> None:
    assert units.encoded_limit_or_none("none") == 0
    with pytest.raises(Problem):
        units.memory_limit("none")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "-"),
        (20 * GiB, "20G"),
        (units.encoded_limit("30%"), "30%"),
        (GiB + GiB // 8, "1.12G"),
        (5 << 20, "5M"),
        (1200 << 30, "1.17T"),
        (1010 << 20, "1010M"),
    ],
)
def test_a_limit_in_a_table(value: int, text: str) -> None:
    assert units.limit_shown(value) == text


@pytest.mark.parametrize(
    "command", [["run", "--memory", "20X", "--", "true"], ["ctl", "1", "--memory", "20X"]]
)
def test_the_command_line_says_which_limits_it_takes(
    cotenant: Run, plain_env: dict[str, str], command: list[str]
) -> None:
    done = cotenant(*command, env=plain_env)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: no memory limit: '20X'", f"hint: {units.LIMIT_HINT}"]


def test_an_inner_run_takes_the_outer_ones_limit_over(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    words = ["run", "--dry-run", "--memory", "1.5 GiB", "--", "true"]
    done = cotenant(*words, env=softgpu_env)
    assert "COTENANT_MEMORY=1536M" in done.stdout.splitlines()
    inner = cotenant("run", "--dry-run", "--", "true", env=softgpu_env | {"COTENANT_MEMORY": "1536M"})
    assert "COTENANT_MEMORY=1536M" in inner.stdout.splitlines()


# --- what stands in a table, at both sides of every change of form


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, ""),
        (0, "0us"),
        (999.4, "999us"),
        (999.5, "1.00ms"),
        (9_990, "9.99ms"),
        (10_000, "10.0ms"),
        (99_900, "99.9ms"),
        (100_000, "100ms"),
        (999_400, "999ms"),
        (999_500, "1.00s"),
        (10e6, "10.0s"),
        (100e6, "100s"),
    ],
)
def test_a_length_of_time_in_a_table(us: float | None, text: str) -> None:
    assert units.duration_shown(us) == text


def test_counts_ages_and_sizes_in_a_table() -> None:
    counts = {0: "0", 9_999: "9999", 10_000: "10k", 9_999_999: "10000k", 10_000_000: "10M", 10**10: "10G"}
    assert {count: units.count_shown(count) for count in counts} == counts
    ages = {0: "0s", 59.4: "59s", 60: "1m", 119: "1m", 3599: "59m", 3600: "1h", 86399: "23h", 86400: "1d"}
    assert {age: units.age_shown(age) for age in ages} == ages
    sizes = {0: "0", 512: "0.5K", 1 << 20: "1M", GiB - (1 << 20): "1023M", 999 * GiB: "999G", 1 << 40: "1T"}
    assert {size: units.size_shown(size) for size in sizes} == sizes


def test_sizes_that_have_a_default() -> None:
    read, headroom = units.size_or_default, units.headroom_or_default
    assert (read("default"), read("1M"), read("2G")) == (0, 1 << 20, 2 * GiB)
    assert (headroom("default"), headroom("0"), headroom("1M")) == (0, 1, (1 << 20) + 1)
    for text, forgot in (("1023K", True), ("30%", False), ("0", False)):
        with pytest.raises(Problem) as caught:
            read(text)
        assert ("forget the unit" in caught.value.hint) == forgot


def test_shares_as_numbers() -> None:
    assert [units.share_to_one(text) for text in ("0", "0.1%", "30%", "100%")] == [0, 0.001, 0.3, 1]
    assert [units.share_above_zero(text) for text in ("0.1%", "250%", "10000%")] == [0.001, 2.5, 100]
    assert (units.floor_or_none("none"), units.floor_or_none("30%")) == ("0%", "30%")
    assert (units.sms("1%"), units.sms("100%")) == ("1%", "100%")
    for read, text in (
        (units.share_to_one, "100.1%"),
        (units.share_above_zero, "0"),
        (units.share_above_zero, "10000.1%"),
        (units.sms, "0.9%"),
        (units.sms, "100.1%"),
    ):
        with pytest.raises(Problem):
            read(text)
