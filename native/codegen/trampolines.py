"""The forwarding assembly: one jump through a slot for every driver function, for each processor that there is.

A slot first leads to `first_N`, which tells the resolver (native/shim/entry) the function's number, in a register that
no caller uses across a call and that carries no argument.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
/* Every driver function, forwarded: one jump through a slot. A slot first leads to the resolver, which opens the
   driver and fills them all. */
    .text
"""


@dataclass(frozen=True)
class Instructions:
    """With {slot}, the place of the function's slot, and {number}, its number."""

    jump: str
    first_call: str


INSTRUCTIONS = {
    "x86_64": Instructions(
        jump="    jmp *{slot}(%rip)\n",
        first_call="    movl ${number}, %r11d\n    jmp shim_first_call\n",
    ),
    # Another thread may be filling the slots: what it wrote before (the driver's functions, the hooks' state) must be
    # seen by whoever sees the slot, so the load is an acquire. x86 loads are.
    "aarch64": Instructions(
        jump="    adrp x16, {slot}\n    add x16, x16, #:lo12:{slot}\n    ldar x16, [x16]\n    br x16\n",
        first_call="    mov w17, #{number}\n    b shim_first_call\n",
    ),
}


def assembly(machine: str, names: list[str]) -> str:
    if machine not in INSTRUCTIONS:
        raise SystemExit(f"error: no trampolines for {machine}: there are {', '.join(INSTRUCTIONS)}")
    write = INSTRUCTIONS[machine]
    # None of them touches the stack: one description of the caller's frame serves them all.
    parts = [HEAD, "    .cfi_startproc\n"]
    for number, name in enumerate(names):
        jump = write.jump.format(slot=f"(shim_slots + {8 * number})")
        parts.append(
            f"    .globl {name}\n    .type {name}, %function\n    .p2align 3\n"
            f"{name}:\n{jump}    .size {name}, .-{name}\n"
        )
    for number in range(len(names)):
        parts.append(f"first_{number}:\n{write.first_call.format(number=number)}")
    parts.append("    .cfi_endproc\n")
    parts.append("    .hidden shim_slots\n    .globl shim_slots\n    .data\n    .p2align 6\nshim_slots:\n")
    parts.extend(f"    .quad first_{number}\n" for number in range(len(names)))
    parts.append('    .section .note.GNU-stack,"",%progbits\n')
    return "".join(parts)
