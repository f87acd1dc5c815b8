"""Where the command begins. Ctrl-C while it is still being loaded ends it as Ctrl-C later does: without a traceback."""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from cotenant.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 130  # as `command` itself answers


if __name__ == "__main__":
    sys.exit(main())
