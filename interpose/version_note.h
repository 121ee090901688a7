/* SPDX-License-Identifier: MIT
 *
 * Writes the version into a library to preload, as an ELF note, so that `gpualloc run` can compare
 * it with its own. Included by one file of each of these libraries. interpose/cli/elf_file.c reads
 * it.
 */
#ifndef INTERPOSE_VERSION_NOTE_H
#define INTERPOSE_VERSION_NOTE_H

#include <gpualloc/gpualloc.h>

#define GA_NOTE_DIGITS(number) #number
#define GA_NOTE_TEXT(major, minor, patch)                                                          \
    GA_NOTE_DIGITS(major) "." GA_NOTE_DIGITS(minor) "." GA_NOTE_DIGITS(patch)

/* Sizes of name and text, a type, then name and text, each padded to four bytes. */
__asm__(".pushsection .note.gpualloc, \"a\", %note\n"
        ".balign 4\n"
        ".long 2f - 1f, 4f - 3f, 1\n"
        "1: .asciz \"gpualloc\"\n"
        "2: .balign 4\n"
        "3: .asciz \"" GA_NOTE_TEXT(GA_VERSION_MAJOR, GA_VERSION_MINOR,
                                    GA_VERSION_PATCH) "\"\n"
                                                      "4: .balign 4\n"
                                                      ".popsection\n");

#endif
