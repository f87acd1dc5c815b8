"""`cotenant segment`: an administrator's shared memory for the tenants of several users (docs/two-users.md)."""

from __future__ import annotations

import functools
import grp
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from cotenant import classes, segment, units
from cotenant.cli import Nested
from cotenant.errors import USAGE, Problem, narrate, unknown
from cotenant.options import output_option
from cotenant.segment.folder import create_folder
from cotenant.segment.grants import Grant, Subject, grants_in, merged, write_grants
from cotenant.segment.layout import uuid_bytes
from cotenant.segment.wire import SubjectKind
from cotenant.terminal import console, printable, say

Value = TypeVar("Value")

WHO_HINT = "WHO is a user's name or number, @ and a group's, or * for everybody who is not named"
NAMED_SEGMENT_HINT = "`cotenant segment create` creates a segment for several users"


def of_a_folder(function: Callable[..., None]) -> Callable[..., None]:
    """FOLDER, or what --segment and its variable name, as for the other commands."""

    @click.argument("folder", metavar="[FOLDER]", type=click.Path(path_type=Path), required=False)
    @click.option(
        "--segment",
        "named",
        metavar="FOLDER",
        envvar="COTENANT_SEGMENT",
        type=click.Path(readable=False, path_type=Path),
        help=f"The same as FOLDER.  [default: {segment.SHARED}]",
    )
    @functools.wraps(function)
    def with_folder(folder: Path | None, named: Path | None, **others: Any) -> None:
        function((folder or named or segment.SHARED).absolute(), **others)

    return with_folder


def allow_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--allow",
        "allowed",
        multiple=True,
        metavar="WHO=CLASS",
        envvar="COTENANT_SEGMENT_ALLOW",
        help="The highest class that the jobs of WHO may have: a user, @group, or * for everybody else.",
    )(function)


def limit_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--limit",
        "limits",
        multiple=True,
        metavar="WHO=SIZE",
        envvar="COTENANT_SEGMENT_LIMIT",
        help="The most that a user's jobs together may allocate of each GPU's memory: 20G, or 30%.",
    )(function)


@click.group(
    "segment",
    cls=Nested,
    short_help="Share a GPU between users.",
    epilog="""\b
Examples:
  sudo cotenant segment create --allow alice=production --limit bob=20G
  cotenant segment show
  sudo cotenant segment grants --allow bob=standard
  sudo cotenant segment clean""",
)
def command() -> None:
    """Create, show and clean an administrator's segment, in which the tenants of several users share GPUs.

    Without one, each user has a segment of their own. FOLDER is COTENANT_SEGMENT or /dev/shm/cotenant.shared: if the
    latter belongs to root, all users' jobs use it.
    """


@command.command(
    "create",
    short_help="Create a segment.",
    epilog="""\b
Examples:
  sudo cotenant segment create --allow alice=production --limit bob=20G
  sudo cotenant segment create --group gpu-users --allow @serving=production
  sudo cotenant segment create --gpu GPU-4c8f63a1-9d0e-4b2b-8f06-2f3a5b1f7c11""",
)
@of_a_folder
@click.option(
    "--group",
    metavar="GROUP",
    envvar="COTENANT_SEGMENT_GROUP",
    help="Only members of this group may use the segment.  [default: all users]",
)
@allow_option
@limit_option
@click.option(
    "--gpu",
    "uuids",
    multiple=True,
    metavar="UUID",
    envvar="COTENANT_SEGMENT_GPU",
    help="A GPU that is shared, as nvidia-smi -L names it.  [default: all that NVML lists]",
)
def create(
    folder: Path, group: str | None, allowed: Sequence[str], limits: Sequence[str], uuids: Sequence[str]
) -> None:
    """Create a segment for several users.

    Once --allow names a subject, everybody who is not named is standard at most; --allow '*=CLASS' changes that.
    """
    best = by_who(allowed, class_value)
    if best and Subject(SubjectKind.everybody) not in best:
        best[Subject(SubjectKind.everybody)] = classes.TenantClass.standard.value
    grants = merged((), best, by_who(limits, units.encoded_limit))
    check_room(grants)
    shared_gpus = [uuid_value(text) for text in uuids] or installed_gpus()
    if len(shared_gpus) > segment.GPUS:
        raise Problem(f"{len(shared_gpus)} GPUs are too many", f"a segment holds {segment.GPUS}", USAGE)
    group_id = None if group is None else id_of_group(group)
    try:
        create_folder(folder, group_id, grants, shared_gpus)
    except FileExistsError:
        hint = "`cotenant segment grants` changes its grants; remove the folder when no tenant runs"
        raise Problem(f"{folder} exists already", hint) from None
    except (OSError, segment.BadSegment) as error:
        raise Problem(
            f"cannot create {folder}: {error}", "check that its parent folder exists and is writable"
        ) from None
    narrate(f"{folder}: {count(len(shared_gpus), 'GPU')}, {count(len(grants), 'grant')}")
    if not segment.is_in_memory(folder):
        narrate(
            "cotenant: it is on a disk, where NVIDIA's driver maps no gates: make it on a tmpfs such as /dev/shm"
        )


