"""What things are called in the cluster."""

from __future__ import annotations

from cotenant import classes

DRIVER = "cotenant.dev"
API_VERSION = f"{DRIVER}/v1"

MEMORY, OVERFLOW, SHARE, TENANTS = "memory", "overflow", "share", "tenants"
CAPACITIES = (MEMORY, OVERFLOW, SHARE, TENANTS)

CLASS_ANNOTATION = f"{DRIVER}/class"
MEMORY_ANNOTATION = f"{DRIVER}/memory"
SLOWDOWN_ANNOTATION = f"{DRIVER}/slowdown"
ON_EVICTION_ANNOTATION = f"{DRIVER}/on-eviction"
RUN_ON_EVICTION, PAUSE_ON_EVICTION = "run", "pause"

WORKLOAD_LABEL = f"{DRIVER}/workload"  # what a pod computes, by which interference is known

NAMESPACE = "cotenant-system"
LABELS = {"app.kubernetes.io/name": "cotenant", "app.kubernetes.io/managed-by": "cotenant"}


def device_class(tenant_class: str) -> str:
    """The DeviceClass of a class of tenants."""
    return f"{tenant_class}.{DRIVER}"


DEVICE_CLASSES = tuple(device_class(name) for name in classes.NAMES)


def priority_class(tenant_class: str) -> str:
    return f"cotenant-{tenant_class}"
