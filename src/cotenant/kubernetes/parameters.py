"""What a claim says to Cotenant beyond its capacities: the opaque parameters of its configuration.

    config:
    - opaque:
        driver: cotenant.dev
        parameters:
          apiVersion: cotenant.dev/v1
          kind: TenantParameters
          promise: 5%      # production: by how much it may slow down
          weight: 2        # among the tenants of its class
          floor: 10%       # other classes: the share of the GPU that it gets whatever higher classes do

The class stands in the DeviceClass's own configuration, kind TenantClass, which the scheduler copies into the
claim's allocation: a claim cannot choose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cotenant import classes, units
from cotenant.errors import USAGE, Problem, nearest, unknown
from cotenant.kubernetes.names import API_VERSION

KIND, CLASS_KIND = "TenantParameters", "TenantClass"
# Words of our command line and of other projects for the same things.
OTHER_WORDS = {"slowdown": "promise", "slo": "promise", "priority": "weight", "share": "floor"}


@dataclass(frozen=True)
class Parameters:
    """None: not said."""

    promise: str | None = None
    weight: str | None = None
    floor: str | None = None

    def over(self, below: Parameters) -> Parameters:
        """These, and what they leave open from below."""
        return Parameters(
            self.promise or below.promise, self.weight or below.weight, self.floor or below.floor
        )

    def check_for(self, tenant_class: str) -> None:
        is_production = tenant_class == classes.TenantClass.production.name
        if self.promise and not is_production:
            raise Problem(
                f"promise is for production claims, not for {tenant_class}",
                "use the DeviceClass production.cotenant.dev, or leave it out",
                USAGE,
            )
        if self.floor and is_production:
            raise Problem("floor is for standard and opportunistic claims", "leave it out", USAGE)

    def written(self) -> dict[str, Any]:
        """As a claim's configuration has them."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"apiVersion": API_VERSION, "kind": KIND} | {name: text for name, text in said.items() if text}


KEYS = tuple(field.name for field in fields(Parameters))


def parse(given: Mapping[str, Any]) -> Parameters:
    """Of a claim. Raises Problem."""
    check_kind(given, KIND)
    for key in given:
        if key == "class":
            hint = "the DeviceClass says it: deviceClassName: production.cotenant.dev"
            raise Problem("a claim's parameters cannot choose the class", hint, USAGE)
        if key not in (*KEYS, "apiVersion", "kind"):
            meant = OTHER_WORDS.get(key.casefold())
            hint = f"did you mean '{meant}'?" if meant else nearest(key, KEYS)
            raise Problem(f"unknown parameter '{key}'", hint or f"known: {', '.join(KEYS)}", USAGE)
    checks = {"promise": units.slowdown, "weight": units.weight, "floor": units.floor}
    return Parameters(**{key: checks[key](text_of(key, given[key])) for key in KEYS if key in given})


def parse_class(given: Mapping[str, Any]) -> str:
    """Of a DeviceClass. Raises Problem."""
    check_kind(given, CLASS_KIND)
    said = str(given.get("class"))
    if said not in classes.NAMES:
        raise unknown("class", said, classes.NAMES)
    return said


def check_kind(given: Mapping[str, Any], kind: str) -> None:
    version = given.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        raise Problem(
            f"unknown apiVersion '{version}' of parameters", f"this driver knows {API_VERSION}", USAGE
        )
    if given.get("kind", kind) != kind:
        raise unknown("kind of parameters", str(given["kind"]), (kind,))


def text_of(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Problem(f"{key} has to be a number or a text, not {value!r}", "such as 5% or 0.05", USAGE)
    return str(value)
