"""Finding a policy: by the name of a built-in one, by that of an installed package's, or by a file's path.

A built-in policy is a row of BUILT_IN. A package brings its own with an entry point of the group `cotenant.policies`
(`name = "module:Class"`). A file is named with a slash or its ending: `./mine.py`, or `./mine.py:Class` where it holds
more than one policy.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.errors import USAGE, Problem, nearest
from cotenant.policies.interface import Policy, Rule

GROUP = "cotenant.policies"
DEFAULT = "guard"
SHORTEST_TICK_MS, LONGEST_TICK_MS = 10, 60_000
SHARING = ("timeslice", "together")

BUILT_IN = {
    "guard": "cotenant.policies.guard.policy:Guard",
    "guard-spatial": "cotenant.policies.guard.spatial:GuardSpatial",
    "strict": "cotenant.policies.strict:Strict",
    "fair": "cotenant.policies.fair:Fair",
    "none": "cotenant.policies.none:NoPolicy",
    "timeslice": "cotenant.policies.timeslice:TimeSlice",
    "mps": "cotenant.policies.mps:Mps",
    "orion": "cotenant.policies.orion:Orion",
    "tgs": "cotenant.policies.tgs:Tgs",
    "reef": "cotenant.policies.reef:Reef",
    "gemini": "cotenant.policies.gemini:Gemini",
    "antman": "cotenant.policies.antman:AntMan",
    "salus-pack": "cotenant.policies.salus_pack:SalusPack",
    "salus-fair": "cotenant.policies.salus_fair:SalusFair",
    "salus-srtf": "cotenant.policies.salus_srtf:SalusSrtf",
    "salus-rr": "cotenant.policies.salus_rr:SalusRr",
    "salus-fifo": "cotenant.policies.salus_fifo:SalusFifo",
    "paella": "cotenant.policies.paella:Paella",
    "muxflow": "cotenant.policies.muxflow:MuxFlow",
    "chimera": "cotenant.policies.chimera:Chimera",
}


@dataclass(frozen=True)
class About:
    """What a policy's class said of itself when it was found: `Policy` says what it means."""

    name: str
    title: str
    every_ms: float
    rule: str
    sharing: str
    runs_live: bool


def names() -> list[str]:
    return [*BUILT_IN, *sorted(set(installed()) - set(BUILT_IN))]


def find(name: str, anew: bool = False) -> type[Policy]:
    """Raises a Problem that says what is wrong and what there is. `anew`: as its module is now, where it was loaded
    before; a file is read each time."""
    if is_file(name):
        return from_file(name)
    if place := BUILT_IN.get(name):
        module, _, attribute = place.partition(":")
        return checked(getattr(importlib.import_module(module), attribute), name)
    if entry := installed().get(name):
        try:
            if anew and entry.module in sys.modules:
                importlib.reload(sys.modules[entry.module])
            return checked(entry.load(), name)
        except Problem:
            raise
        except (Exception, SystemExit) as error:  # whatever a foreign module does while it is imported
            raise Problem(f"the policy '{name}' of {entry.value} cannot be loaded: {error!r}") from error
    known = f"known: {', '.join(names())}; or a file: ./mine.py"
    raise Problem(f"unknown policy '{name}'", nearest(name, names()) or known, USAGE)


def find_live(name: str, anew: bool = False) -> type[Policy]:
    """As `find`, for a policy that shall look after real GPUs."""
    found = find(name, anew)
    if not about(found).runs_live:
        live = ", ".join(one for one in names() if about(find(one)).runs_live)
        raise Problem(f"the policy '{name}' only runs in the simulator", f"on a GPU: {live}", USAGE)
    return found


def is_file(name: str) -> bool:
    return os.sep in name or name.endswith(".py") or ".py:" in name


def source_of(name: str) -> object:
    """Another one when the policy's file has changed; None: it comes from no file of its own."""
    try:
        about = os.stat(name.partition(":")[0]) if is_file(name) else None
    except OSError:
        return None
    return about and (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)


def about(policy: type[Policy]) -> About:
    return About(
        policy.name, policy.title, policy.every_ms, policy.rule.name, policy.sharing, policy.runs_live
    )


def installed() -> dict[str, Any]:
    """The entry points of other packages, by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def from_file(name: str) -> type[Policy]:
    file, _, wanted = name.partition(":")
    path = Path(file)
    if not path.is_file():
        raise Problem(f"there is no policy file {file}", "give its path: ./mine.py or ./mine.py:Class", USAGE)
    spec = importlib.util.spec_from_file_location(f"cotenant_policy_{path.stem}", path.absolute())
    if spec is None or spec.loader is None:
        raise Problem(f"{file} is no Python file", "its name ends in .py", USAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look themselves up there
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing beside the user's file
    try:
        # Compiled from the text as it is now: bytecode beside it may be of another moment.
        exec(compile(path.read_bytes(), str(path.absolute()), "exec"), vars(module))
    except (Exception, SystemExit) as error:  # whatever stands in it
        raise Problem(f"{file} cannot be loaded: {error!r}", status=USAGE) from error
    finally:
        sys.dont_write_bytecode = writes_bytecode
    here = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "tick")
    }
    if wanted:
        if wanted not in here:
            raise Problem(f"{file} has no policy {wanted}", f"it has: {', '.join(here) or 'none'}", USAGE)
        return checked(here[wanted], name)
    if len(here) != 1:
        hint = "name one: " + ", ".join(f"{file}:{key}" for key in here) if here else "see docs/policies.md"
        raise Problem(f"{file} has {len(here)} policies, not one", hint, USAGE)
    return checked(next(iter(here.values())), name)


def checked(found: Any, name: str) -> type[Policy]:
    """A class that does not derive from `Policy` gets its defaults too."""
    if not isinstance(found, type):
        raise Problem(f"the policy '{name}' is no class", "docs/policies.md has an example", USAGE)
    policy: type[Policy] = found
    if not issubclass(found, Policy):
        policy = type(found.__name__, (found, Policy), {"__module__": found.__module__})
    missing = [what for what in ("name", "title") if not hasattr(policy, what)]
    if missing:
        hint = "docs/policies.md has an example"
        raise Problem(f"the policy '{name}' lacks {', '.join(missing)}", hint, USAGE)
    for what, value, kind, remedy in (
        ("name", policy.name, str, 'name = "..."'),
        ("title", policy.title, str, 'title = "..."'),
        ("rule", policy.rule, Rule, "rule = Rule.strict"),
        ("runs_live", policy.runs_live, bool, "runs_live = False"),
    ):
        if not isinstance(value, kind):
            raise Problem(f"the policy '{name}' has the {what} {value!r:.40}", remedy, USAGE)
    if policy.sharing not in SHARING:
        fix = f"sharing is {' or '.join(map(repr, SHARING))}"
        raise Problem(f"the policy '{name}' has the sharing {policy.sharing!r:.40}", fix, USAGE)
    every_ms = policy.every_ms
    if type(every_ms) not in (int, float) or not SHORTEST_TICK_MS <= every_ms <= LONGEST_TICK_MS:
        fix = f"set every_ms to {SHORTEST_TICK_MS} or more, {LONGEST_TICK_MS} at most"
        raise Problem(f"the policy '{name}' wants a tick every {every_ms!r:.40} ms", fix, USAGE)
    return policy
