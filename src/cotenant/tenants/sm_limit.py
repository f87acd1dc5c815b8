"""A limit of the SMs that a job's kernels get (native/tenant/detour.h): whether a job can have one, and what
`explain` says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cotenant import units
from cotenant.classes import TenantClass
from cotenant.errors import USAGE, Problem

if TYPE_CHECKING:
    from cotenant.tenants.jobs import Job

# By detour::Refusal. What is said of a job, and what helps.
REFUSALS = {
    1: ("it was started as production", "start it in a lower class"),
    2: (
        "its driver makes no green contexts",
        "CUDA 12.4 and later have them; `cotenant run --sms` needs MPS",
    ),
    3: (
        "its SMs were given to it at its start, for good",
        "start it without --sms, then set them while it runs",
    ),
    5: ("it has a driver function that this Cotenant does not know", "a newer Cotenant may know it"),
    4: (
        "it has too many streams or threads to be watched",
        "`cotenant run --sms` holds for all that it launches",
    ),
}


def check(job: Job, wanted: Mapping[str, int]) -> None:
    """Raises Problem where it cannot be given fewer SMs while it runs."""
    for one in job.tenants:
        if not wanted.get("sms"):
            if one.sms_refused == 3:
                raise Problem(f"{job} cannot be given all SMs: {REFUSALS[3][0]}", REFUSALS[3][1])
            continue
        if wanted.get("tenant_class", one.tenant_class) == TenantClass.production:
            raise Problem(
                "a production job keeps all SMs", "--sms is for standard and opportunistic jobs", USAGE
            )
        if one.lane:
            raise Problem(f"{job} is a lane", "its streams keep all SMs; --sms is for whole jobs", USAGE)
        if one.sms_refused:
            why, hint = REFUSALS.get(
                one.sms_refused, ("the interposer refuses", "`cotenant doctor` says more")
            )
            raise Problem(f"{job} cannot be given fewer SMs: {why}", hint)


def in_words(about: Mapping[str, Any], who: str) -> Iterator[str]:
    if about["sms"] and about["sms_refused"] == REFUSALS[3][0]:
        yield f"{who}'s kernels get {units.percent(round(1000 * about['sms']))} of the SMs, since its start"
    elif about["sms"] and about["sms_refused"]:
        yield f"{who}'s kernels get all SMs: {about['sms_refused']}"
    for gpu in about["gpus"]:
        if gpu["sms_by_policy"]:
            told = (
                f", less than the {about['sms']:.0%} of --sms" if about["sms"] > gpu["sms_by_policy"] else ""
            )
            yield (
                f"the policy {about['policy']['name']} gives {who}'s kernels {gpu['sms_by_policy']:.0%} of GPU "
                f"{gpu['gpu']}'s SMs{told}"
            )
        if not gpu["sms_now"]:
            continue
        others = gpu["undetoured"]
        rest = f"; {others} others got all: graphs apart, those that need all their blocks at once, or came in between"
        yield f"{who}'s kernels get {gpu['sms_now']} SMs of GPU {gpu['gpu']}: {gpu['detours']} did" + (
            rest if others else ""
        )


def refusal_of(number: int) -> str | None:
    return REFUSALS[number][0] if number in REFUSALS else None
