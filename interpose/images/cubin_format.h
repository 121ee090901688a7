/* SPDX-License-Identifier: MIT
 *
 * The numbers of NVIDIA's formats that <elf.h> does not have. NVIDIA documents none of them. The
 * wrapper is in CUDA's fatbinary_section.h; the rest was read off the output of nvcc 13.0 for sm_75
 * to sm_121, with the names that nvdisasm and nvlink contain. tests/unit/images.c compares these
 * with the output of the nvcc at hand.
 */
#ifndef GPUALLOC_INTERPOSE_IMAGES_CUBIN_FORMAT_H
#define GPUALLOC_INTERPOSE_IMAGES_CUBIN_FORMAT_H

#include <stdint.h>

/* ---- fat binaries -------------------------------------------------------------------------- */

#define GA_FATBIN_MAGIC  UINT32_C(0xba55ed50)
#define GA_WRAPPER_MAGIC UINT32_C(0x466243b1)

/* __fatBinC_Wrapper_t. */
typedef struct ga_wrapper {
    uint32_t magic, version;
    uint64_t fatbin; /* the address of the fat binary */
    uint64_t other;  /* version 1: a file's name; version 2: fat binaries that were linked before */
} ga_wrapper;

typedef struct ga_fatbin_header {
    uint32_t magic;
    uint16_t version;     /* 1 */
    uint16_t header_size; /* the first entry's offset: 16 */
    uint64_t size;        /* bytes of all entries */
} ga_fatbin_header;

/* Followed by optional fields (a file's name, the options of the compiler), and from `header_size`
 * on by the payload. The next entry is `padded_size` bytes behind the payload's start. */
typedef struct ga_fatbin_record {
    uint16_t kind;
    uint16_t version;
    uint32_t header_size;
    uint64_t padded_size;
    uint32_t compressed_size; /* 0: not compressed */
    uint32_t options_offset;
    uint16_t minor, major; /* of the PTX language or the code version */
    uint32_t sm;           /* 90: compute capability 9.0 */
    uint32_t name_offset, name_size;
    uint64_t flags;
    uint64_t hash;
    uint64_t size; /* when decompressed; 0: not compressed */
} ga_fatbin_record;

enum {
    GA_FATBIN_PTX = 1,
    GA_FATBIN_ELF = 2,
    GA_FATBIN_IR = 8, /* for -dlto */

    GA_FATBIN_LZ4 = 0x2000,
    GA_FATBIN_ZSTD = 0x8000,
    GA_FATBIN_EXACT = 0x100000, /* sm_90a: for this architecture only */
    GA_FATBIN_FAMILY = 0x200000 /* sm_100f: for later ones of the same major version, too */
};

/* ---- cubins -------------------------------------------------------------------------------- */

enum {
    GA_EM_CUDA = 190,
    /* e_ident[EI_OSABI] and [EI_ABIVERSION]: of CUDA 12 and before, where the architecture is in
     * e_flags' bits 0 to 7; and of CUDA 13, where it is in bits 8 to 15. */
    GA_OSABI_OLD = 0x33,
    GA_OSABI_NEW = 0x41,

    GA_STO_ENTRY = 0x10, /* st_other: a kernel */

    /* Relocations: 64 bits of data; and the target of a call instruction, in units of 4 bytes, as
     * 47 bits at bit 34, or as 8 bits at bit 16 and 47 bits at bit 34. LO and HI: half of an
     * address, as 32 bits at bit 32 of an instruction. */
    GA_R_64 = 2,
    GA_R_ABS32_LO_32 = 56,
    GA_R_ABS32_HI_32 = 57,
    GA_R_ABS47_34 = 58,
    GA_R_ABS55_16_34 = 75,

    /* .nv.info: an entry is a format, an attribute and 16 bits; these are its value, or with SIZED
     * the number of bytes that follow. */
    GA_INFO_FIXED_FIRST = 1,
    GA_INFO_FIXED_LAST = 3,
    GA_INFO_SIZED = 4,
    GA_INFO_PARAM_CBANK = 0x0a, /* of .nv.info.KERNEL: a symbol's index, and where parameters are in
                                 * constant bank 0: 16 bits each of offset and size */
    GA_INFO_FRAME_SIZE = 0x11,  /* these four: a symbol's index and a number, 32 bits each */
    GA_INFO_MIN_STACK_SIZE = 0x12,
    GA_INFO_MAX_STACK_SIZE = 0x23,
    GA_INFO_REGCOUNT = 0x2f
};

#define GA_SHT_CUDA_INFO      UINT32_C(0x70000000) /* .nv.info */
#define GA_STACK_SIZE_UNKNOWN UINT32_MAX           /* recursion: the limit of the context holds */

#endif
