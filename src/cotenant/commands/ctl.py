"""`cotenant ctl`: changes a tenant while it runs, or the policy and the memory knobs of all tenants.

A request is written into the tenant's slot; the interposer inside the job takes it and puts it into effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from cotenant import classes, segment, units
from cotenant.cli import OneOf, segment_option
from cotenant.errors import USAGE, Problem, narrate
from cotenant.tenants import memory_knobs

PATIENCE_SECONDS = 5.0
AGAIN_SECONDS = 1.0
# What a tenant shows of what it was asked for; a time slice is the driver's to grant.
SHOWN = ("tenant_class", "weight", "slowdown", "floor")
NO_RUN = bytes(16).hex()


@click.command(
    "ctl",
    short_help="Change a tenant while it runs.",
    epilog="""\b
Examples:
  cotenant ctl 4711 --class opportunistic
  cotenant ctl 4711 --slowdown 2% --time-slice 2ms
  cotenant ctl 4711 --memory 10G
  cotenant ctl $(pgrep -f finetune.py) --weight 3 --floor 5%
  cotenant ctl --policy strict
  cotenant ctl --capacity 24G --headroom 1G --host-memory 64G""",
)
@click.argument("pid", type=int, required=False)
@click.option(
    "--class",
    "tenant_class",
    type=OneOf("class", classes.NAMES),
    envvar="COTENANT_CTL_CLASS",
    show_envvar=True,
    help="Its class from now on.",
)
@click.option(
    "--weight",
    type=units.weight,
    metavar="NUMBER",
    envvar="COTENANT_CTL_WEIGHT",
    show_envvar=True,
    help="Its weight among the jobs of its class, 0.1 to 100.",
)
@click.option(
    "--slowdown",
    type=units.slowdown_or_none,
    metavar="SHARE|none",
    envvar="COTENANT_CTL_SLOWDOWN",
    show_envvar=True,
    help="By how much a production job may slow down, such as 5%.",
)
@click.option(
    "--floor",
    type=units.floor_or_none,
    metavar="SHARE|none",
    envvar="COTENANT_CTL_FLOOR",
    show_envvar=True,
    help="The share of the GPU that it gets whatever the higher classes do.",
)
@click.option(
    "--memory",
    type=units.encoded_limit_or_none,
    metavar="SIZE|SHARE|none",
    envvar="COTENANT_CTL_MEMORY",
    show_envvar=True,
    help="The most that all processes of its run together may allocate of each GPU's memory: 20G, or 30%.",
)
@click.option(
    "--time-slice",
    "time_slice_us",
    type=units.time_slice_us,
    metavar="TIME|default",
    envvar="COTENANT_CTL_TIME_SLICE",
    show_envvar=True,
    help="How long the hardware lets it run at a time, such as 50us or 2ms; default: as its class.",
)
@click.option(
    "--policy",
    metavar="NAME",
    envvar="COTENANT_CTL_POLICY",
    show_envvar=True,
    help="Without PID: the policy for all tenants of the segment.",
)
@click.option(
    "--capacity",
    type=units.size_or_default,
    metavar="SIZE|default",
    envvar="COTENANT_CTL_CAPACITY",
    show_envvar=True,
    help="Without PID: how much of each GPU's memory all tenants share; default: all of it.",
)
@click.option(
    "--headroom",
    type=units.headroom_or_default,
    metavar="SIZE|default",
    envvar="COTENANT_CTL_HEADROOM",
    show_envvar=True,
    help="Without PID: how much of each GPU's memory is kept free for the higher classes; default: 5 %, at most 1G.",
)
@click.option(
    "--host-memory",
    type=units.size_or_default,
    metavar="SIZE|default",
    envvar="COTENANT_CTL_HOST_MEMORY",
    show_envvar=True,
    help="Without PID: how much host memory all tenants may pin; default: a quarter of the machine's.",
)
@click.option(
    "--stay",
    "stay_us",
    type=units.stay_us,
    metavar="TIME|default",
    envvar="COTENANT_CTL_STAY",
    show_envvar=True,
    help="Without PID: how long a restored tenant stays before an equal takes its place.",
)
@segment_option
def command(
    pid: int | None,
    tenant_class: str | None,
    weight: str | None,
    slowdown: str | None,
    floor: str | None,
    memory: int | None,
    time_slice_us: int | None,
    policy: str | None,
    capacity: int | None,
    headroom: int | None,
    host_memory: int | None,
    stay_us: int | None,
    segment_file: Path | None,
) -> None:
    """Change the tenant with process number PID while it runs, or the policy and the memory knobs of all tenants.

    Work that the tenant has queued keeps its order and its results; the change counts from its next launch on.
    "none" takes back a promise or a limit, "default" goes back to what holds where nothing was set. With the class go
    the promises that the new class cannot have: --slowdown is for production, --floor for the other classes.
    """
    path = segment.path_to_read(segment_file)
    wanted = {
        name: value
        for name, value in {
            "tenant_class": classes.TenantClass[tenant_class].value if tenant_class else None,
            "weight": units.thousandths(weight) if weight else None,
            "slowdown": units.thousandths(slowdown) if slowdown else None,
            "floor": units.thousandths(floor) if floor else None,
            "time_slice_us": time_slice_us,
            "memory": memory,
        }.items()
        if value is not None
    }
    stay_ms = None if stay_us is None else -(-stay_us // 1000)
    knobs = memory_knobs.Change(capacity, headroom, host_memory, stay_ms)
    if pid is None and (policy is not None or knobs) and not wanted:
        if policy is not None:
            change_policy(path, policy)
        if knobs:
            memory_knobs.change(path, knobs)
            narrate("; ".join(memory_knobs.in_words(knobs)))
        return
    if pid is None:
        hint = "cotenant ctl PID --class ... for a tenant, cotenant ctl --policy NAME for all"
        raise Problem("no process number given", hint, USAGE)
    if policy is not None or knobs:
        what = "a policy is" if policy is not None else "capacity, headroom, host memory and stay are"
        raise Problem(f"{what} for all tenants", "leave the process number out", USAGE)
    if not wanted:
        hint = "give one of --class, --weight, --slowdown, --floor, --memory, --time-slice"
        raise Problem("nothing to change", hint, USAGE)
    wanted = wanted | promises_taken_back(path, pid, wanted)
    change(path, pid, wanted)
    narrate(
        f"tenant {pid}: {', '.join(in_words(name, value) for name, value in wanted.items())}{stays(path, pid, wanted)}"
    )


def stays(path: Path, pid: int, wanted: Mapping[str, int]) -> str:
    """Whether a tenant's memory can move is settled when it starts."""
    becomes_opportunistic = wanted.get("tenant_class") == classes.TenantClass.opportunistic
    tenant = tenant_of(path, pid) if becomes_opportunistic else None
    if tenant is None or tenant.where != segment.Where.pinned:
        return ""
    return "; its memory stays on the GPU, as it was started without --oversubscribe"


