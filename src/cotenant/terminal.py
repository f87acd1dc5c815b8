"""Everything that a command prints goes through here. Names come from guests, traces, policies and files that other
users wrote: none of their escape sequences reach the terminal. tests/test_terminal.py checks that nothing prints past
this file.
"""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


# What our own pictures are made of, where the terminal's characters are not Unicode's.
BARS = "▁▂▃▄▅▆▇█"
PLAIN = str.maketrans(BARS + "…", "_.:-=+*#~")


def in_plain_characters(error: UnicodeError) -> tuple[str, int]:
    """The codecs' error handler: as many characters as there were cells, so that columns stay in line."""
    from rich.cells import cell_len

    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(PLAIN)
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in text), error.end


def take_any_text() -> None:
    """Stdout in a locale that is not UTF-8's shows what it can, and ends no command."""
    codecs.register_error("cotenant", in_plain_characters)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="cotenant")


def printable(text: str) -> str:
    """One line: what moves the cursor, changes colours or turns the direction of writing is a question mark."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def lines(text: str) -> str:
    """Several lines, and tabs between words."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else "?" for one in text)


def say(text: str = "", styled: str = "") -> None:
    """To stdout, at once. What is `styled` is the caller's own, colours and all, and comes first."""
    print(styled + lines(text), flush=True)


class Stdout:
    """For who wants to write to a file, as csv does."""

    def write(self, text: str) -> int:
        return sys.stdout.write(lines(text))


def console(width: int, is_wide: bool = False) -> Console:
    """For tables on stdout. Into a pipe or file, or where it is wide, the width is given: nothing is cut off."""
    import rich.console

    class Cleaned(rich.console.Console):
        def render_str(self, text: str, **how: Any) -> Any:  # rich makes every cell and line of a str with it
            return super().render_str(lines(text), **how)

    return Cleaned(
        width=None if sys.stdout.isatty() and not is_wide else width, highlight=False, markup=False
    )
