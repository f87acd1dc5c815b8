"""Whether the files of settings are right."""

from __future__ import annotations

from typing import Any

from cotenant import segment
from cotenant.config import files, live
from cotenant.doctor.finding import Finding, Machine


def settings(machine: Machine) -> Finding:
    found = files.load(machine.environment, deep=True)
    known = [file for file in files.files(machine.environment) if file.stamp is not None]
    facts: dict[str, Any] = {"files": [str(file.path) for file in known], "settings": len(found.values)}
    if found.problems:
        wrong = "; ".join(problem.message for problem in found.problems.values())
        fix = "; ".join(problem.hint for problem in found.problems.values())
        return Finding("settings", "warn", f"{wrong}: the file is not used", fix, facts)
    if problem := live.problem_of_daemon(segment.path_for(machine.environment)):
        fix = "mend what it names; the daemon looks again within seconds"
        return Finding("settings", "warn", f"the daemon keeps the last good settings: {problem}", fix, facts)
    named = ", ".join(str(file.path) for file in known) or "no file"
    return Finding("settings", "ok", f"{named}: {len(found.values)} settings", facts=facts)