@command.command(
    "grants",
    short_help="Show or change the grants.",
    epilog="""\b
Examples:
  cotenant segment grants
  sudo cotenant segment grants --allow bob=standard --limit bob=40G
  sudo cotenant segment grants --limit bob=none --allow '*=any'""",
)
@of_a_folder
@allow_option
@limit_option
@output_option("segment")
def grants(folder: Path, allowed: Sequence[str], limits: Sequence[str], output: str) -> None:
    """Show what each subject is granted, or change it: --allow and --limit change the grants of the subjects that they
    name, and `any` and `none` take a grant back.

    The change also applies to tenants that run already.
    """
    best = by_who(allowed, lambda text: None if text == "any" else class_value(text))
    most = by_who(limits, units.encoded_limit_or_none)
    with opened(folder) as there:
        if best or most:
            change(there, best, most)
        else:
            print_as(output, {"grants": told(grants_in(there.read_header()))})


def change(
    there: segment.FolderSegment, best: Mapping[Subject, int | None], most: Mapping[Subject, int]
) -> None:
    with there.writable_header() as header:
        after = merged(grants_in(header), best, most)
        check_room(after)
        write_grants(header, after)
    narrate(f"{there.path}: {count(len(after), 'grant')}")


@command.command(
    "clean",
    short_help="Reap the slots of dead processes.",
    epilog="""\b
Examples:
  sudo cotenant segment clean
  cotenant segment clean /dev/shm/team""",
)
@of_a_folder
def clean(folder: Path) -> None:
    """Remove the slots of processes that have ended, and files that are no slots.

    Tenants do that for their own user; this command does it for all users whose files the caller may remove.
    """
    with opened(folder) as there:
        removed, kept = there.clean()
    narrate(f"{folder}: removed {count(len(removed), 'file')}")
    if kept:
        raise Problem(f"{count(len(kept), 'file')} could not be removed", "their owner or root can")


@command.command(
    "show",
    short_help="Show grants, GPUs and slots.",
    epilog="""\b
Examples:
  cotenant segment show
  cotenant segment show -o json /dev/shm/team | jq .slots""",
)
@of_a_folder
@output_option("segment")
def show(folder: Path, output: str) -> None:
    """Show the grants, the GPUs and the slots of a segment."""
    with opened(folder) as there:
        about = gathered(there)
    print_as(output, about)


def gathered(there: segment.FolderSegment) -> dict[str, Any]:
    header = there.read_header()
    return {
        "segment": str(there.path),
        "administrator": user_name(there.path.lstat().st_uid),
        "policy": printable(header.policy.decode(errors="replace")),
        "gpus": [segment.uuid_text(bytes(gpu.uuid)) for gpu in header.gpus if gpu.known == segment.GPU_VALID],
        "grants": told(grants_in(header)),
        "slots": [
            {
                "slot": found.index,
                "user": user_name(found.uid),
                "pid": found.pid,
                "program": printable(found.slot.name.decode(errors="replace")),
                "class": classes.name_of(found.slot.tenant_class),
                "state": "live" if found.is_live else "lost",
            }
            for found in there.slot_files(header)
        ],
    }


def told(grants: Sequence[Grant]) -> list[dict[str, str | None]]:
    return [
        {
            "who": who_text(grant.subject),
            "class": None if grant.best_class is None else classes.name_of(grant.best_class),
            "memory": units.limit_written(grant.memory_limit) if grant.memory_limit else None,
        }
        for grant in grants
    ]


def print_as(output: str, about: Mapping[str, Any]) -> None:
    if output == "json":
        import json

        say(json.dumps(about, indent=2))
    else:
        print_table(about)


