/* SPDX-License-Identifier: MIT
 *
 * Kinds and sizes of images.
 */
#include "image.h"

#include "cubin_format.h"

#include <gpualloc/backend.h>

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    HEAD = 64 /* bytes that hold the header of each binary kind */
};

/* ---- readable memory ----------------------------------------------------------------------- */

/* True if the kernel can read 8 bytes there; no signal is raised if not. rt_sigprocmask() reads the
 * mask first, and then refuses the value ~0 of its first argument (as in Abseil's
 * AddressIsReadable()). `address` is a multiple of 8 and not 0. */
static bool can_read_word(uintptr_t address)
{
    int before = errno;
    long result = syscall(SYS_rt_sigprocmask, ~0, address, NULL, sizeof(uint64_t));
    bool can_read = result == 0 || errno != EFAULT;
    errno = before;
    return can_read;
}

/* True if all bytes are readable. A program may pass any address, and the driver refuses bad ones;
 * so must the preload. 100 ns for each page. */
static bool is_readable(const void *start, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)start / page * page;
    uintptr_t end = (uintptr_t)start + size;
    bool readable = size && first && end > (uintptr_t)start && end <= UINTPTR_MAX - page;
    for (uintptr_t at = first; readable && at < end; at += page) {
        readable = can_read_word(at);
    }
    return readable;
}

static bool can_read(const void *start, uint64_t size, size_t limit)
{
    return size < SIZE_MAX && size <= limit && is_readable(start, (size_t)size);
}

/* Bytes from `start` to the end of its page, at most `limit`. */
static size_t within_page(const uint8_t *start, size_t limit)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t left = page - (uintptr_t)start % page;
    return left < limit ? left : limit;
}

/* The length of a text up to its NUL, read page by page. False: it runs into unreadable memory, or
 * to `limit`. */
static bool measure_text(const uint8_t *start, size_t limit, size_t *length)
{
    for (*length = 0;;) {
        size_t step = within_page(start + *length, limit - *length);
        if (!is_readable(start + *length, step)) {
            return false;
        }
        size_t more = strnlen((const char *)start + *length, step);
        *length += more;
        if (more < step) {
            return true;
        }
    }
}

/* ---- kinds --------------------------------------------------------------------------------- */

static bool begins_with(ga_image image, const void *bytes, size_t size)
{
    return image.size >= size && memcmp(image.bytes, bytes, size) == 0;
}

static bool has_magic(ga_image image, uint32_t magic)
{
    return begins_with(image, &magic, sizeof magic);
}

/* PTX begins with a directive or a comment, behind any white space. */
static bool is_text(ga_image image)
{
    size_t i = 0;
    while (i < image.size && strchr(" \t\r\n", image.bytes[i]) && image.bytes[i]) {
        i++;
    }
    bool spaces_only = i == image.size && i > 0;
    return spaces_only || (i < image.size && (image.bytes[i] == '.' || image.bytes[i] == '/'));
}

ga_image_kind ga_image_kind_of(ga_image image)
{
    if (begins_with(image, ELFMAG, SELFMAG)) {
        return GA_IMAGE_CUBIN;
    }
    if (has_magic(image, GA_FATBIN_MAGIC)) {
        return GA_IMAGE_FATBIN;
    }
    if (has_magic(image, GA_WRAPPER_MAGIC)) {
        return GA_IMAGE_WRAPPER;
    }
    return is_text(image) ? GA_IMAGE_PTX : GA_IMAGE_UNKNOWN;
}

