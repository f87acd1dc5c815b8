"""`%load_ext cotenant`: the cell magic `%%cotenant CLASS`, which runs a cell inside cotenant.tenant."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from cotenant.api.lane import not_under_run, tenant, under_run
from cotenant.classes import NAMES
from cotenant.errors import Problem


class Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Problem(message, self.format_usage().strip())


def arguments() -> Arguments:
    parser = Arguments(prog="%%cotenant", add_help=False)
    parser.add_argument("tenant_class", metavar="CLASS", help=", ".join(NAMES))
    parser.add_argument("--name", help="the lane's name; by default its class")
    parser.add_argument("--weight", type=float, default=1.0)
    parser.add_argument("--slowdown")
    parser.add_argument("--floor")
    parser.add_argument("--optional", dest="required", action="store_false", help="run the cell all the same")
    return parser


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext cotenant` calls."""

    def cell_magic(line: str, cell: str) -> None:
        """Run the cell as a tenant of its own: %%cotenant CLASS [--name NAME] [--weight N] [--slowdown 5%] [--floor 5%]
        [--optional]"""
        from IPython.core.error import UsageError

        try:
            with tenant(**vars(arguments().parse_args(shlex.split(line)))):
                shell.run_cell(cell)
        except Problem as problem:
            # One line instead of a traceback.
            raise UsageError(in_one_line(problem)) from None

    shell.register_magic_function(cell_magic, magic_kind="cell", magic_name="cotenant")
    if not under_run():
        print(in_one_line(not_under_run()))


def in_one_line(problem: Problem) -> str:
    return f"{problem.message}; {problem.hint}" if problem.hint else problem.message
