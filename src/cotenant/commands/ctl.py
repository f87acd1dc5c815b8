"""`cotenant ctl`: changes jobs while they run, or the policy and the memory knobs of all tenants.

A request is written into the slot of each process of a job; the interposer inside takes it and puts it into effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from cotenant import classes, segment, units
from cotenant.errors import USAGE, Problem, narrate
from cotenant.options import OneOf, jobs_argument, segment_option
from cotenant.tenants import jobs, memory_knobs

PATIENCE_SECONDS = 5.0
AGAIN_SECONDS = 1.0
# What a tenant shows of what it was asked for; a time slice is the driver's to grant.
SHOWN = ("tenant_class", "weight", "slowdown", "floor", "sms")


@click.command(
    "ctl",
    short_help="Change a job while it runs.",
    epilog="""\b
Examples:
  cotenant ctl train.py --class opportunistic
  cotenant ctl serve.py --slowdown 2% --time-slice 2ms
  cotenant ctl 4711 --memory 10G
  cotenant ctl train.py --sms 75%
  cotenant ctl train.py finetune.py --weight 3 --floor 5%
  cotenant ctl --policy strict
  cotenant ctl --capacity 24G --headroom 1G --host-memory 64G
  cotenant ctl""",
)
@jobs_argument(required=False)
@click.option(
    "--class",
    "tenant_class",
    type=OneOf("class", classes.NAMES),
    envvar="COTENANT_CTL_CLASS",
    help="Its class from now on.",
)
@click.option(
    "--weight",
    type=units.weight,
    metavar="NUMBER",
    envvar="COTENANT_CTL_WEIGHT",
    help="Its weight among the jobs of its class, 0.1 to 100.",
)
@click.option(
    "--slowdown",
    type=units.slowdown_or_none,
    metavar="SHARE|none",
    envvar="COTENANT_CTL_SLOWDOWN",
    help="By how much a production job may slow down, such as 5%.",
)
@click.option(
    "--floor",
    type=units.floor_or_none,
    metavar="SHARE|none",
    envvar="COTENANT_CTL_FLOOR",
    help="The share of the GPU that it gets whatever the higher classes do.",
)
@click.option(
    "--memory",
    type=units.encoded_limit_or_none,
    metavar="SIZE|SHARE|none",
    envvar="COTENANT_CTL_MEMORY",
    help="The most that all processes of its run together may allocate of each GPU's memory: 20G, or 30%.",
)
@click.option(
    "--sms",
    type=units.sms_or_all,
    metavar="SHARE|all",
    envvar="COTENANT_CTL_SMS",
    help="The share of each GPU's SMs that its kernels get, so that those of others find the rest free: 75%.",
)
@click.option(
    "--time-slice",
    "time_slice_us",
    type=units.time_slice_us,
    metavar="TIME|default",
    envvar="COTENANT_CTL_TIME_SLICE",
    help="How long the hardware lets it run at a time, such as 50us or 2ms; default: as its class.",
)
@click.option(
    "--policy",
    metavar="NAME",
    envvar="COTENANT_CTL_POLICY",
    help="Without JOB: the policy for all tenants of the segment.",
)
@click.option(
    "--capacity",
    type=units.size_or_default,
    metavar="SIZE|default",
    envvar="COTENANT_CTL_CAPACITY",
    help="Without JOB: how much of each GPU's memory all tenants share; default: all of it.",
)
@click.option(
    "--headroom",
    type=units.headroom_or_default,
    metavar="SIZE|default",
    envvar="COTENANT_CTL_HEADROOM",
    help="Without JOB: how much of each GPU's memory is kept free for the higher classes; default: 5 %, at most 1G.",
)
@click.option(
    "--host-memory",
    type=units.size_or_default,
    metavar="SIZE|default",
    envvar="COTENANT_CTL_HOST_MEMORY",
    help="Without JOB: how much host memory all tenants may pin; default: a quarter of the machine's.",
)
@click.option(
    "--stay",
    "stay_us",
    type=units.stay_us,
    metavar="TIME|default",
    envvar="COTENANT_CTL_STAY",
    help="Without JOB: how long a restored tenant stays before an equal takes its place.",
)
@segment_option
def command(
    words: tuple[str, ...],
    tenant_class: str | None,
    weight: str | None,
    slowdown: str | None,
    floor: str | None,
    memory: int | None,
    sms: str | None,
    time_slice_us: int | None,
    policy: str | None,
    capacity: int | None,
    headroom: int | None,
    host_memory: int | None,
    stay_us: int | None,
    segment_file: Path | None,
) -> None:
    """Change all processes of JOB while they run, or the policy and the memory knobs of all tenants. JOB is a job's
    name, its id or the beginning of that, or a PID of one of its processes or of its launcher. Without anything to
    change it prints what is set for all tenants, and where that comes from.

    Work that they have queued keeps its order and its results; the change counts from their next launch on.
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
            "sms": units.thousandths(sms) if sms else None,
        }.items()
        if value is not None
    }
    stay_ms = None if stay_us is None else -(-stay_us // 1000)
    knobs = memory_knobs.Change(capacity, headroom, host_memory, stay_ms)
    if not words and (policy is not None or knobs) and not wanted:
        if policy is not None:
            change_policy(path, policy)
        if knobs:
            memory_knobs.change(path, knobs)
            narrate("; ".join(memory_knobs.in_words(knobs)))
        return
    if not words and not wanted:
        show_standing(path)
        return
    if not words:
        hint = "cotenant ctl JOB --class ... for a job, cotenant ctl --policy NAME for all"
        raise Problem("no job given", hint, USAGE)
    if policy is not None or knobs:
        what = "a policy is" if policy is not None else "capacity, headroom, host memory and stay are"
        raise Problem(f"{what} for all tenants", "leave the job out", USAGE)
    if not wanted:
        hint = "give one of --class, --weight, --slowdown, --floor, --memory, --sms, --time-slice"
        raise Problem("nothing to change", hint, USAGE)
    chosen = jobs.select(words, jobs.read(path))
    if "sms" in wanted:
        from cotenant.tenants import sm_limit

        for job in chosen:
            sm_limit.check(job, wanted)
    requests = {one.pid: wanted | promises_taken_back(one, wanted) for job in chosen for one in job.tenants}
    change(path, requests)
    for job in chosen:
        changed = {name: value for pid in job.pids for name, value in requests[pid].items()}
        said = ", ".join(in_words(name, value) for name, value in changed.items())
        narrate(f"{job}: {said}{stays(job, wanted)}{in_turns(job, wanted)}")


def show_standing(path: Path) -> None:
    """What `ctl` can change for all, as it is."""
    import os

    from cotenant.config import files, standing

    standing.print_table(list(standing.of_segment(path, os.environ, files.load(os.environ))))


def stays(job: jobs.Job, wanted: Mapping[str, int]) -> str:
    """Whether a job's memory can move is settled when it starts."""
    becomes_opportunistic = wanted.get("tenant_class") == classes.TenantClass.opportunistic
    if not becomes_opportunistic or all(one.where != segment.Where.pinned for one in job.tenants):
        return ""
    return "; its memory stays on the GPU, as it was started without --oversubscribe"


def in_turns(job: jobs.Job, wanted: Mapping[str, int]) -> str:
    """Only jobs in MPS have others beside them."""
    if not wanted.get("sms") or any(one.mps_daemon for one in job.tenants):
        return ""
    return "; it takes turns, so that nobody uses the other SMs while its kernels run"


def change_policy(path: Path, name: str) -> None:
    from cotenant.daemon import choice, control

    try:
        told = choice.for_segment(name)
        try:
            segment.choose_policy(path, told)
        except segment.BadSegment:
            if not segment.is_folder(path) or not control.is_there(path):
                raise
            control.send(path, {"do": "policy", "name": told})
    except FileNotFoundError:
        raise Problem(f"there is no segment {path}", "the first `cotenant run` creates it") from None
    except segment.BadSegment as error:
        raise Problem(str(error), segment.remedy(path)) from None
    narrate(f"the policy is {name} now")


def change(path: Path, requests: Mapping[int, Mapping[str, int]]) -> None:
    """By PID. Returns when all have taken theirs; those that end meanwhile are left out, unless they are all."""
    for pid, wanted in requests.items():
        check_against_grants(path, pid, wanted)
    jobs.ask(path, requests)
    deadline = time.monotonic() + PATIENCE_SECONDS
    again = time.monotonic() + AGAIN_SECONDS
    while waiting := {pid: requests[pid] for pid in those_waiting(path, requests)}:
        if time.monotonic() > again:
            # Two who ask at once may spoil each other's check word.
            again += AGAIN_SECONDS
            jobs.ask(path, waiting)
        if time.monotonic() > deadline:
            named = f"tenant {', '.join(map(str, waiting))}"
            rest = (
                f"; the other {len(requests) - len(waiting)} have changed"
                if len(requests) > len(waiting)
                else ""
            )
            hint = "if it is stopped, it changes when it runs on"
            raise Problem(f"{named} {'does' if len(waiting) == 1 else 'do'} not answer{rest}", hint)
        time.sleep(0.01)


def those_waiting(path: Path, requests: Mapping[int, Mapping[str, int]]) -> list[int]:
    tenants = jobs.read(path)
    found = {pid: jobs.with_pid(pid, tenants) for pid in requests}
    if not any(found.values()):
        raise Problem(f"tenant {', '.join(map(str, requests))} has ended")
    return [pid for pid, tenant in found.items() if tenant and not has_taken(tenant, requests[pid])]


def promises_taken_back(tenant: segment.Tenant, wanted: Mapping[str, int]) -> dict[str, int]:
    """A slowdown is promised to production, a floor to the lower classes: what its new class cannot have goes with the
    old one. Raises Problem where it was asked for."""
    if not wanted.keys() & {"tenant_class", "slowdown", "floor"}:
        return {}
    is_production = wanted.get("tenant_class", tenant.tenant_class) == classes.TenantClass.production
    if wanted.get("slowdown") and not is_production:
        raise Problem("only a production job has a slowdown", "add --class production", USAGE)
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
        hint = "`cotenant segment grants --allow` grants more, if you are the administrator"
        raise Problem(f"tenant {pid} may be {classes.NAMES[best]} at most", hint)


def has_taken(tenant: segment.Tenant, wanted: Mapping[str, int]) -> bool:
    shown = all(getattr(tenant, name) == value for name, value in wanted.items() if name in SHOWN)
    return shown and not set(tenant.asked) & set(wanted)


def in_words(name: str, value: int) -> str:
    if name == "tenant_class":
        return f"class {classes.NAMES[value]}"
    if name == "weight":
        return f"weight {value / 1000:g}"
    if name == "memory":
        return f"memory up to {units.limit_written(value)}" if value else "no memory limit"
    if name == "sms":
        return f"{units.percent(value)} of the SMs" if value else "all SMs"
    if name == "time_slice_us":
        return f"time slice {value} us" if value else "time slice of its class"
    return f"{name} {units.percent(value)}" if value else f"no {name} promised"
