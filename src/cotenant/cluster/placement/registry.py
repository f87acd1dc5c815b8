"""The placement policies by name."""

from __future__ import annotations

import importlib

from cotenant.cluster.placement.interface import Placement
from cotenant.errors import unknown

BUILT_IN = {
    "exclusive": "cotenant.cluster.placement.exclusive:Exclusive",
    "first-fit": "cotenant.cluster.placement.first_fit:FirstFit",
    "best-fit": "cotenant.cluster.placement.best_fit:BestFit",
    "worst-fit": "cotenant.cluster.placement.worst_fit:WorstFit",
    "kubeshare": "cotenant.cluster.placement.kubeshare:KubeShare",
    "iadeep": "cotenant.cluster.placement.iadeep:IADeep",
    "muxflow": "cotenant.cluster.placement.muxflow:MuxFlow",
    "gandiva": "cotenant.cluster.placement.gandiva:Gandiva",
}


def names() -> list[str]:
    return list(BUILT_IN)


def find(name: str) -> type[Placement]:
    if name not in BUILT_IN:
        raise unknown("placement policy", name, BUILT_IN)
    module, _, attribute = BUILT_IN[name].partition(":")
    found: type[Placement] = getattr(importlib.import_module(module), attribute)
    return found
