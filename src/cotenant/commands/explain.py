"""`cotenant explain`: why a tenant waits now, where its memory is, and what the policy last decided about it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant import figures, segment, units
from cotenant.classes import TenantClass
from cotenant.errors import Problem
from cotenant.options import jobs_argument, output_option, segment_option
from cotenant.tenants import jobs, looking
from cotenant.tenants.lately import NOTHING_KNOWN, Key, Lately
from cotenant.terminal import printable, say

if TYPE_CHECKING:
    from cotenant.daemon import report

WATCHED_SECONDS = 0.25


@click.command(
    "explain",
    short_help="Say why a tenant waits, and what the policy decided.",
    epilog="""\b
Examples:
  cotenant explain finetune.py
  cotenant explain 4711 -o json""",
)
@jobs_argument()
@output_option("explain", ("text", "json"))
@segment_option
def command(words: tuple[str, ...], output: str, segment_file: Path | None) -> None:
    """Say whether each process of JOB waits on each GPU and why, where its memory is, and what the policy last decided
    about it. JOB is a job's name, its id or the beginning of that, or a PID of one of its processes or of its launcher.
    """
    path = segment.path_to_read(segment_file)
    seen, lately = looking.twice(path, WATCHED_SECONDS)
    tenants = [one for job in jobs.select(words, seen.tenants) for one in job.tenants]
    if output == "json":
        import json

        from cotenant.gpus import process_memory

        nvml = process_memory.by_process(os.environ)
        told = [gather(seen, one, path, nvml, lately) for one in tenants]
        say(json.dumps({"schema": figures.SCHEMA, "tenants": told}, indent=2))
    else:
        for one in tenants:
            for line in in_words(gather(seen, one, path, {}, lately)):
                say(printable(line))


def gather(
    seen: segment.Snapshot,
    tenant: segment.Tenant,
    path: Path,
    nvml: figures.NvmlBytes,
    lately: Mapping[Key, Lately] = NOTHING_KNOWN,
) -> dict[str, Any]:
    """The tenant's figures, and for each GPU why it waits and what else is known."""
    from cotenant.gpus import states
    from cotenant.tenants import sharing, wait_reasons

    now_ns = segment.now_ns()
    shown = states.read(path)
    about = figures.record(tenant, nvml, lately)
    for gpu, use in zip(about["gpus"], tenant.uses, strict=True):
        gpu |= {
            "waits": use.busy and use.held,
            "only_copies": use.only_copies,
            "why": list(wait_reasons.reasons(seen, tenant, use, now_ns)),
            "breakdown": breakdown_of(tenant, use),
            "device": figures.read(figures.Of.gpu, states.figures(shown, use.gpu, seen.tenants)),
            "at_work": states.at_work(shown, tenant, use.gpu),
        }
    return about | {"sharing": sharing.of(tenant), "policy": policy_about(seen, tenant, path)}


def breakdown_of(tenant: segment.Tenant, use: segment.Use) -> dict[str, Any] | None:
    from cotenant.tenants import breakdown

    found = breakdown.of(use) if tenant.tenant_class == TenantClass.production else None
    return vars(found) | {"text": list(breakdown.in_words(found, jobs.named(tenant)))} if found else None


def policy_about(seen: segment.Snapshot, tenant: segment.Tenant, path: Path) -> dict[str, Any]:
    from cotenant.daemon import lock, report
    from cotenant.policies import registry

    nobody: dict[str, Any] = {
        "name": seen.policy or registry.DEFAULT,
        "daemon": None,
        "problem": "",
        "decisions": [],
    }
    try:
        shown = report.read(path) if lock.is_held(path) else None
    except Problem as problem:
        return nobody | {"problem": f"{problem.message}: {problem.hint}"}
    if shown is None:
        return nobody
    return {
        "name": shown.policy,
        "daemon": shown.pid,
        "problem": shown.problem,
        "decisions": [
            decision(one, about.gpu, seen, tenant)
            for about in shown.tenants
            if (about.pid, about.started) == (tenant.own_pid, tenant.started)
            for one in about.decisions
        ],
    }


def decision(one: report.Decision, gpu: int, seen: segment.Snapshot, asked: segment.Tenant) -> dict[str, Any]:
    """With the tenant that it is about: under some policies what holds a job back is decided about another."""
    subject = next((other for other in seen.tenants if (other.own_pid, other.started) == one.about), None)
    if one.about is None:
        subject = asked
    who = jobs.named(subject) if subject else f"a tenant that has ended ({one.about[0] if one.about else 0})"
    return {
        "at": one.at,
        "gpu": gpu,
        "subject": {
            "job": subject.job if subject else None,
            "pid": subject.pid if subject else one.about[0] if one.about else None,
            "run_id": subject.run_id if subject else None,
        },
        "text": with_subject(one.text, who),
    }


def with_subject(sentence: str, who: str) -> str:
    """A policy knows no names: it says "It"."""
    for pronoun, name in (("It ", f"{who} "), ("Its ", f"{who}'s ")):
        if sentence.startswith(pronoun):
            return name + sentence[len(pronoun) :]
    return f"{who}: {sentence[:1].lower()}{sentence[1:]}"


