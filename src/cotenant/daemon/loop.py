"""The daemon's loop: for each GPU a view of its tenants to a controller, and its knobs back into shared memory.

While some GPU has several tenants, every `every_ms` of the policy; otherwise every
100 ms. What holds for one tenant (shut, tolerant) is written as a moment in the near future, so that it runs out by
itself should the daemon die.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from cotenant.daemon.attachment import Attachment, Member
from cotenant.daemon.report import Report
from cotenant.errors import Problem
from cotenant.policies import registry
from cotenant.policies.interface import Controller, Knobs, View
from cotenant.policies.strict import Strict

CALM_MS = 100.0
SHORTEST_HOLD_MS = 100.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Daemon:
    def __init__(self, attachment: Attachment, policy: str, linger_seconds: float) -> None:
        """`policy` is for as long as the segment names none."""
        self.attachment = attachment
        self.default_policy = policy
        self.linger_seconds = linger_seconds
        self.report = Report(attachment.path)
        self.wanted: str | None = None  # what the segment named at the last tick
        self.policy: type[Controller] = Strict
        self.controllers: dict[int, Controller] = {}
        self.problem = ""
        self.needed_at = time.monotonic()  # when somebody last was there

    def run(self) -> None:
        """Until it is told to end, or nobody needs it any more."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            next_tick = time.monotonic()
            while self.is_needed():
                next_tick = max(next_tick, time.monotonic()) + self.tick() / 1000
                if signal.sigtimedwait(SIGNALS, max(0.0, next_tick - time.monotonic())):
                    break
        finally:
            self.attachment.reset()
            self.report.remove()

    def tick(self) -> float:
        """Says how many milliseconds there are until the next."""
        self.follow_choice()
        members = self.attachment.members()
        if members:
            self.needed_at = time.monotonic()
        views = {gpu: self.attachment.view(gpu, members) for gpu in self.attachment.gpus()}
        contended = any(is_contended(view) for view in views.values())
        pause_ms = self.policy.every_ms if contended else max(self.policy.every_ms, CALM_MS)
        hold_ns = round(max(3 * pause_ms, SHORTEST_HOLD_MS) * 1e6)
        decided = {gpu: self.decide(gpu, view) for gpu, view in views.items() if view.tenants}
        self.attachment.turn_all(decided.values())
        for gpu, knobs in decided.items():
            self.attachment.turn(gpu, members, knobs.tenants, hold_ns)
        if self.report.is_due():
            self.show(members, views)
        return pause_ms

    def decide(self, gpu: int, view: View) -> Knobs:
        try:
            if gpu not in self.controllers:
                self.controllers[gpu] = self.policy()
            return self.controllers[gpu].tick(view)
        except Exception as error:  # a policy is anybody's code; the tenants must not suffer
            self.fall_back(f"the policy {self.policy.name} failed ({error!r}): strict goes on in its place")
            return Strict().tick(view)

    def follow_choice(self) -> None:
        wanted = self.attachment.policy
        if wanted == self.wanted:
            return
        self.wanted = wanted
        self.controllers = {}
        self.attachment.reset()
        try:
            self.policy, self.problem = registry.find_live(wanted or self.default_policy), ""
        except Problem as problem:
            self.fall_back(f"{problem.message}: strict goes on in its place")

    def fall_back(self, problem: str) -> None:
        self.policy, self.problem, self.controllers = Strict, problem, {}

    def show(self, members: list[Member], views: dict[int, View]) -> None:
        who = {member.id: (member.slot.pid, member.slot.started) for member in members}
        lines = {}
        for gpu, view in views.items():
            for tenant in view.tenants if gpu in self.controllers else ():
                lines[(*who[tenant.id], gpu)] = self.explained(gpu, tenant.id)
        self.report.show(self.policy.name, self.problem, lines)

    def explained(self, gpu: int, tenant: int) -> list[str]:
        try:
            return self.controllers[gpu].explain(tenant)
        except Exception as error:  # as above
            return [f"The policy {self.policy.name} cannot say what it does: {error!r}."]

    def is_needed(self) -> bool:
        if time.monotonic() - self.needed_at < self.linger_seconds:
            return True
        # A job that has not used its GPU yet is no tenant.
        if self.attachment.is_current() and anybody_under(self.attachment.path):
            self.needed_at = time.monotonic()
            return True
        return False


def is_contended(view: View) -> bool:
    return len(view.tenants) > 1


def anybody_under(path: Path) -> bool:
    """Whether some process was started for this segment, by `run` or by one that `run` started."""
    mark = f"COTENANT_SEGMENT={path}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in environment and any(one.startswith(b"COTENANT_TENANT=") for one in environment):
                return True
    return False
