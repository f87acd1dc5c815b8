"""guard, and what it saw and did at every tick, as lines of JSON in the file CONVERGE_TICKS: for live.py's daemon."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cotenant.classes import TenantClass
from cotenant.policies.guard.policy import Guard
from cotenant.policies.guard.position import STRICT
from cotenant.policies.interface import Knobs, View


class Watched(Guard):
    name = "watched"
    title = "guard, watched"

    def tick(self, view: View) -> Knobs:
        knobs = super().tick(view)
        production = view.of_class(TenantClass.production)
        others = [one for one in view.tenants if one not in production]
        job = self.jobs.get(production[0].id) if production else None
        if job:
            seen = {
                "at_s": view.now_us / 1e6,
                "position": job.position if others else STRICT,
                "busy_us": production[0].busy_us,
                "operations": production[0].operations,
                "used_us": sum(one.used_us for one in others),
                "here": [one.program for one in others],
            }
            with Path(os.environ["CONVERGE_TICKS"]).open("a") as file:
                file.write(json.dumps(seen) + "\n")
        return knobs
