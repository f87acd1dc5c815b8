"""What a policy sees and what it may set: the border between controllers and everything else.

A policy is an admission rule (native/admission/admission.h, which decides at every launch) and a controller (a `Policy`
in a file of its own here, ticked every `every_ms`, which sets the rule's knobs). A controller is pure: it has memory of
its own, but no clock, no file and no shared memory. The daemon ticks it for the tenants of a real GPU, the simulator
for those of a simulated one; neither asks which policy it is.

Each GPU has a controller of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from cotenant.classes import TenantClass
from cotenant.segment.wire import Rule

__all__ = [
    "SMALLEST_RATE",
    "GpuState",
    "Knobs",
    "Met",
    "Pair",
    "Policy",
    "Rule",
    "Said",
    "Tenant",
    "TenantId",
    "TenantKnobs",
    "View",
]

TenantId = int

SMALLEST_RATE = 0.001  # the segment holds thousandths, and 0 there is no limit: who is to have less is shut


@dataclass(frozen=True)  # without slots: the daemon makes 255 of them at a tick, by way of their __dict__
class Tenant:
    """One process on this GPU at a tick. Counts and times only grow."""

    id: TenantId  # the same for as long as the process lives, then never again
    tenant_class: TenantClass
    weight: float = 1.0
    slowdown: float | None = None  # the promise: 0.05 is 5 %; None: nothing was stated
    floor: float = 0.0  # share of the GPU that it was promised
    has_work: bool = False
    is_held: bool = False  # its gate is closed
    used_us: float = 0.0  # GPU time: it had work and was let through
    busy_us: float = 0.0  # it had work, whether it was let through or not
    gap_us: float = 0.0  # of busy_us, its streams were empty: it waited for its own CPU
    blocked_us: float = 0.0  # its threads waited for the GPU inside the driver, their times added up
    blocking_calls: int = 0  # and how often
    own_cpu_us: float = 0.0  # CPU time of these threads between such waits
    asleep_us: float = 0.0  # and how long they slept there
    operations: int = 0  # kernels, graphs, copies
    bursts: int = 0  # from idle to having work
    in_flight_us: float = 0.0
    # Under `orion` and `reef`: its kernels of which a profile tells class and time, and the others; 0, as simulated.
    profiled_kernels: int = 0
    unprofiled_kernels: int = 0
    mps_daemon: int = 0  # that its contexts live in: those with the same one can overlap; 0: none
    takes_sm_share: bool = True  # its kernels can be given a share of the SMs
    program: str = ""  # the name of its job, the same from run to run; empty: none, as simulated
    moved_us: float = 0.0  # when its memory was last on its way to the host or back; 0: never, as simulated
    # What only the simulator knows; live these have their defaults.
    share_request: float = 0.0  # of the GPU that it asked for, as Gemini's pods do
    share_limit: float = 1.0  # of the GPU that it may have at most
    sm_us: float = 0.0  # SMs it held, over time: sm_us / us / View.sms is its SM activity
    requests: int = 0  # requests or training iterations that have ended
    request_us: float = 0.0  # the sum of their latencies
    alone_us: float = 0.0  # how long one request runs alone
    remaining_us: float = 0.0  # GPU time until the whole job is done; 0: it never is
    in_request: bool = False  # a request or iteration is under way
    arrived_us: float = 0.0  # when the job came
    trains: bool = False
    persistent_bytes: int = 0  # memory it keeps between iterations
    ephemeral_bytes: int = 0  # memory it needs within one


@dataclass(frozen=True, slots=True)
class GpuState:
    """What NVML last said of a GPU, for all of its tenants together; None: it does not say. It is read a few times a
    second at most, so that several ticks see the same one."""

    at_us: float  # when it was read, by the clock of View.now_us
    clock_mhz: float | None = None  # of the SMs
    highest_mhz: float | None = None  # of this GPU at all; what it has with production alone a policy learns
    power_w: float | None = None
    power_limit_w: float | None = None
    slowed_by: tuple[str, ...] = ()  # why the clock is not higher: "power limit"; empty while it is idle

    @property
    def throttled(self) -> bool:
        return bool(self.slowed_by)

    def in_words(self) -> str:
        """A sentence: "The GPU runs at 1455 of 1980 MHz: power limit; it draws 698 of 700 W."."""
        clock = "The GPU's clock is not known"
        if self.clock_mhz:
            clock = f"The GPU runs at {of(self.clock_mhz, self.highest_mhz)} MHz"
        why = f": {', '.join(self.slowed_by)}" if self.slowed_by else ""
        power = f"; it draws {of(self.power_w, self.power_limit_w)} W" if self.power_w else ""
        return f"{clock}{why}{power}."


def of(figure: float, most: float | None) -> str:
    return f"{figure:.0f} of {most:.0f}" if most else f"{figure:.0f}"


@dataclass(frozen=True, slots=True)
class View:
    """All that a controller knows of its GPU."""

    now_us: float
    tenants: Sequence[Tenant]
    sms: int = 0  # 0: not known, as live
    memory_bytes: int = 0
    gpu: GpuState | None = None  # None: not known, as simulated and where there is no NVML

    def of_class(self, tenant_class: TenantClass) -> list[Tenant]:
        return [tenant for tenant in self.tenants if tenant.tenant_class is tenant_class]


@dataclass(frozen=True, slots=True)
class TenantKnobs:
    shut: bool = False  # its gate stays closed until the next tick
    tolerant: bool = False  # lower classes do not wait for it until the next tick
    rate: float | None = None  # share of the GPU's time that it may use
    # Live only of a lower class, and not of every kernel (native/tenant/detour.h). Where the job was told another one,
    # the smaller holds.
    sm_share: float | None = None  # share of the SMs that its kernels may hold
    # Simulated only.
    time_slice_us: float | None = None
    rank: float = 0.0  # an order of tenants for rules that ask for one: lower goes first
    lane: int = 0  # tenants of one lane begin their iterations one after another, where the rule asks for it


@dataclass(frozen=True, slots=True)
class Knobs:
    """What holds until the next tick. Where a field is None, or a tenant is not named, the default does."""

    rule: Rule = Rule.strict
    gate_every_us: int | None = None
    in_flight_us: int | None = None
    turn_us: int | None = None  # 0: by what a switch was measured to cost
    tenants: Mapping[TenantId, TenantKnobs] = field(default_factory=dict)
    parameters: Sequence[float] = ()  # of a modelled rule (native/admission/moment.h), at most 8


class Pair(NamedTuple):
    """Two programs that were on one GPU."""

    production: str
    beside: str
    together: bool  # in one MPS daemon


@dataclass(frozen=True, slots=True)
class Met:
    """What was observed of a pair: by how much production was slowed down."""

    overlap: float  # while the other may run at any time
    strict: float = 0.0  # while it runs in production's gaps only
    trust: float = 1.0  # 1: just now; halves with every week since
    sm_share: float = 1.0  # that the other's kernels got while it might run at any time


class Said(str):
    """A sentence about another tenant than the one that was asked about."""

    about: TenantId

    def __new__(cls, text: str, about: TenantId) -> Said:
        made = super().__new__(cls, text)
        made.about = about
        return made


class Policy:
    """What adapts: the controller of one GPU. A policy has a name and a title (a line for people); what it does not
    define is as here."""

    name: ClassVar[str]
    title: ClassVar[str]
    every_ms: ClassVar[float] = 100  # from one tick to the next, at least 10
    rule: ClassVar[Rule] = Rule.strict
    # For the simulator.
    sharing: ClassVar[str] = "timeslice"  # or "together": contexts run at once, as under MPS
    priorities: ClassVar[bool] = False  # together: streams of production are more urgent
    learns_s: ClassVar[float] = 0  # for how long it keeps the lower classes shut before it lets them in
    runs_live: ClassVar[bool] = True  # False: it needs what only the simulator knows

    def tick(self, view: View) -> Knobs:
        return Knobs(rule=self.rule)

    def recall(self, pairs: Mapping[Pair, Met]) -> None:
        """What was learned on this GPU in earlier runs, before the first tick."""

    def learned(self) -> Mapping[Pair, Met]:
        """What later runs are to recall: all of it, or what is new since this was last asked."""
        return {}

    def explain(self, tenant: TenantId) -> list[str]:
        """What it last decided about this tenant and why, in whole sentences, the newest first. "It" is the tenant, or
        of a Said the one that it is about."""
        return []
