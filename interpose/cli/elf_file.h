/* SPDX-License-Identifier: MIT
 *
 * Reads what decides about LD_PRELOAD from ELF files, of programs and of the libraries to preload,
 * and the build ID.
 * The files may be damaged, or change meanwhile: each read is checked, and nothing is mapped.
 */
#ifndef INTERPOSE_CLI_ELF_FILE_H
#define INTERPOSE_CLI_ELF_FILE_H

#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>

typedef struct ga_elf {
    int fd;
    ElfW(Ehdr) header; /* of another class only e_ident, e_type and e_machine have a meaning */
} ga_elf;

/* Open a file for reading: never waits, and opens no device. Returns the descriptor; -1: not a
 * readable regular file. */
int ga_file_open(const char *path);

/* False: not a readable ELF file. Close it by ga_elf_close(). */
bool ga_elf_open(ga_elf *out, const char *path);
void ga_elf_close(ga_elf *elf);

/* True if a process of this one's kind can execute or load the file. */
bool ga_elf_is_of_our_kind(const ga_elf *elf);

/* The functions below are for files of our kind. */

/* Read the name of the file's loader, "" if it has none. False: cannot be read. */
bool ga_elf_loader(const ga_elf *elf, char name[PATH_MAX]);

/* True if the file has a name for programs that link it, as a library and a loader have. */
bool ga_elf_is_library(const ga_elf *elf);

/* True if the file's dynamic symbols define the function. */
bool ga_elf_defines(const ga_elf *elf, const char *function);

/* Read the text of the note that version_note.h writes. False: the file has none. */
bool ga_elf_version(const ga_elf *elf, char text[32]);

/* Read the build ID. Returns its length, 0 for none. */
#define GA_ELF_BUILD_ID_MAX 32
unsigned ga_elf_build_id(const ga_elf *elf, unsigned char out[GA_ELF_BUILD_ID_MAX]);

#endif
