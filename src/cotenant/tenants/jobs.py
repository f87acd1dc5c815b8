"""Jobs: a `cotenant run` with all its processes, and which of them a user means by a name, an id or a PID."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cotenant import segment, units
from cotenant.errors import Problem, nearest
from cotenant.segment import Tenant

NO_RUN = bytes(16).hex()
ID_SHOWN = 8  # digits; a PID has at most 7


@dataclass(frozen=True)
class Job:
    tenants: tuple[Tenant, ...]  # the eldest first; not none

    @property
    def name(self) -> str:
        return self.tenants[0].job

    @property
    def id(self) -> str:
        """Empty: no `cotenant run` has started it."""
        run_id = self.tenants[0].run_id
        return "" if run_id == NO_RUN else run_id

    @property
    def uid(self) -> int:
        return self.tenants[0].uid

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in self.tenants]

    def __str__(self) -> str:
        shown, more = self.pids[:3], len(self.tenants) - 3
        others = f" and {more} more" if more > 0 else ""
        return f"{self.name} ({', '.join(map(str, shown))}{others})"

    @property
    def in_a_list(self) -> str:
        """With what tells it from others of its name."""
        handle = self.id[:ID_SHOWN] or str(self.pids[0])
        return f"{handle} ({self.name} of {user_name(self.uid)}, PID {self.pids[0]})"


def named(tenant: Tenant) -> str:
    """One process, for a sentence."""
    return f"{tenant.job} ({tenant.pid})"


def of(tenants: Iterable[Tenant]) -> list[Job]:
    """A tenant writes its own slot: only those of one user can be of one job."""
    by_run: dict[tuple[int, str], list[Tenant]] = {}
    for one in tenants:
        own = one.run_id if one.run_id != NO_RUN else f"process {one.pid} {one.started}"
        by_run.setdefault((one.uid, own), []).append(one)
    return [Job(tuple(sorted(found, key=lambda one: (one.started, one.pid)))) for found in by_run.values()]


def look(path: Path) -> segment.Snapshot:
    """Without a segment there are no tenants: the first one makes it. Raises Problem for what is no segment."""
    try:
        return segment.read(path)
    except FileNotFoundError:
        return segment.Snapshot({}, (), 0)
    except segment.BadSegment as error:
        raise Problem(str(error), segment.remedy(path)) from None
    except OSError as error:
        hint = "run this as the segment's owner, or name another with --segment"
        raise Problem(f"cannot read {path}: {error.strerror}", hint) from None


def read(path: Path) -> tuple[Tenant, ...]:
    """The tenants of a segment; none where there is none yet."""
    return look(path).tenants


def with_pid(pid: int, tenants: Sequence[Tenant]) -> Tenant | None:
    try:
        return segment.with_pid(pid, tenants)
    except segment.BadSegment as error:
        raise Problem(str(error), "one of them lies: `cotenant segment show` names their users") from None


def ask(path: Path, wanted: Mapping[int, Mapping[str, int]]) -> None:
    """Writes requests, by PID, into the tenants' slots; into none where one of them is not the caller's to change.
    Those that have ended are passed over."""
    try:
        for pid in wanted:
            ask_one(path, pid, {})
        for pid, requests in wanted.items():
            ask_one(path, pid, requests)
    except FileNotFoundError:
        raise Problem(f"there is no segment {path} any more") from None
    except segment.NotYours as error:
        hint = "that user and root can change it, and those that `cotenant daemon --admins GROUP` lets do it"
        raise Problem(str(error), hint) from None
    except segment.BadSegment as error:
        raise Problem(str(error), segment.remedy(path)) from None


def ask_one(path: Path, pid: int, requests: Mapping[str, int]) -> None:
    try:
        segment.ask(path, pid, requests)
    except segment.NotYours as refused:
        # An administrator who is not root: the daemon decides (daemon/control.py).
        from cotenant.daemon import control

        if not control.is_there(path):
            raise
        slot = refused.found
        told = {"slot": slot.index, "pid": int(slot.slot.pid), "started": slot.started}
        control.send(path, {"do": "ask", "wanted": dict(requests)} | told)


def select(words: Sequence[str], tenants: Sequence[Tenant]) -> list[Job]:
    """The jobs that these words mean, each once. Raises Problem where one means none or several."""
    jobs = of(tenants)
    chosen = [meant(word, jobs) for word in words]
    return [job for job in jobs if any(job is one for one in chosen)]


def meant(word: str, jobs: Sequence[Job]) -> Job:
    """By a PID, a name, an id or the beginning of one, in this order. What may be a mistyped PID is no beginning of an
    id. Of several, the caller's own count first: nobody can hide another user's job behind its name."""
    is_number = word.isascii() and word.isdecimal()
    pid = units.whole(word)
    found = [] if pid is None else list(with_process(pid, jobs))
    found = found or [job for job in jobs if job.name == word]
    if len(word) >= (ID_SHOWN if is_number else 1):
        found = found or [job for job in jobs if job.id.startswith(word.lower())]
    found = [job for job in found if job.uid == os.geteuid()] or found
    if len(found) > 1:
        listed = ", ".join(job.in_a_list for job in found[:5]) + (", ..." if len(found) > 5 else "")
        raise Problem(f"'{word}' means {len(found)} jobs", f"name one by its id: {listed}")
    if not found:
        known = ", ".join(map(str, jobs)) or "no tenants"
        hint = "" if word.isdecimal() else nearest(word, {job.name for job in jobs})
        raise Problem(f"no job has the name, id or PID '{word}'", hint or f"there are {known}")
    return found[0]


def with_process(pid: int, jobs: Sequence[Job]) -> Iterator[Job]:
    """The job that the process belongs to; else those of which it has started a process: as torchrun, bash, srun do."""
    tenant = with_pid(pid, [one for job in jobs for one in job.tenants])
    if tenant is not None:
        yield from (job for job in jobs if tenant in job.tenants)
        return
    uid, run_id = owner_of(pid), run_id_of(pid)
    own = [job for job in jobs if run_id and (job.uid, job.id) == (uid, run_id)]
    yield from own or [job for job in jobs if pid in above(job)]


def above(job: Job) -> set[int]:
    """The processes that have started those of the job, and those above them. Nobody starts a lane of a process."""
    return {
        pid for one in job.tenants if segment.is_process(one) and not one.lane for pid in ancestors(one.pid)
    }


def ancestors(pid: int) -> Iterator[int]:
    """Without init, which is everybody's."""
    seen = {0, 1}
    while (pid := parent_of(pid)) not in seen:
        seen.add(pid)
        yield pid


