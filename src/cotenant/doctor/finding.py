"""What a check gets, and what it returns.

ok: as it should be. warn: sharing works, with a restriction. fail: sharing does not work. skip: not checked,
because a check that it needs has failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cotenant.gpus import nvml
from cotenant.launch import driver, native_files

Verdict = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Finding:
    name: str
    verdict: Verdict
    cause: str  # what was found, in a line
    fix: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """What all checks look at."""

    environment: Mapping[str, str]
    driver_file: Path | None
    no_driver: str
    listed: list[nvml.Gpu] | None  # by NVML

    @staticmethod
    def look(environment: Mapping[str, str]) -> Machine:
        try:
            file = driver.find(environment)
        except driver.NoDriver as error:
            return Machine(environment, None, str(error), None)
        return Machine(environment, file, "", nvml.installed(file))

    @property
    def soft(self) -> bool:
        return self.driver_file is not None and native_files.is_softgpu(self.driver_file)
