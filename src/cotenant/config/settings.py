"""Every setting, declared once: its key in a file, its flag, its variable, and what holds where nobody has set it.

What counts is the flag, else the variable, else the user's file, else the machine's, else the default. Commands take
their options from here (`option`), the files are checked against it (files.py), and docs/configuration.md is its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cotenant import classes, units
from cotenant.errors import USAGE, Problem
from cotenant.mps import decide
from cotenant.options import Number, OneOf


@dataclass(frozen=True)
class Setting:
    table: str  # of a file, and the command; empty: of the file itself, for all commands
    name: str
    help: str
    type: Any = str  # what click makes a value of
    metavar: str | None = None
    default: Any = None
    otherwise: str = ""  # the default in words, where it is no value
    variable: str = ""  # where it is not COTENANT_TABLE_NAME
    parameter: str = ""  # of the command's function, where it is not the name
    flags: str = ""  # where it is not --name
    is_switch: bool = False
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def flag(self) -> str:
        return self.flags or f"--{self.name.replace('_', '-')}"

    @property
    def environment_variable(self) -> str:
        return self.variable or f"COTENANT_{self.table.upper()}_{self.name.upper()}"

    @property
    def argument(self) -> str:
        return self.parameter or self.name

    def default_in_words(self) -> str:
        if self.otherwise:
            return self.otherwise
        return "off" if self.is_switch else "" if self.default is None else shown(self.default)

    def parsed(self, value: Any) -> Any:
        """Raises Problem or click's UsageError for what is none of its values."""
        return click.types.convert_type(self.type)(value)


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


CLASS = OneOf("class", classes.NAMES)


