"""Programs with tenants inside one process: `with cotenant.tenant(...)` around threads and streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import pytest

from cotenant import segment

if TYPE_CHECKING:
    from tests.interposer.conftest import Tenant

    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

IMPORTS = """
import ctypes, os, sys, threading, warnings
import cotenant
from soft import check, driver
from lanes import Production, are_idle, finish, gpu, in_thread, is_done, kernel, launch, until
warnings.simplefilter('error')
"""


class Start(Protocol):
    def __call__(self, text: str, tenant_class: str = "production", **settings: str) -> Tenant: ...


class RunToEnd(Protocol):
    def __call__(self, text: str, tenant_class: str = "production", **settings: str) -> str: ...


@pytest.fixture
def starts(tenant: Callable[..., Tenant]) -> Start:
    """Starts a program with what programs of lanes need imported."""

    def start(text: str, tenant_class: str = "production", **settings: str) -> Tenant:
        return tenant(tenant_class, IMPORTS + text, **settings)

    return start


@pytest.fixture
def runs(starts: Start) -> RunToEnd:
    """Runs such a program to its end; returns what it printed."""

    def run(text: str, tenant_class: str = "production", **settings: str) -> str:
        return starts(text, tenant_class, **settings).finish()

    return run
