    .text
    .globl call_with
    .type call_with, %function
    .p2align 2
call_with:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp x19, x20, [sp, #16]
    .cfi_offset 19, -16
    .cfi_offset 20, -8
    mov x29, sp
    mov x19, x0
    mov x20, x1
    mov x9, sp
    adrp x10, called_with_stack
    str x9, [x10, #:lo12:called_with_stack]
    adr x9, 1f
    adrp x10, called_with_link
    str x9, [x10, #:lo12:called_with_link]
    ldp q0, q1, [x19, #80]
    ldp q2, q3, [x19, #112]
    ldp q4, q5, [x19, #144]
    ldp q6, q7, [x19, #176]
    ldp x0, x1, [x19]
    ldp x2, x3, [x19, #16]
    ldp x4, x5, [x19, #32]
    ldp x6, x7, [x19, #48]
    ldr x8, [x19, #64]
    blr x20
1:  ldp x19, x20, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 19
    .cfi_restore 20
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc

    .globl target
    .type target, %function
    .p2align 2
target:
    .cfi_startproc
    adrp x16, seen
    add x16, x16, #:lo12:seen
    stp x0, x1, [x16]
    stp x2, x3, [x16, #16]
    stp x4, x5, [x16, #32]
    stp x6, x7, [x16, #48]
    str x8, [x16, #64]
    stp q0, q1, [x16, #80]
    stp q2, q3, [x16, #112]
    stp q4, q5, [x16, #144]
    stp q6, q7, [x16, #176]
    mov x17, sp
    stp x17, x30, [x16, #208]
    ret
    .cfi_endproc

    .globl clobber
    .type clobber, %function
    .p2align 2
clobber:
    .cfi_startproc
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17
    mov x\n, #-1
    .endr
    // Of v8 to v15 a callee keeps the lower halves.
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    movi v\n\().16b, #255
    .endr
    ret
    .cfi_endproc

// A program cannot step itself here.
    .globl begin_steps, end_steps
    .type begin_steps, %function
    .type end_steps, %function
begin_steps:
end_steps:
    .cfi_startproc
    ret
    .cfi_endproc

    .section .rodata
    .globl general_registers
    .p2align 3
general_registers: .quad 9
    .section .note.GNU-stack,"",%progbits
