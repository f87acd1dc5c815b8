"""What a controller decided about each tenant, for `cotenant explain`: the last few sentences, the newest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from cotenant.policies.interface import TenantId

KEPT = 20


class Journal:
    def __init__(self) -> None:
        self._of: dict[TenantId, deque[str]] = {}

    def note(self, tenant: TenantId, sentence: str) -> None:
        """A decision that is the same as the last one is not told twice."""
        told = self._of.setdefault(tenant, deque(maxlen=KEPT))
        if not told or told[0] != sentence:
            told.appendleft(sentence)

    def keep_only(self, tenants: Iterable[TenantId]) -> None:
        living = set(tenants)
        self._of = {tenant: told for tenant, told in self._of.items() if tenant in living}

    def of(self, tenant: TenantId, otherwise: str = "Nothing was decided about it yet.") -> list[str]:
        return list(self._of.get(tenant, ())) or [otherwise]
