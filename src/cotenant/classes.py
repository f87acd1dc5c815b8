"""How much a tenant matters. The values are those of `Class` in native/wire/wire.h: lower goes first."""

from __future__ import annotations

from enum import IntEnum


class TenantClass(IntEnum):
    production = 0
    standard = 1
    opportunistic = 2


NAMES = tuple(c.name for c in TenantClass)