def change_policy(path: Path, name: str) -> None:
    from cotenant.daemon import choice

    try:
        segment.choose_policy(path, choice.for_segment(name))
    except FileNotFoundError:
        raise Problem(f"there is no segment {path}", "the first `cotenant run` creates it") from None
    except segment.BadSegment as error:
        raise Problem(str(error), "`cotenant doctor` says more; --segment names another file") from None
    narrate(f"the policy is {name} now")


def change(path: Path, pid: int, wanted: Mapping[str, int]) -> None:
    check_against_grants(path, pid, wanted)
    try:
        if not segment.ask(path, pid, wanted):
            raise no_tenant(path, pid)
        if "memory" in wanted:
            # A limit is the whole run's: each of its processes keeps to the one in its own slot.
            for other in others_of_its_run(path, pid):
                segment.ask(path, other, {"memory": wanted["memory"]})
    except FileNotFoundError:
        raise no_tenant(path, pid) from None
    except segment.BadSegment as error:
        raise Problem(str(error), "`cotenant doctor` says more; --segment names another file") from None
    deadline = time.monotonic() + PATIENCE_SECONDS
    again = time.monotonic() + AGAIN_SECONDS
    while not has_taken(tenant_of(path, pid), pid, wanted):
        if time.monotonic() > again:
            # Two who ask at once may spoil each other's check word.
            again += AGAIN_SECONDS
            segment.ask(path, pid, wanted)
        if time.monotonic() > deadline:
            raise Problem(f"tenant {pid} does not answer", "if it is stopped, it changes when it runs on")
        time.sleep(0.01)