def in_words(about: dict[str, Any]) -> Iterator[str]:
    from cotenant.tenants import sharing, sm_limit

    who = f"{about['job']} ({about['pid']})"
    yield f"{who}: {', '.join(standing(about))}"
    yield from memory_in_words(about, who)
    yield from sharing.in_words(about["sharing"], who)
    yield from sm_limit.in_words(about, who)
    for gpu in about["gpus"]:
        yield f"GPU {gpu['gpu']}: {on_gpu(gpu, who)}"
        if gpu["has_work"] or gpu["why"]:
            yield from (f"  because {why}" for why in gpu["why"])
        if gpu["waits"] and not gpu["why"]:
            yield f"  the gate of {who} is being opened right now"
        if gpu["breakdown"]:
            yield from (f"  {line}" for line in gpu["breakdown"]["text"])
        if about["policy"]["daemon"] is not None:
            yield f"  {gpu['device']['in_words']}"
        yield from (f"  GPU {gpu['gpu']} {line}" for line in gpu["device"]["outside_in_words"])
        if gpu["at_work"] and gpu["at_work"]["in_words"]:
            yield f"  {gpu['at_work']['in_words']}"
    if not about["gpus"]:
        yield f"{who} has not used a GPU yet"
    policy = about["policy"]
    if policy["daemon"] is None:
        why = policy["problem"] or "no daemon runs"
        yield f"policy {policy['name']}: {why}; the rules go on under the last knobs"
        return
    yield f"policy {policy['name']}, daemon {policy['daemon']}"
    if policy["problem"]:
        yield f"  {policy['problem']}"
    for decision in policy["decisions"]:
        at = time.strftime("%H:%M:%S", time.localtime(decision["at"]))
        where = f" GPU {decision['gpu']}:" if len(about["gpus"]) > 1 else ""
        yield f"  {at}{where} {decision['text']}"


def memory_in_words(about: dict[str, Any], who: str) -> Iterator[str]:
    size = units.size_shown
    on_host = f"{size(about['host_bytes'])} of {who}'s memory are on the host"
    if about["where"] == "restoring":
        yield f"{who}'s memory is being restored: {on_host} now"
    elif about["evicted_for"]:
        is_moving = about["where"] == "evicting"
        what = "is being evicted to the host" if is_moving else "is evicted"
        cause = figures.EvictedFor[about["evicted_for"]]
        limit = f", {about['memory_limit']}" if cause is figures.EvictedFor.limit else ""
        yield f"{who}'s memory {what}, because of {because(cause, who)}{limit}: {on_host}{' now' if is_moving else ''}"
        if cause is figures.EvictedFor.pause:
            yield f"  `cotenant resume {about['pid']}` resumes {who}"
        elif cause is figures.EvictedFor.limit:
            yield f"  {who} runs on when it frees memory, or under a higher limit: cotenant ctl {about['pid']} --memory"
        elif about["wanted_bytes"]:
            yield f"  {who} is restored when there is space for {size(about['wanted_bytes'])}"
    elif about["wanted_bytes"]:
        yield f"{who} waits for {size(about['wanted_bytes'])} of the GPU's memory"
    stays = sum(max(gpu["memory_bytes"] - gpu["movable_bytes"], 0) for gpu in about["gpus"])
    if about["where"] != "pinned" and stays:
        yield f"{size(stays)} of {who}'s memory cannot be evicted"
    if about["evictions"]:
        spared = (
            f", {size(about['dropped_bytes'])} were free and not copied" if about["dropped_bytes"] else ""
        )
        took = about["transfer_seconds"]
        lasted = f"; eviction and restore took {took:.2f} s the last time" if took else ""
        times = "once" if about["evictions"] == 1 else f"{about['evictions']} times"
        yield f"{who}'s memory was evicted {times}: {size(about['saved_bytes'])} copied{spared}{lasted}"
    if about["refusal"]:
        yield f"{who}'s last eviction was refused: {about['refusal']}"


def because(cause: figures.EvictedFor, who: str) -> str:
    return {
        figures.EvictedFor.pause: "a pause by hand",
        figures.EvictedFor.limit: f"{who}'s own memory limit",
        figures.EvictedFor.space: "other tenants that need the space",
    }[cause]


def standing(about: dict[str, Any]) -> Iterator[str]:
    yield about["class"]
    yield f"weight {about['weight']:g}"
    if about["slowdown"]:
        yield f"promised a slowdown of at most {units.percent(round(1000 * about['slowdown']))}"
    if about["floor"]:
        yield f"promised {units.percent(round(1000 * about['floor']))} of the GPU"
    if about["time_slice_refused"]:
        yield "time slice refused by the driver"
    elif about["time_slice_us"]:
        yield f"time slice {about['time_slice_us']} us"
    if about["grace_us"]:
        yield f"counts as idle after {about['grace_us']} us without work"


def on_gpu(gpu: dict[str, Any], who: str) -> str:
    used = f"has used {gpu['used_seconds']:.1f} s"
    if gpu["gpu_share"] is not None:
        used += f", {gpu['gpu_share']:.0%} of the GPU now"
    if gpu["waits"]:
        return f"{who} waits; {used}"
    if gpu["only_copies"]:
        return f"{who} copies between host and GPU and is not waiting; {used}"
    if gpu["has_work"]:
        ahead = ", ahead of the higher classes: it has got less than its floor" if gpu["below_floor"] else ""
        return f"{who} has work and is not waiting{ahead}; {used}"
    return f"{who} has no work; {used}" + ("; it would wait if it had work" if gpu["why"] else "")
