"""Writes figure_types.py (`make figures`): every figure of cotenant.figures as a field with its type."""

from __future__ import annotations

import textwrap

from cotenant.api import field_name
from cotenant.figures import FIGURES, Figure, Of
from cotenant.terminal import say

BY_UNIT = {"": "str", "yes or no": "bool", "seconds": "float", "ratio": "float", "MHz": "float", "W": "float"}
# Where the unit does not say it.
BY_NAME = {
    "weight": "float",
    "memory_limit": "str | None",
    "mps": "str | None",
    "nvml_bytes": "int | None",
    "command": "str | None",
    "began_at": "str | None",
    "slowdown": "float | None",
    "refusal": "str | None",
    "sms_refused": "str | None",
    "evicted_for": "str | None",
    "gpu_share": "float | None",
    "promise_kept": "bool | None",
    "promise_seconds": "float | None",
    "share_asked": "float | None",
    "share_got": "float | None",
    "wait_us": "float | None",
    "wait_p50_us": "float | None",
    "wait_p99_us": "float | None",
    "operation_us": "float | None",
    "operation_alone_us": "float | None",
    "slowed_by": "tuple[str, ...]",
    "in_words": "str",
    "outsider_pids": "tuple[int, ...] | None",
    "outside_in_words": "tuple[str, ...]",
}
CLASSES = {
    Of.tenant: ("TenantFigures", "Of one tenant."),
    Of.on_gpu: ("OnGpuFigures", "Of one tenant on one GPU that it has used."),
    Of.gpu: ("GpuFigures", "Of one GPU."),
}
HEAD = '''"""A figure is a field, under the name that `status -o json` gives it. `make figures` writes this file."""

from __future__ import annotations

from dataclasses import dataclass
'''
COLUMNS = 110


def type_of(figure: Figure) -> str:
    known = BY_UNIT.get(figure.unit, "int")
    return BY_NAME.get(figure.name) or (f"{known} | None" if figure.of is Of.gpu else known)


def text() -> str:
    lines = [HEAD]
    for of, (name, meaning) in CLASSES.items():
        lines += ["", "@dataclass(frozen=True, kw_only=True)", f"class {name}:", f'    """{meaning}"""', ""]
        for figure in FIGURES:
            if figure.of is of and figure.in_data:
                lines.append(f"    {field_name(figure.name)}: {type_of(figure)}")
                lines += [f"    {line}" for line in described(figure.help)]
        lines.append("")
    return "\n".join(lines).rstrip("\n")


def described(meaning: str) -> list[str]:
    return textwrap.wrap(f'"""{meaning}"""', COLUMNS - 4)


if __name__ == "__main__":
    say(text())
