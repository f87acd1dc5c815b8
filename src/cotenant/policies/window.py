"""How much the tenants' counts have grown since a window began. Counts only grow, so a window is two looks at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cotenant.policies.interface import Tenant, TenantId, View


@dataclass(frozen=True, slots=True)
class Growth:
    operations: int = 0
    bursts: int = 0
    used_us: float = 0.0
    busy_us: float = 0.0
    sm_us: float = 0.0
    gap_us: float = 0.0
    blocked_us: float = 0.0
    blocking_calls: int = 0
    own_cpu_us: float = 0.0
    asleep_us: float = 0.0

    @classmethod
    def of(cls, first: Tenant, now: Tenant) -> Growth:
        """Between two looks at a tenant."""
        return cls(
            now.operations - first.operations,
            now.bursts - first.bursts,
            now.used_us - first.used_us,
            now.busy_us - first.busy_us,
            now.sm_us - first.sm_us,
            now.gap_us - first.gap_us,
            now.blocked_us - first.blocked_us,
            now.blocking_calls - first.blocking_calls,
            now.own_cpu_us - first.own_cpu_us,
            now.asleep_us - first.asleep_us,
        )

    def __add__(self, other: Growth) -> Growth:
        return Growth(
            self.operations + other.operations,
            self.bursts + other.bursts,
            self.used_us + other.used_us,
            self.busy_us + other.busy_us,
            self.sm_us + other.sm_us,
            self.gap_us + other.gap_us,
            self.blocked_us + other.blocked_us,
            self.blocking_calls + other.blocking_calls,
            self.own_cpu_us + other.own_cpu_us,
            self.asleep_us + other.asleep_us,
        )


class Window:
    """From the first look on; a tenant that comes later counts from when it was first seen."""

    def __init__(self) -> None:
        self.began_us: float | None = None
        self._first: dict[TenantId, Tenant] = {}

    def look(self, view: View) -> float:
        """Takes in who is there. Returns how long the window has lasted, in microseconds."""
        if self.began_us is None:
            self.began_us = view.now_us
        self._first = {tenant.id: self._first.get(tenant.id, tenant) for tenant in view.tenants}
        return view.now_us - self.began_us

    def growth(self, tenants: Iterable[Tenant]) -> Growth:
        return sum((Growth.of(self._first.get(one.id, one), one) for one in tenants), Growth())

    def restart(self, view: View) -> None:
        self.began_us = view.now_us
        self._first = {tenant.id: tenant for tenant in view.tenants}
