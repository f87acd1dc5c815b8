"""Where the command begins. Ctrl-C while it is still being loaded ends it as Ctrl-C later does: without a traceback."""

from __future__ import annotations

import os
import sys


def main() -> int:
    open_closed_streams()
    try:
        from cotenant.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 130  # as `command` itself answers


def open_closed_streams() -> None:
    """What is printed there is lost, and no other file gets the descriptor. The program that `run` becomes finds it
    closed all the same: a file that Python opens is closed as another program is executed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
