"""The forwarding assembly: one jump through a slot for every driver function, for each processor that there is.

A slot first leads to `first_N`, which tells the resolver the function's number, in a register that no caller uses
across a call and that carries no argument. What differs between the processors is in native/shim/entry.
"""

from __future__ import annotations

import re
from pathlib import Path

ENTRY = Path(__file__).resolve().parents[1] / "shim" / "entry"

HEAD = """\
/* Every driver function, forwarded: one jump through a slot. A slot first leads to the resolver, which opens the
   driver and fills them all. */
    .text
"""


def jumps(machine: str) -> tuple[str, str]:
    """Of a machine: a function's jump through {slot}, and the first call of function {number}."""
    file = ENTRY / f"{machine}.jumps"
    if not file.exists():
        there = ", ".join(sorted(one.stem for one in ENTRY.glob("*.jumps")))
        raise SystemExit(f"error: no trampolines for {machine}: there are {there}")
    _, jump, first_call = re.split(r"/\*.*?\*/\n", file.read_text(), flags=re.DOTALL)
    return jump, first_call


def assembly(machine: str, names: list[str]) -> str:
    through_slot, first_call = jumps(machine)
    # None of them touches the stack: one description of the caller's frame serves them all.
    parts = [HEAD, "    .cfi_startproc\n"]
    for number, name in enumerate(names):
        jump = through_slot.format(slot=f"(shim_slots + {8 * number})")
        parts.append(
            f"    .globl {name}\n    .type {name}, %function\n    .p2align 3\n"
            f"{name}:\n{jump}    .size {name}, .-{name}\n"
        )
    for number in range(len(names)):
        parts.append(f"first_{number}:\n{first_call.format(number=number)}")
    parts.append("    .cfi_endproc\n")
    parts.append("    .hidden shim_slots\n    .globl shim_slots\n    .data\n    .p2align 6\nshim_slots:\n")
    parts.extend(f"    .quad first_{number}\n" for number in range(len(names)))
    parts.append('    .section .note.GNU-stack,"",%progbits\n')
    return "".join(parts)
