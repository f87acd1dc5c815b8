"""All checks of `cotenant doctor`: each checks one thing, and its finding says what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cotenant.doctor import configuration, devices, installed, probing, shared_memory
from cotenant.doctor.finding import Finding, Machine

# Each with the checks that it needs: where one of them failed, its own failure would say nothing new.
CHECKS: dict[str, tuple[Callable[[Machine], Finding], Sequence[str]]] = {
    "package": (installed.package, ()),
    "driver": (installed.driver_library, ()),
    "gpu": (devices.gpu_list, ("driver",)),
    "mps": (devices.mps, ()),
    "mig": (devices.mig, ()),
    "preload": (installed.preloads, ()),
    "settings": (configuration.settings, ()),
    "shared-memory": (shared_memory.shared_memory, ()),
    "symbols": (installed.symbols, ("package", "driver")),
    "self-test": (probing.self_test, ("package", "driver", "gpu")),
    "time-slices": (probing.time_slices, ("self-test",)),
}


def all_findings(machine: Machine) -> Iterator[Finding]:
    found: dict[str, Finding] = {}
    for name, (check, needs) in CHECKS.items():
        missing = next((need for need in needs if found[need].verdict in ("fail", "skip")), None)
        try:
            if missing is None:
                found[name] = check(machine)
            else:
                found[name] = Finding(name, "skip", f"needs what {missing} checks")
        except Exception as error:  # one broken check must not hide what the others find
            found[name] = Finding(name, "fail", f"the check itself failed: {error!r}", "report it as a bug")
        yield found[name]