def promises_taken_back(path: Path, pid: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """A slowdown is promised to production, a floor to the lower classes: what its new class cannot have goes with the
    old one. Raises Problem where it was asked for."""
    if not wanted.keys() & {"tenant_class", "slowdown", "floor"}:
        return {}
    tenant = tenant_of(path, pid)
    if tenant is None:
        raise no_tenant(path, pid)
    is_production = wanted.get("tenant_class", tenant.tenant_class) == classes.TenantClass.production
    if wanted.get("slowdown") and not is_production:
        raise Problem("only a production job has a slowdown", "cotenant ctl PID --class production", USAGE)
    if wanted.get("floor") and is_production:
        raise Problem(
            "a production job needs no floor", "--floor is for standard and opportunistic jobs", USAGE
        )
    name = "floor" if is_production else "slowdown"
    return {name: 0} if getattr(tenant, name) else {}


def check_against_grants(path: Path, pid: int, wanted: Mapping[str, int]) -> None:
    """An administrator's segment says who may have which class."""
    if "tenant_class" not in wanted:
        return
    try:
        best = segment.open(path).best_class_of(pid)
    except (OSError, segment.BadSegment):
        return  # writing the request will fail with the reason
    if wanted["tenant_class"] < best:
        hint = "`cotenant segment rights` gives more, if you are the administrator"
        raise Problem(f"tenant {pid} may be {classes.NAMES[best]} at most", hint)


def has_taken(tenant: segment.Tenant | None, pid: int, wanted: Mapping[str, int]) -> bool:
    if tenant is None:
        raise Problem(f"tenant {pid} has ended")
    shown = all(getattr(tenant, name) == value for name, value in wanted.items() if name in SHOWN)
    return shown and not set(tenant.asked) & set(wanted)


def others_of_its_run(path: Path, pid: int) -> list[int]:
    tenants = segment.read(path).tenants
    own = segment.with_pid(pid, tenants)
    run = own.run_id if own else NO_RUN
    return [one.pid for one in tenants if one.run_id == run != NO_RUN and one.pid != pid]


def tenant_of(path: Path, pid: int) -> segment.Tenant | None:
    try:
        return segment.with_pid(pid, segment.read(path).tenants)
    except FileNotFoundError:
        return None
    except segment.BadSegment as error:
        raise Problem(str(error), "`cotenant doctor` says more; --segment names another file") from None


def no_tenant(path: Path, pid: int) -> Problem:
    try:
        tenants = segment.read(path).tenants
    except (FileNotFoundError, segment.BadSegment):
        tenants = ()
    known = ", ".join(f"{tenant.pid} ({tenant.program})" for tenant in tenants) or "no tenants"
    return Problem(f"no tenant has the process number {pid}", f"there are {known}")


def in_words(name: str, value: int) -> str:
    if name == "tenant_class":
        return f"class {classes.NAMES[value]}"
    if name == "weight":
        return f"weight {value / 1000:g}"
    if name == "memory":
        return f"memory up to {units.limit_written(value)}" if value else "no memory limit"
    if name == "time_slice_us":
        return f"time slice {value} us" if value else "time slice of its class"
    return f"{name} {units.percent(value)}" if value else f"no {name} promised"
