/* SPDX-License-Identifier: MIT
 *
 * Stubs end in a jump. ptxas has no tail calls: it saves the return address on the stack, calls,
 * and restores it, and the functions' memory order makes that load a miss of the L1 cache. So these
 * instructions become NOP, after which the callee returns to the stub's caller:
 *
 *   IADD3 R1, R1, -8;  STL [R1+4], R21;  STL [R1], R20    save
 *   MOV R20, return;   MOV R21, return                    the relocations against the stub itself
 *   CALL.ABS.NOINC R6
 *   LDL R20, [R1];     LDL R21, [R1+4];  IADD3 R1, R1, 8  restore
 *   RET.ABS.NODEC R20                                     no longer reached
 *
 * A NOP keeps the instruction's waits. In front of the first instruction that stays it takes one
 * cycle. Behind that it keeps the instruction's cycles, because ptxas may count on them for the
 * result of an instruction that stays. The form is the same for sm_75 to sm_121; another one is
 * refused.
 */
#include "stubs.h"

#include "info.h"

#include <gpualloc/backend.h>

#include <string.h>

enum {
    STEP = 16, /* bytes of an instruction */

    OP_IADD3 = 0x810, /* with a number; the low 12 bits */
    OP_STL = 0x387,
    OP_LDL = 0x983,
    OP_MOV = 0x802, /* of a number */
    OP_CALL = 0x343,
    OP_NOP = 0x918,
    NOP_LOW = 0x7918,

    STACK = 1,       /* registers: of the stack, */
    RETURN_LOW = 20, /* and the return address */
    RETURN_HIGH = 21
};

/* Of the high 64 bits: whether another warp may come next, and events to wait for; cycles until the
 * next instruction; and the events that it signals to others, as two numbers of which 7 is none. */
#define KEPT_BY_NOP  (UINT64_C(1) << 45 | UINT64_C(0x3f) << 52)
#define CYCLES       (UINT64_C(0xf) << 41)
#define ONE_CYCLE    (UINT64_C(1) << 41)
#define SIGNALS_NONE (UINT64_C(0x3f) << 46)

/* How many of each a stub has. */
typedef struct form {
    unsigned frames, saves, restores, returns, calls, others;
} form;

static uint64_t load64(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static void store64(uint8_t *to, uint64_t word)
{
    memcpy(to, &word, sizeof word);
}

static unsigned byte_of(uint64_t word, unsigned bit)
{
    return (unsigned)(word >> bit & 0xff);
}

static bool is_return(unsigned reg)
{
    return reg == RETURN_LOW || reg == RETURN_HIGH;
}

/* Count the instruction. True: the jump has no use for it. */
static bool count(form *f, uint64_t low)
{
    unsigned to = byte_of(low, 16);
    unsigned address = byte_of(low, 24);
    switch (low & 0xfff) {
    case OP_IADD3:
        f->frames += to == STACK && address == STACK;
        return to == STACK && address == STACK;
    case OP_STL:
        f->saves += address == STACK && is_return(byte_of(low, 32));
        f->others += address != STACK || !is_return(byte_of(low, 32));
        return true;
    case OP_LDL:
        f->restores += address == STACK && is_return(to);
        f->others += address != STACK || !is_return(to);
        return true;
    case OP_MOV:
        f->returns += is_return(to);
        return is_return(to);
    case OP_CALL:
        f->calls++;
        return false;
    default:
        return false;
    }
}

static ga_status unknown(const ga_stub *stub)
{
    return ga_fail(GA_ERR_UNSUPPORTED,
                   "cubin with stubs: %s: expected a call with a return address on the stack, and "
                   "relocations for that address and the offset of constants",
                   stub->section.name);
}

static ga_status make_jump(uint8_t *code, const ga_stub *stub)
{
    form f = {0};
    bool is_first = true;
    for (size_t at = 0; at + STEP <= stub->section.content.size; at += STEP) {
        uint64_t high = load64(code + at + 8);
        if (count(&f, load64(code + at))) {
            uint64_t cycles = is_first ? ONE_CYCLE : high & CYCLES;
            store64(code + at, NOP_LOW);
            store64(code + at + 8, (high & KEPT_BY_NOP) | cycles | SIGNALS_NONE);
        } else {
            is_first = false;
        }
    }
    bool is_known = f.frames == 2 && f.saves == 2 && f.restores == 2 && f.returns == 2 &&
                    f.calls == 1 && f.others == 0;
    return is_known ? GA_OK : unknown(stub);
}

/* ---- relocations ----------------------------------------------------------------------------- */

static bool is_called(const ga_cubin *cubin, uint32_t symbol, const char *wanted)
{
    Elf64_Sym ignored;
    const char *name;
    return ga_cubin_symbol_at(cubin, symbol, &ignored, &name) && strcmp(name, wanted) == 0;
}

/* The offset goes into its instruction; the return address goes nowhere. */
static ga_status resolve(uint8_t *code, const ga_stub *stub, const ga_cubin *cubin,
                         const ga_cubin_relocation *r, uint32_t offset)
{
    size_t size = stub->section.content.size;
    if (size < STEP || r->offset > size - STEP) {
        return unknown(stub);
    }
    uint64_t low = load64(code + r->offset);
    if (r->symbol == stub->symbol) {
        return (low & 0xfff) == OP_MOV && is_return(byte_of(low, 16)) ? GA_OK : unknown(stub);
    }
    if (!is_called(cubin, r->symbol, GA_CUBIN_OFFSET) || r->type != GA_R_ABS32_LO_32 || r->addend ||
        low >> 32) {
        return unknown(stub);
    }
    store64(code + r->offset, low | (uint64_t)offset << 32);
    return GA_OK;
}

static ga_status resolve_section(uint8_t *code, const ga_stub *stub, const ga_cubin *cubin,
                                 const ga_cubin_section *from, uint32_t offset)
{
    ga_cubin_section target;
    size_t step;
    ga_status status = ga_cubin_relocates(cubin, from, &target, &step);
    for (size_t at = 0; status == GA_OK && at < from->content.size; at += step) {
        ga_cubin_relocation r = ga_cubin_relocation_at(from, at);
        status = resolve(code, stub, cubin, &r, offset);
    }
    return status;
}

ga_status ga_stub_finish(uint8_t *code, const ga_stub *stub, const ga_cubin *cubin, uint32_t offset)
{
    ga_status status = GA_OK;
    ga_cubin_section from;
    for (size_t i = 1; status == GA_OK && i < cubin->section_count; i++) {
        if (ga_cubin_section_at(cubin, i, &from) && ga_cubin_has_relocations(&from) &&
            from.header.sh_info == stub->section_index) {
            status = resolve_section(code, stub, cubin, &from, offset);
        }
    }
    return status == GA_OK ? make_jump(code, stub) : status;
}

ga_status ga_stub_find(ga_stub *out, const ga_cubin *cubin, const char *wanted)
{
    Elf64_Sym symbol;
    const char *name;
    for (uint32_t i = 1; i < cubin->symbols.size / sizeof symbol; i++) {
        if (ga_cubin_symbol_at(cubin, i, &symbol, &name) && strcmp(name, wanted) == 0 &&
            symbol.st_shndx && !symbol.st_value && symbol.st_shndx < cubin->section_count &&
            ga_cubin_section_at(cubin, symbol.st_shndx, &out->section)) {
            out->section_index = symbol.st_shndx;
            out->symbol = i;
            return GA_OK;
        }
    }
    return ga_fail(GA_ERR_UNSUPPORTED, "cubin with stubs: expected %s in it", wanted);
}
