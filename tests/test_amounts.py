"""Amounts as people write them, and how they are rounded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import amounts, segment
from cotenant.errors import Problem

if TYPE_CHECKING:
    from tests.conftest import Run


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
        ("", None),
        ("9" * 400, None),
    ],
)
def test_a_share_is_rounded_to_thousandths(text: str, value: int | None) -> None:
    assert amounts.thousandths(text) == value


@pytest.mark.parametrize(
    ("value", "text"), [(50, "5%"), (1, "0.1%"), (125, "12.5%"), (1000, "100%"), (0, "0%")]
)
def test_thousandths_are_shown_as_per_cent(value: int, text: str) -> None:
    assert amounts.percent(value) == text


@pytest.mark.parametrize(
    ("text", "kept"), [("0.1", "0.1"), ("100", "100"), ("1.2345", "1.235"), ("0.0995", "0.1")]
)
def test_a_weight_is_one_of_a_range(text: str, kept: str) -> None:
    assert amounts.weight(text) == kept


@pytest.mark.parametrize("text", ["0", "0.0994", "100.001", "5%", "nan", "-1"])
def test_what_is_no_weight(text: str) -> None:
    with pytest.raises(Problem, match="no weight"):
        amounts.weight(text)


def test_the_ends_of_promises() -> None:
    assert (amounts.slowdown("0.1%"), amounts.slowdown("1000%")) == ("0.1%", "1000%")
    assert (amounts.floor("0%"), amounts.floor("90%")) == ("0%", "90%")
    assert amounts.slowdown_or_none("none") == amounts.slowdown_or_none("0%") == "0%"
    for read, text in ((amounts.slowdown, "0%"), (amounts.slowdown, "1000.1%"), (amounts.floor, "90.1%")):
        with pytest.raises(Problem):
            read(text)


@pytest.mark.parametrize(
    ("text", "us"),
    [("50us", 50), ("2ms", 2000), ("1.5 s", 1_500_000), ("0.6us", 1), ("1.4us", 1), ("5", 0), ("ms", 0)],
)
def test_a_length_of_time_is_rounded_to_microseconds(text: str, us: int) -> None:
    assert amounts.microseconds(text) == us


def test_the_ends_of_lengths() -> None:
    assert (amounts.time_slice_us("1us"), amounts.time_slice_us("10s")) == (1, 10_000_000)
    assert (amounts.stay_us("1ms"), amounts.stay_us("3600s")) == (1000, 3_600_000_000)
    assert amounts.time_slice_us("default") == amounts.stay_us("default") == 0
    for read, text in (
        (amounts.time_slice_us, "10.1s"),
        (amounts.stay_us, "999us"),
        (amounts.stay_us, "3601s"),
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
    assert segment.Header.from_buffer_copy(path.read_bytes()).crowding.stay_ms == ms
    assert f"stays for {ms} ms" in done.stderr
