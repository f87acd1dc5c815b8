"""Cotenant: several jobs share one GPU, and the job that matters does not notice.

From Python: status, explain, pause and resume tell and do what the commands of these names do; what a thread launches
inside `with tenant(...)` belongs to a tenant of its own (docs/python.md).
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this

if TYPE_CHECKING:
    from cotenant.api.lane import Lane, tenant
    from cotenant.api.notebook import load_ipython_extension
    from cotenant.api.results import Decision, Explanation, Gpu, OnGpu, Status, Tenant
    from cotenant.api.running import explain, pause, resume, status
    from cotenant.errors import Problem

__version__ = "0.1.0"

# Where each public name is: a plain import loads none of these.
_PLACES = {
    "Decision": "cotenant.api.results",
    "Explanation": "cotenant.api.results",
    "Gpu": "cotenant.api.results",
    "Lane": "cotenant.api.lane",
    "OnGpu": "cotenant.api.results",
    "Problem": "cotenant.errors",
    "Status": "cotenant.api.results",
    "Tenant": "cotenant.api.results",
    "explain": "cotenant.api.running",
    "load_ipython_extension": "cotenant.api.notebook",
    "pause": "cotenant.api.running",
    "resume": "cotenant.api.running",
    "status": "cotenant.api.running",
    "tenant": "cotenant.api.lane",
}

__all__ = [
    "Decision",
    "Explanation",
    "Gpu",
    "Lane",
    "OnGpu",
    "Problem",
    "Status",
    "Tenant",
    "explain",
    "load_ipython_extension",
    "pause",
    "resume",
    "status",
    "tenant",
]


if not TYPE_CHECKING:  # to a type checker every name would be there

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module 'cotenant' has no attribute '{name}'")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
