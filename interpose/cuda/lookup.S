/* SPDX-License-Identifier: MIT
 *
 * dlsym() and dlvsym(). With RTLD_NEXT or RTLD_DEFAULT the C library's functions look at their
 * return address, which must be the program's. So each entry point first calls a chooser in C with
 * its arguments. The chooser returns {answer, jump_to} in two registers; the entry point returns
 * the answer, or jumps on with the original arguments, so that the return address is unchanged.
 */
#if defined(__x86_64__)

    .macro lookup name, chooser
    .globl \name
    .globl ga_cuda_\name /* for C code here, where --wrap redirects the plain name */
    .hidden ga_cuda_\name
    .type \name, @function
    .p2align 4
\name:
ga_cuda_\name:
    .cfi_startproc
    endbr64
    push %rdi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    push %rdx
    .cfi_adjust_cfa_offset 8
    call \chooser
    mov %rdx, %rcx
    pop %rdx
    .cfi_adjust_cfa_offset -8
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    test %rcx, %rcx
    jz 1f
    jmp *%rcx
1:  ret
    .cfi_endproc
    .size \name, . - \name
    .endm

#elif defined(__aarch64__)

    .macro lookup name, chooser
    .globl \name
    .globl ga_cuda_\name /* for C code here, where --wrap redirects the plain name */
    .hidden ga_cuda_\name
    .type \name, %function
    .p2align 4
\name:
ga_cuda_\name:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    mov x29, sp
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    bl \chooser
    cbz x1, 1f
    mov x16, x1
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_remember_state
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
1:  .cfi_restore_state
    ldp x29, x30, [sp], #48
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm

#else
#error "no dlsym for this architecture"
#endif

    .hidden ga_cuda_choose_dlsym
    .hidden ga_cuda_choose_dlvsym
    .text
    lookup dlsym, ga_cuda_choose_dlsym
    lookup dlvsym, ga_cuda_choose_dlvsym
    .section .note.GNU-stack, "", %progbits
