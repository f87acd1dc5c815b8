    .text
    .globl call_with
    .type call_with, @function
call_with:
    .cfi_startproc
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    movq %rdi, %rbp
    movq %rsi, %rbx
    leaq -8(%rsp), %rax
    movq %rax, called_with_stack(%rip)
    leaq 1f(%rip), %rax
    movq %rax, called_with_link(%rip)
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    movups 80+16*\n(%rbp), %xmm\n
    .endr
    movq 0(%rbp), %rdi
    movq 8(%rbp), %rsi
    movq 16(%rbp), %rdx
    movq 24(%rbp), %rcx
    movq 32(%rbp), %r8
    movq 40(%rbp), %r9
    movq 48(%rbp), %rax
    call *%rbx
1:  addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbp
    popq %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    ret
    .cfi_endproc

    .globl target
    .type target, @function
target:
    .cfi_startproc
    leaq seen(%rip), %r11
    movq %rdi, 0(%r11)
    movq %rsi, 8(%r11)
    movq %rdx, 16(%r11)
    movq %rcx, 24(%r11)
    movq %r8, 32(%r11)
    movq %r9, 40(%r11)
    movq %rax, 48(%r11)
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    movups %xmm\n, 80+16*\n(%r11)
    .endr
    movq %rsp, 208(%r11)
    movq (%rsp), %rax
    movq %rax, 216(%r11)
    ret
    .cfi_endproc

    .globl clobber
    .type clobber, @function
clobber:
    .cfi_startproc
    .irp r, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
    movq $-1, %\r
    .endr
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    pcmpeqd %xmm\n, %xmm\n
    .endr
    ret
    .cfi_endproc

    .globl begin_steps
    .type begin_steps, @function
begin_steps:
    .cfi_startproc
    pushfq
    .cfi_adjust_cfa_offset 8
    orq $0x100, (%rsp)
    popfq
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc

    .globl end_steps
    .type end_steps, @function
end_steps:
    .cfi_startproc
    pushfq
    .cfi_adjust_cfa_offset 8
    andq $~0x100, (%rsp)
    popfq
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc

    .section .rodata
    .globl general_registers
    .p2align 3
general_registers: .quad 7
    .section .note.GNU-stack,"",@progbits
