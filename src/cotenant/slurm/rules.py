"""Which class and limits a Slurm job gets. Pure.

    the rule of its QOS; else of its partition; else [default]
    its --gres=shard:N is N / shards of a GPU's memory, unless the rule says its memory itself
    its --comment may then ask for less: a lower class, less memory; and say its weight

A rule says `class`, `slowdown`, `weight`, `floor`, `memory`; it is what an administrator writes. A comment is what a
user writes: `cotenant class=opportunistic memory=20G`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cotenant import units
from cotenant.classes import TenantClass
from cotenant.errors import USAGE, Problem, nearest, unknown

DEFAULT_FILE = Path("/etc/cotenant/slurm.toml")
PREFIX = "cotenant"
MOST_SHARDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Rule:
    tenant_class: TenantClass = TenantClass.standard
    slowdown: str = ""
    weight: str = ""
    floor: str = ""
    memory: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    default: Rule | None = field(default_factory=Rule)  # None: who has no rule is no tenant
    qos: Mapping[str, Rule] = field(default_factory=dict)
    partition: Mapping[str, Rule] = field(default_factory=dict)
    comments: bool = True
    segment: str = ""
    require: bool = False
    squeue: str = "squeue"  # a path, where it is in none of the usual folders
    shards: int = 0  # of one GPU, as gres.conf has them; 0: shards are no limit


@dataclass(frozen=True, slots=True)
class SlurmJob:
    id: str
    name: str = ""
    qos: str = ""
    partition: str = ""
    comment: str = ""
    shards: int = 0  # that Slurm gave it on a node; 0: it asked for none


CONVERT = {
    "slowdown": units.slowdown,
    "weight": units.weight,
    "floor": units.floor,
    "memory": units.memory_limit,
}


def rule_for(job: SlurmJob, rules: Rules) -> Rule | None:
    """None: it is no tenant. Raises Problem for a comment that cannot be understood."""
    rule = rules.qos.get(job.qos) or rules.partition.get(job.partition) or rules.default
    if rule is None:
        return None
    if rules.shards and job.shards and not rule.memory:
        rule = replace(rule, memory=share_of(job.shards, rules.shards))
    return asked(rule, job.comment) if rules.comments else rule


def share_of(shards: int, whole: int) -> str:
    """Rounded down: the shares of all shards together are no more than a GPU."""
    return units.memory_limit(f"{min(shards, whole) * 1_000_000 // whole / 10_000:.4f}%")


def asked(rule: Rule, comment: str) -> Rule:
    words = comment.replace(",", " ").split()
    if not words or words[0].rstrip(":") != PREFIX:
        return rule
    wishes: dict[str, Any] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            raise Problem(
                f"--comment: '{word}' says nothing", "cotenant class=opportunistic memory=20G", USAGE
            )
        wishes[key] = value
    wish = read_rule(wishes, "--comment")
    if "class" in wishes:
        if wish.tenant_class < rule.tenant_class:
            hint = f"your QOS and partition give you {rule.tenant_class.name}"
            raise Problem(f"--comment: the class {wish.tenant_class.name} is not yours to take", hint, USAGE)
        rule = replace(rule, tenant_class=wish.tenant_class)
    if wish.memory:
        if rule.memory and not is_within(wish.memory, rule.memory):
            hint = f"ask for {rule.memory} or less"
            raise Problem(f"--comment: {wish.memory} of memory is more than your limit", hint, USAGE)
        rule = replace(rule, memory=wish.memory)
    if wish.slowdown:
        hint = "ask your administrator for a QOS with a promise"
        raise Problem("--comment: a promise is not yours to take", hint, USAGE)
    if wish.floor:
        raise Problem("--comment: a floor is not yours to take", "ask your administrator", USAGE)
    if rule.tenant_class is not TenantClass.production:
        rule = replace(rule, slowdown="")
    return replace(rule, weight=wish.weight) if wish.weight else rule


def is_within(wanted: str, limit: str) -> bool:
    """Of two limits of one form; a size and a share cannot be compared, and so are not."""
    if ("%" in wanted) != ("%" in limit):
        return False
    return units.encoded_limit(wanted) <= units.encoded_limit(limit)


def read_rule(content: Mapping[str, Any], where: str) -> Rule:
    known = ("class", *CONVERT)
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key not in known:
            raise Problem(
                f"{where}: unknown key '{key}'", nearest(key, known) or f"known: {', '.join(known)}", USAGE
            )
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise Problem(f"{where}: '{key}' is {value!r:.40}", 'give a text such as "5%"', USAGE)
        if key == "class":
            names = [one.name for one in TenantClass]
            if value not in names:
                raise unknown("class", str(value), names)
            found["tenant_class"] = TenantClass[str(value)]
        else:
            found[key] = CONVERT[key](str(value))
    rule = Rule(**found)
    if rule.slowdown and rule.tenant_class is not TenantClass.production:
        raise Problem(f"{where}: slowdown is for production", 'add class = "production"', USAGE)
    if rule.floor and rule.tenant_class is TenantClass.production:
        raise Problem(f"{where}: floor is for standard and opportunistic", "leave it out", USAGE)
    return rule


def read_rules(path: Path) -> Rules:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise Problem(
            f"{path} cannot be read: {error.strerror}", "docs/slurm.md has an example", USAGE
        ) from None
    except (ValueError, RecursionError) as error:  # ValueError also: a number of thousands of digits
        raise Problem(f"{path} is no TOML: {error}", "docs/slurm.md has an example", USAGE) from None
    known = [one.name for one in fields(Rules)]
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key not in known:
            raise Problem(
                f"{path}: unknown key '{key}'", nearest(key, known) or f"known: {', '.join(known)}", USAGE
            )
        if key == "default" and value is False:
            found[key] = None
        elif key == "default":
            found[key] = read_rule(expected(value, dict, key, path), f"{path}: default")
        elif key in ("qos", "partition"):
            tables = expected(value, dict, key, path)
            found[key] = {
                name: read_rule(expected(one, dict, f"{key}.{name}", path), f"{path}: {key}.{name}")
                for name, one in tables.items()
            }
        else:
            kinds: dict[str, type] = {
                "comments": bool,
                "require": bool,
                "segment": str,
                "squeue": str,
                "shards": int,
            }
            found[key] = expected(value, kinds[key], key, path)
    if not 0 <= found.get("shards", 0) <= MOST_SHARDS:
        raise Problem(f"{path}: shards is {found['shards']}", "as many as gres.conf gives one GPU", USAGE)
    return Rules(**found)


def expected(value: Any, kind: type, key: str, path: Path) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {dict: "a table", bool: "true or false", str: "a text", int: "a whole number"}
        raise Problem(
            f"{path}: '{key}' is {words[kind]}, not {value!r:.40}", "docs/slurm.md has an example", USAGE
        )
    return value
