/* SPDX-License-Identifier: MIT
 *
 * The exported name of each row of the hook table: a thunk of no-effect instructions and a jump to
 * the function in C.
 *
 * UCX and other libraries hook a driver function by overwriting its first bytes with a jump. They
 * first copy the overwritten instructions, to be able to call the original, and can copy only a few
 * kinds (UCX: src/ucm/bistro). A move of a constant to a register is one of them. The jump takes 12
 * bytes on x86-64 and 16 bytes on arm64, so 15 and 20 bytes of moves come first. There is no
 * landing pad (endbr64, bti), because UCX cannot copy one; this library is not marked as having
 * them.
 */
#define GA_CUDA_HOOKS_ONLY
#include "hooks.h"

    .macro entry symbol
    .globl \symbol
    .type \symbol, %function
    .hidden ga_cuda_entry_\symbol
    .p2align 5
\symbol:
    .cfi_startproc
#if defined(__x86_64__)
    .rept 3
    mov $0, %eax /* not an argument register; the result overwrites it */
    .endr
    jmp ga_cuda_entry_\symbol
#elif defined(__aarch64__)
    .rept 5
    movz w16, #0 /* linkers use it between functions; UCX's jumps use x9 to x15 */
    .endr
    b ga_cuda_entry_\symbol
#else
#error "no thunk for this architecture"
#endif
    .cfi_endproc
    .size \symbol, . - \symbol
    .endm

#define ENTRY(kind, name, since, symbol, streams, description) entry symbol;

    .text
    GA_CUDA_HOOKS(ENTRY)
    .section .note.GNU-stack, "", %progbits
