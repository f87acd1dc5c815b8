"""The classes of tenants: a lower value goes first. `OneOf` (options.py) parses a class on the command line, and
native/tenant/settings.cpp parses COTENANT_CLASS inside a tenant."""

from __future__ import annotations

from cotenant.segment.wire import Class as TenantClass

__all__ = ["NAMES", "TenantClass"]

NAMES = tuple(c.name for c in TenantClass)


def name_of(value: int) -> str:
    """A slot may say anything."""
    return NAMES[value] if 0 <= value < len(NAMES) else f"class {value}"