unsigned ga_image_call_of(const char *name, size_t length)
{
    static const char *const names[GA_CALLS_COUNT] = {"malloc", "free",
                                                      "__cuda_syscall_aligned_malloc"};
    for (unsigned i = 0; i < GA_CALLS_COUNT; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

/* ---- sizes --------------------------------------------------------------------------------- */

static ga_status unreadable(const char *kind, const void *address, uint64_t size)
{
    return ga_fail(GA_ERR_UNSUPPORTED, "%s at %p: expected %llu readable bytes", kind, address,
                   (unsigned long long)size);
}

static uint64_t end_of(uint64_t offset, uint64_t size)
{
    return offset <= UINT64_MAX - size ? offset + size : UINT64_MAX;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* An ELF file has no size field: its end is that of its last section or table. */
static ga_status measure_elf(ga_image *out, size_t limit)
{
    Elf64_Ehdr header;
    uint64_t end;
    memcpy(&header, out->bytes, sizeof header);
    uint64_t count = header.e_shnum;
    uint64_t tables = end_of(header.e_phoff, (uint64_t)header.e_phnum * header.e_phentsize);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "ELF at %p: expected class %d and sections of %zu bytes, got %d and %d",
                       (const void *)out->bytes, ELFCLASS64, sizeof(Elf64_Shdr),
                       header.e_ident[EI_CLASS], header.e_shentsize);
    }
    Elf64_Shdr section;
    end = end_of(header.e_shoff, sizeof section);
    if (count == 0 && header.e_shoff && can_read(out->bytes, end, limit)) {
        memcpy(&section, out->bytes + header.e_shoff, sizeof section);
        count = section.sh_size; /* more sections than e_shnum can say */
    }
    end = count < UINT32_MAX ? end_of(header.e_shoff, count * sizeof section) : UINT64_MAX;
    if (!can_read(out->bytes, end, limit)) {
        return unreadable("ELF", out->bytes, end);
    }
    end = larger(end, larger(tables, sizeof header));
    for (uint64_t i = 0; i < count; i++) {
        memcpy(&section, out->bytes + header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL) {
            end = larger(end, end_of(section.sh_offset, section.sh_size));
        }
    }
    out->size = (size_t)end;
    return can_read(out->bytes, end, limit) ? GA_OK : unreadable("ELF", out->bytes, end);
}

static ga_status measure_fatbin(ga_image *out, size_t limit)
{
    ga_fatbin_header header;
    memcpy(&header, out->bytes, sizeof header);
    uint64_t end = end_of(header.header_size, header.size);
    if (!can_read(out->bytes, end, limit)) {
        return unreadable("fat binary", out->bytes, end);
    }
    out->size = (size_t)end;
    return GA_OK;
}

static ga_status measure_ptx(ga_image *out, size_t limit)
{
    size_t length;
    if (!measure_text(out->bytes, limit, &length)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "PTX at %p: expected a NUL behind the text",
                       (const void *)out->bytes);
    }
    out->size = length + 1;
    return GA_OK;
}

/* `may_lead`: a wrapper's address is followed. Not so from a file, or from another wrapper: that
 * would be a circle. */
static ga_status measure(ga_image *out, const void *address, size_t limit, bool may_lead)
{
    ga_wrapper wrapper;
    *out = (ga_image){address, limit < HEAD ? limit : HEAD};
    if (!is_readable(address, out->size)) { /* a short text at the end of a mapping */
        out->size = address ? within_page(address, out->size) : 0;
    }
    if (!address || !is_readable(address, out->size)) {
        return unreadable("image", address, HEAD);
    }
    ga_image_kind kind = ga_image_kind_of(*out);
    if (kind == GA_IMAGE_PTX) {
        return measure_ptx(out, limit);
    }
    if (kind == GA_IMAGE_UNKNOWN || out->size < HEAD || (kind == GA_IMAGE_WRAPPER && !may_lead)) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "image at %p: expected PTX, ELF or a fat binary, got the bytes %02x %02x "
                       "%02x %02x",
                       address, out->bytes[0], out->size > 1 ? out->bytes[1] : 0,
                       out->size > 2 ? out->bytes[2] : 0, out->size > 3 ? out->bytes[3] : 0);
    }
    if (kind == GA_IMAGE_WRAPPER) {
        memcpy(&wrapper, out->bytes, sizeof wrapper);
        return measure(out, (const void *)(uintptr_t)wrapper.fatbin, limit, false);
    }
    return kind == GA_IMAGE_CUBIN ? measure_elf(out, limit) : measure_fatbin(out, limit);
}

ga_status ga_image_measure(ga_image *out, const void *address, size_t limit)
{
    return measure(out, address, limit, limit == SIZE_MAX);
}