def print_table(about: Mapping[str, Any]) -> None:
    from rich.table import Table

    out = console(width=400)
    if "segment" in about:
        out.print(f"{about['segment']}, of {about['administrator']}")
    for number, uuid in enumerate(about.get("gpus", ())):
        out.print(f"GPU {number}: {uuid}")
    for kind, none in (("grants", "no grants"), ("slots", "no tenants")):
        if kind not in about:
            continue
        rows = about[kind]
        if not rows:
            out.print(none)
            continue
        table = Table(box=None, pad_edge=False)
        for name in rows[0]:
            table.add_column(
                name.upper(), no_wrap=True, justify="right" if name in ("slot", "pid") else "left"
            )
        for row in rows:
            table.add_row(*("-" if value is None else str(value) for value in row.values()))
        out.print(table)


@contextmanager
def opened(folder: Path) -> Iterator[segment.FolderSegment]:
    """What cannot be read is one line with its remedy."""
    try:
        there = segment.open(folder)
        if not isinstance(there, segment.FolderSegment):
            folder.lstat()
            hint = f"`cotenant status` shows its tenants; {NAMED_SEGMENT_HINT}"
            raise Problem(f"{folder} is no administrator's segment", hint, USAGE)
        yield there
    except FileNotFoundError:
        raise Problem(f"there is no segment {folder}", NAMED_SEGMENT_HINT) from None
    except (OSError, segment.BadSegment) as error:
        raise Problem(str(error), "its owner and root may; `cotenant segment show` names the owner") from None


def by_who(settings: Sequence[str], value: Callable[[str], Value]) -> dict[Subject, Value]:
    found: dict[Subject, Value] = {}
    for setting in settings:
        name, equals, said = setting.partition("=")
        if not equals:
            raise Problem(f"'{setting}' names no value", "write WHO=WHAT; " + WHO_HINT, USAGE)
        who = who_value(name)
        if who in found:
            raise Problem(f"'{name}' is named twice", WHO_HINT, USAGE)
        found[who] = value(said)
    return found


def who_value(name: str) -> Subject:
    if name == "*":
        return Subject(SubjectKind.everybody)
    if name.startswith("@"):
        return Subject(SubjectKind.group, id_of_group(name[1:]))
    if name.isascii() and name.isdigit():
        return Subject(SubjectKind.user, number(name))
    try:
        return Subject(SubjectKind.user, pwd.getpwnam(name).pw_uid)
    except KeyError:
        raise Problem(f"unknown user '{name}'", WHO_HINT, USAGE) from None


def id_of_group(name: str) -> int:
    if name.isascii() and name.isdigit():
        return number(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise Problem(f"unknown group '{name}'", "give a group's name or number", USAGE) from None


def number(text: str) -> int:
    found = units.whole(text)
    if found is None or found >= 2**32:
        raise Problem(f"{text} is no user's and no group's number", WHO_HINT, USAGE)
    return found


def class_value(text: str) -> int:
    if text not in classes.NAMES:
        raise unknown("class", text, classes.NAMES)
    return classes.TenantClass[text].value


def uuid_value(text: str) -> bytes:
    found = uuid_bytes(text)
    if found is None:
        raise Problem(f"'{text}' is no GPU's UUID", "`nvidia-smi -L` lists them: GPU-4c8f63a1-...", USAGE)
    return found


def installed_gpus() -> list[bytes]:
    from cotenant.gpus import nvml
    from cotenant.launch import driver

    try:
        known = nvml.installed(driver.find(os.environ)) or []
    except driver.NoDriver:
        known = []
    for gpu in known:
        if gpu.problem:
            narrate(f"GPU {gpu.index} does not answer ({gpu.problem}): it is left out")
    well = [gpu for gpu in known if not gpu.problem]
    uuids = [uuid for gpu in well for uuid in (gpu.instances if gpu.mig else (gpu.uuid,))]
    if not uuids:
        raise Problem("no GPU was found", "name them with --gpu UUID")
    return [uuid_value(uuid) for uuid in uuids]


def check_room(grants: Sequence[Grant]) -> None:
    if len(grants) > segment.GRANTS:
        hint = f"a segment holds {segment.GRANTS}: name groups instead of users"
        raise Problem(f"{len(grants)} grants are too many", hint, USAGE)


def who_text(subject: Subject) -> str:
    if subject.kind is SubjectKind.everybody:
        return "*"
    return user_name(subject.id) if subject.kind is SubjectKind.user else "@" + group_name(subject.id)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
