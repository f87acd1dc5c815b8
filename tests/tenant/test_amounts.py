"""Amounts in a tenant's environment: the interposer reads them as the command line does, whatever the locale."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant import units
from cotenant.errors import Problem
from tests.compiling import compile_program

# The decimal point, and what a text is as a size and as a share of a GPU; 0 for what it is not.
Ask = Callable[[str], tuple[str, int, int]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("amounts")
    return compile_program(folder, "tests/tenant/amounts.cpp", "native/tenant/amounts.cpp")


def asking(program: Path, env: dict[str, str]) -> Iterator[Ask]:
    with subprocess.Popen(
        [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=env
    ) as process:
        assert process.stdin and process.stdout
        asked, answers = process.stdin, process.stdout

        def ask(text: str) -> tuple[str, int, int]:
            asked.write(text + "\n")
            asked.flush()
            point, size, share = answers.readline().split()
            return point, int(size), int(share)

        yield ask
        asked.close()


@pytest.fixture(scope="module")
def ask(program: Path) -> Iterator[Ask]:
    yield from asking(program, {"LC_ALL": "C"})


def by_command_line(text: str) -> tuple[int, int]:
    try:
        limit = units.encoded_limit(text)
    except Problem:
        limit = 0
    share = limit & ~units.SHARE_OF_GPU if limit & units.SHARE_OF_GPU else 0
    return units.bytes_in(text), share


def plain(number: float) -> str:
    return f"{number:.6f}"


WORDS = st.one_of(
    st.text(st.sampled_from("0123456789.,-+eExX iIbBkKmMgGtT%\u00b2\u212a\uff12"), max_size=8),
    st.builds(
        "".join,
        st.tuples(
            st.sampled_from(["", " ", "\t"]),
            st.one_of(st.integers(0, 1 << 70).map(str), st.floats(0, 1e6).map(plain), st.just(".5")),
            st.sampled_from(["", " ", "  "]),
            st.sampled_from(["", "B", "k", "M", "mb", "GiB", "gI", "T", "tIb", "%", "x", "MM"]),
            st.sampled_from(["", " ", "\r"]),
        ),
    ),
)


@settings(max_examples=1500, deadline=None)
@given(text=WORDS)
def test_it_is_what_the_command_line_takes_it_for(ask: Ask, text: str) -> None:
    assert ask(text)[1:] == by_command_line(text)


@pytest.mark.parametrize(
    ("text", "size", "share"),
    [
        ("20G", 20 << 30, 0),
        ("1.5 GiB", 3 << 29, 0),
        (" 10mb", 10 << 20, 0),
        ("4096", 4096, 0),
        ("512B", 512, 0),
        ("12.5 %", 0, 125_000),
        ("100%", 0, 1_000_000),
        ("100.1%", 0, 0),
        ("0.9", 0, 0),
        ("9223372036854775807", 0, 0),
        ("9" * 400, 0, 0),
        ("9" * 400 + "%", 0, 0),
        ("1e3", 0, 0),
        ("0x10", 0, 0),
        ("inf", 0, 0),
        ("nan%", 0, 0),
        ("-1G", 0, 0),
        ("10MX", 0, 0),
    ],
)
def test_what_it_is(ask: Ask, text: str, size: int, share: int) -> None:
    assert ask(text)[1:] == by_command_line(text) == (size, share)


def test_a_point_is_a_point_in_every_locale(program: Path, tmp_path: Path) -> None:
    made = None
    if localedef := shutil.which("localedef"):
        command = [localedef, "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
        made = subprocess.run(command, capture_output=True, check=False)
    if not made or not (tmp_path / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip("no locale can be made here")
    for ask in asking(program, os.environ | {"LC_ALL": "de_DE.UTF-8", "LOCPATH": str(tmp_path)}):
        assert ask("1.5G") == (",", 3 << 29, 0)
        assert ask("12.5%") == (",", 0, 125_000)
        assert ask("1,5G") == (",", 0, 0)
