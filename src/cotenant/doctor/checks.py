"""All checks of `cotenant doctor`: each checks one thing, and its finding says what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cotenant.doctor import devices, installed, probing, shared_memory
from cotenant.doctor.finding import Finding, Machine

CHECKS: tuple[Callable[[Machine], Finding], ...] = (
    installed.package,
    installed.driver_library,
    devices.gpu_list,
    devices.mps,
    devices.mig,
    installed.preloads,
    shared_memory.shared_memory,
    installed.symbols,
    probing.self_test,
    probing.time_slices,
)


def all_findings(machine: Machine) -> Iterator[Finding]:
    for check in CHECKS:
        try:
            yield check(machine)
        except Exception as error:  # one broken check must not hide what the others find
            name = check.__name__.replace("_", "-")
            yield Finding(name, "fail", f"the check itself failed: {error!r}", "report it as a bug")
