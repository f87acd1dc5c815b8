"""What jobs need, as the command line states it or their profiles tell it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cotenant import units
from cotenant.errors import USAGE, Problem
from cotenant.mig.geometry import Geometry
from cotenant.mig.plan import Need
from cotenant.profile import store
from cotenant.profile.job import Job

# A context of CUDA's and its libraries, which a profile's allocations do not have.
CONTEXT_BYTES = 1 << 30
FORM = "JOB=MEMORY[,SMS], as serve=10G,16 or train=40G,50%"


def read(text: str, geometry: Geometry, environment: Mapping[str, str]) -> Need:
    """`JOB=MEMORY[,SMS]`, or `JOB` of which there is a profile. Raises Problem."""
    job, stated, amounts = text.partition("=")
    if not job:
        raise Problem(f"'{text}' names no job", FORM, USAGE)
    if not stated:
        return from_profile(job, geometry, environment)
    memory, _, sms = amounts.partition(",")
    size = units.bytes_in(memory)
    if not size:
        raise Problem(f"'{memory}' is no size of memory", FORM, USAGE)
    return Need(job, size, sms_of(sms, geometry) if sms else 0.0, "stated")


def sms_of(text: str, geometry: Geometry) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?%?", text):
        raise Problem(f"'{text}' is no number or share of SMs", FORM, USAGE)
    amount = float(text.removesuffix("%"))
    found = amount / 100 * geometry.sms if text.endswith("%") else amount
    if not 0 < found <= geometry.sms:
        raise Problem(f"{geometry.model} has {geometry.sms} SMs, not {text}", FORM, USAGE)
    return found


def from_profile(job: str, geometry: Geometry, environment: Mapping[str, str]) -> Need:
    by_model = store.job(environment, job)
    if not by_model:
        known = store.job_names(environment)
        more = f"; profiles: {', '.join(known)}" if known else ""
        raise Problem(f"there is no profile of '{job}'", f"state its needs: {FORM}{more}", USAGE)
    found: Job = by_model.get(geometry.model) or next(iter(by_model.values()))
    size = found.memory_bytes * 11 // 10 + CONTEXT_BYTES
    return Need(job, size, (found.sms or 0.0) * geometry.sms, "profile")
