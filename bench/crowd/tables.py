"""The crowds' table and what was wanted of them, for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from intervals import MET, Estimate, shown
from report import line
from standing import Row, Target

COLUMNS = (
    "Crowd",
    "Beside",
    "Mode",
    "Sum of work [95 %]",
    "of better / of ideal",
    "Each job's",
    "Jain: charged, by steps",
    "Longest wait, ms",
    "Service p50 x alone [95 %]",
    "Tail x alone [95 %]",
    "SM clock, MHz",
    "Results",
)


def percent(estimate: Estimate) -> str:
    if estimate.interval is None:
        return f"{estimate.value:.0%}"
    return f"{estimate.value:.0%} [{100 * estimate.interval[0]:.0f}, {100 * estimate.interval[1]:.0f}]"


def cells(row: Row) -> list[str]:
    of = row.sum_of_better or row.sum_of_ideal
    charged = "-" if row.jain_charged is None else f"{row.jain_charged:.3f}"
    return [
        row.crowd if len(row.jobs) > 1 else f"one of them: {row.jobs[0]}",
        row.production or "nobody",
        row.mode,
        percent(row.sum),
        shown(of) if of else "",
        ", ".join(f"{job} {share:.0%}" for job, share in zip(row.jobs, row.shares, strict=True)),
        f"{charged}, {row.jain_steps:.3f}" if len(row.jobs) > 1 else "",
        f"{max(row.longest_wait_ms):.0f}",
        shown(row.service_p50_ratio) if row.service_p50_ratio else "",
        f"{row.tail}: {shown(row.tail_ratio)}" if row.tail_ratio else row.tail,
        "" if row.sm_mhz is None else f"{row.sm_mhz:.0f}",
        f"{row.production_results} / {row.results}" if row.production else row.results,
    ]


def table(machine: str, rows: Sequence[Row]) -> str:
    lines = [machine, "", line(COLUMNS), line(["---"] * 3 + ["--:"] * 8 + ["---"])]
    crowds, ones = ([row for row in rows if (len(row.jobs) > 1) is several] for several in (True, False))
    # One job may be in several crowds, and was measured once.
    lines += dict.fromkeys(line(cells(row)) for row in [*crowds, *ones])
    return "\n".join(lines) + "\n"


def verdicts(targets: Sequence[Target]) -> str:
    met = sum(target.verdict == MET for target in targets)
    lines = [f"{met} of {len(targets)} targets met (open: the interval holds both):", ""]
    return "\n".join([*lines, *(f"- {t.verdict}: {t.who}: {t.what}." for t in targets)]) + "\n"


def churn(section: Mapping[str, Any]) -> str:
    columns = ("Jobs at once", "killed", "started in all", "most slots taken", "came to harm")
    figures = (section[name] for name in ("processes", "kills", "started", "most_tenants"))
    lines = [section["machine"], "", line(columns), line(["--:"] * len(columns))]
    lines.append(line([*map(str, figures), str(len(section["harm"]))]))
    return "\n".join([*lines, "", *(f"- Missed: {harm}." for harm in section["harm"])]).rstrip() + "\n"