def parent_of(pid: int) -> int:
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def stat_of(pid: int) -> list[str]:
    """From the state on; nothing where the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def owner_of(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


def run_id_of(pid: int) -> str:
    """Empty: it belongs to none, or to another user, whose environment cannot be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    name = b"COTENANT_RUN_ID="
    return next((os.fsdecode(one[len(name) :]) for one in entries if one.startswith(name)), "")


def first_process(tenant: Tenant) -> int:
    """The process that `cotenant run` became, as far as it can be seen; 0: the tenant's processes are not here."""
    if not segment.is_process(tenant):
        return 0
    first = tenant.pid
    for pid in ancestors(tenant.pid) if tenant.run_id != NO_RUN else ():
        if run_id_of(pid) != tenant.run_id:
            break
        first = pid
    return first


def command_line(tenant: Tenant) -> str | None:
    """Of its job: what `cotenant run` was given."""
    import shlex

    pid = first_process(tenant)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1] if pid else []
    except OSError:
        return None
    return shlex.join(os.fsdecode(word) for word in words) or None


def began_at(tenant: Tenant) -> str | None:
    """When its job began: local time, as ISO 8601 has it."""
    pid = first_process(tenant)
    fields = stat_of(pid) if pid else []
    if not fields:
        return None
    ago = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(round(time.time() - ago)))


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def words_for_completion(path: Path) -> Iterator[str]:
    """Names, and ids as far as a user would type them."""
    jobs = of(read(path))
    yield from dict.fromkeys(job.name for job in jobs)
    yield from (job.id[:ID_SHOWN] for job in jobs if job.id)