def seconds(text: str | float) -> float:
    """Of the daemon's life: also "inf"."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not found >= 0:
        raise Problem(
            f"no number of seconds to linger: '{text}'", "give a number from 0 up, as 10 or 0.5", USAGE
        )
    return found


SETTINGS = (
    Setting(
        "",
        "segment",
        "The shared-memory file of the tenants.",
        # Whether it can be used is the command's to say: `run` goes on without one that it may not read.
        type=click.Path(readable=False, path_type=Path),
        metavar="FILE",
        otherwise="/dev/shm/cotenant-UID.vN",
        variable="COTENANT_SEGMENT",
        parameter="segment_file",
    ),
    Setting(
        "run",
        "class",
        "How much the command matters: a class waits while a higher class has work on the GPU.",
        type=CLASS,
        metavar="|".join(classes.NAMES),
        default=classes.TenantClass.standard.name,
        variable="COTENANT_CLASS",
        parameter="tenant_class",
    ),
    Setting(
        "run",
        "weight",
        "Its weight among the jobs of its class, 0.1 to 100.",
        type=units.weight,
        metavar="NUMBER",
        otherwise="1",
        variable="COTENANT_WEIGHT",
    ),
    Setting(
        "run",
        "slowdown",
        "For production: by how much it may slow down, such as 5%.",
        type=units.slowdown,
        metavar="SHARE",
        otherwise="none",
        variable="COTENANT_SLOWDOWN",
    ),
    Setting(
        "run",
        "floor",
        "For other classes: the share of the GPU that it gets whatever the higher classes do.",
        type=units.floor,
        metavar="SHARE",
        otherwise="0%",
        variable="COTENANT_FLOOR",
    ),
    Setting(
        "run",
        "memory",
        "The most that its processes together may allocate of each GPU's memory: 20G, or 30%.",
        type=units.memory_limit,
        metavar="SIZE|SHARE",
        otherwise="none",
        variable="COTENANT_MEMORY",
    ),
    Setting(
        "run",
        "oversubscribe",
        "Whether Cotenant may evict its GPU memory to the host while other jobs need the space.",
        type=click.BOOL,
        otherwise="only in the class opportunistic",
        variable="COTENANT_OVERSUBSCRIBE",
        flags="--oversubscribe/--no-oversubscribe",
        is_switch=True,
    ),
    Setting(
        "run",
        "share",
        "How it shares the GPU: in turns, or with its kernels beside those of others (spatial, by way of MPS);"
        " auto goes by the job's last run.",
        type=OneOf("way to share", decide.CHOICES),
        metavar="|".join(decide.CHOICES),
        default=decide.AUTO,
        variable="COTENANT_SHARE",
    ),
    Setting(
        "run",
        "sms",
        "Where it overlaps: the share of the SMs that its kernels get for good. `ctl --sms` sets one that can change.",
        type=units.sms_at_start,
        metavar="SHARE|all",
        otherwise=f"all of them; {decide.SMS_OF_LONG_KERNELS} for long kernels of lower classes with --share spatial",
        variable="COTENANT_SMS",
    ),
    Setting(
        "run",
        "isolate",
        "Never go through MPS, so that no fault of another job can touch it.",
        type=click.BOOL,
        default=False,
        variable="COTENANT_ISOLATE",
        is_switch=True,
    ),
    Setting(
        "run",
        "no_daemon",
        "Start no daemon: the rules go on under the last knobs, and no policy adapts them.",
        type=click.BOOL,
        default=False,
        variable="COTENANT_NO_DAEMON",
        is_switch=True,
    ),
    Setting(
        "run",
        "require",
        "Fail where sharing is not possible, instead of running the command without it.",
        type=click.BOOL,
        default=False,
        variable="COTENANT_REQUIRE",
        is_switch=True,
    ),
    Setting(
        "run",
        "quiet",
        "Print no line on the command's terminal when it is paused and resumed.",
        type=click.BOOL,
        default=False,
        variable="COTENANT_QUIET",
        is_switch=True,
    ),
    Setting(
        "daemon",
        "policy",
        "The policy while no command has named one; `cotenant policies` lists them.",
        metavar="NAME|FILE.py[:CLASS]",
        otherwise="guard",
    ),
    Setting(
        "daemon",
        "linger",
        "How long the daemon runs on after the last tenant has ended.",
        type=seconds,
        metavar="SECONDS",
        default=10.0,
    ),
    Setting(
        "daemon",
        "capacity",
        "How much of each GPU's memory all tenants share.",
        type=units.size_or_default,
        metavar="SIZE|default",
        otherwise="all of it",
    ),
    Setting(
        "daemon",
        "headroom",
        "How much of each GPU's memory is kept free for the higher classes.",
        type=units.headroom_or_default,
        metavar="SIZE|default",
        otherwise="5 %, at most 1G",
    ),
    Setting(
        "daemon",
        "host_memory",
        "How much host memory all tenants may pin.",
        type=units.size_or_default,
        metavar="SIZE|default",
        otherwise="a quarter of the machine's",
    ),
    Setting(
        "daemon",
        "stay",
        "How long a restored tenant stays before an equal takes its place.",
        type=units.stay_us,
        metavar="TIME|default",
        otherwise="ten times as long as its eviction and restore take",
        parameter="stay_us",
    ),
    Setting(
        "status",
        "output",
        "How `status` prints the tenants.",
        type=OneOf("output", ("table", "wide", "json", "csv")),
        metavar="table|wide|json|csv",
        default="table",
    ),
    Setting(
        "status",
        "interval",
        "How long to watch what the tenants use of the GPU; 0: not at all.",
        type=Number(0, 60),
        metavar="SECONDS",
        default=0.25,
        parameter="interval_seconds",
    ),
    Setting(
        "top",
        "interval",
        "From one look to the next: what is shown is what happened in between.",
        type=Number(0.1, 60),
        metavar="SECONDS",
        default=1.0,
        parameter="interval_seconds",
    ),
    Setting(
        "top",
        "readonly",
        "Leave out the keys that change, pause, resume or kill tenants.",
        type=click.BOOL,
        default=False,
        is_switch=True,
    ),
    Setting(
        "metrics",
        "listen",
        "Serve /metrics there until interrupted, instead of printing once.",
        metavar="HOST:PORT",
        otherwise="print once",
    ),
    Setting(
        "metrics",
        "public",
        "Let --listen name an address that other machines reach.",
        type=click.BOOL,
        default=False,
        parameter="is_public",
        is_switch=True,
    ),
)
BY_KEY = {setting.key: setting for setting in SETTINGS}
TABLES = tuple(dict.fromkeys(setting.table for setting in SETTINGS if setting.table))


def option(key: str, *short: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The setting as an option of its command."""
    setting = BY_KEY[key]
    default: dict[str, Any] = {"default": setting.default, "show_default": setting.default is not None}
    if setting.is_switch:
        default = {"default": setting.default} if "/" in setting.flag else {"is_flag": True}
    else:
        default |= {"type": setting.type, "metavar": None if setting.type is CLASS else setting.metavar}
    otherwise = f"  [default: {setting.otherwise}]" if setting.otherwise else ""
    return click.option(
        *short,
        setting.flag,
        setting.argument,
        envvar=setting.environment_variable,
        help=setting.help + otherwise,
        **default,
    )


def of_command(name: str) -> dict[str, Setting]:
    """What counts for a command, by the parameter of its function."""
    return {setting.argument: setting for setting in SETTINGS if setting.table in ("", name)}
