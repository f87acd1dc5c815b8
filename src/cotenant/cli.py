"""The command line: finds a subcommand's file when it is called, and prints what went wrong once.

A file NAME.py in cotenant/commands with an object `command` is the subcommand NAME.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cotenant import __version__
from cotenant.errors import FAILED, USAGE, Problem, narrate, nearest, unknown
from cotenant.terminal import printable, take_any_text

INTERRUPTED = 130


class Subcommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        files = (Path(__file__).parent / "commands").glob("[a-z]*.py")
        return sorted(file.stem.replace("_", "-") for file in files)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        module = importlib.import_module("cotenant.commands." + name.replace("-", "_"))
        found = module.command
        assert isinstance(found, click.Command)
        return with_variables(found)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word[:1] != "-" and word not in self.list_commands(ctx) and not ctx.resilient_parsing:
            raise unknown("subcommand", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class Nested(click.Group):
    """The subcommands of a subcommand."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0][:1] != "-" and args[0] not in self.commands and not ctx.resilient_parsing:
            raise unknown("subcommand", args[0], self.commands)
        return super().resolve_command(ctx, args)


def with_variables(command: click.Command) -> click.Command:
    """Its help, and that of its subcommands, names the environment variable of each option."""
    for option in command.params:
        if isinstance(option, click.Option):
            option.show_envvar = True
    for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
        with_variables(subcommand)
    return command


@click.group(
    cls=Subcommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Shell completion and all environment variables: docs/commands.md.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Several jobs share one GPU, and the job that matters does not notice.

    \b
    cotenant run --class production -- python serve.py
    cotenant run --class opportunistic -- python finetune.py
    cotenant status
    """
    if ctx.invoked_subcommand and ctx.invoked_subcommand != "config":
        from cotenant.config import files

        ctx.default_map = {ctx.invoked_subcommand: files.for_command(ctx.invoked_subcommand, os.environ)}


def main(arguments: Sequence[str] | None = None) -> int:
    take_any_text()
    try:
        status = cli.main(arguments, prog_name="cotenant", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except Problem as problem:
        return report(problem.message, problem.hint, problem.status)
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        narrate(no_arguments.format_message())
        return USAGE
    except click.UsageError as error:
        return report(*explain(error), status=USAGE)
    except click.ClickException as error:
        return report(error.format_message(), "", error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone (`cotenant status | head`).
        drop_output()
        return FAILED
    except OSError as error:
        # A full disk, or a terminal that has gone.
        drop_output()
        return report(error.strerror or str(error), "", FAILED)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED


def drop_output() -> None:
    """The flush at exit must not fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: click.UsageError) -> tuple[str, str]:
    """Click's message in our form, with the nearest right word where it is about an option."""
    path = error.ctx.command_path if error.ctx else "cotenant"
    help_hint = f"see {path} --help"
    if isinstance(error, click.NoSuchOption):
        options = [
            name
            for parameter in (error.ctx.command.get_params(error.ctx) if error.ctx else ())
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-")
        ]
        return f"unknown option '{error.option_name}'", nearest(error.option_name, options) or help_hint
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:], help_hint


def report(message: str, hint: str, status: int) -> int:
    """One line each, whatever the words hold that they quote."""
    narrate(f"error: {printable(message)}")
    if hint:
        narrate(f"hint: {printable(hint)}")
    return status
