// The two entries that C++ cannot write: they must leave every argument register as the caller set it.
    .text

// A trampoline's slot leads here first, with the function's number in w17, which no caller uses across a call.
// x8 is where a caller wants a large result; q0 to q7 take floating-point arguments.
    .hidden shim_first_call
    .globl shim_first_call
    .type shim_first_call, %function
    .p2align 2
shim_first_call:
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov w0, w17
    bl shim_resolve
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size shim_first_call, .-shim_first_call

// dlopen(path, flags), with the path looked at on the way. The C library sees the caller's return address in x30.
    .globl dlopen
    .type dlopen, %function
    .p2align 2
dlopen:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    mov x29, sp
    str x1, [sp, #16]
    bl shim_redirect
    ldr x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    adrp x16, shim_real_dlopen
    ldr x16, [x16, #:lo12:shim_real_dlopen]
    br x16
    .cfi_endproc
    .size dlopen, .-dlopen

    .section .note.GNU-stack,"",%progbits
