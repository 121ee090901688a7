/* SPDX-License-Identifier: MIT
 *
 * Every function of the hook table can be hooked the way UCX hooks the driver (src/ucm/bistro): its
 * first instructions are copied elsewhere, with a jump to the rest, and a jump to the hook takes
 * their place. The hook is called, and the copy still comes to the driver.
 */
#include "../../interpose/cuda/next.h"
#include "check.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum {
    JUMP = 12, /* bytes of a jump to any address */
    COPY = 15
};

/* The bytes of an instruction that UCX may copy (of those that move a constant); 0: another. */
static size_t length_at(const unsigned char *code)
{
    return (code[0] & 0xf8) == 0xb8 ? 5 : 0;
}

/* movabs $to, %rax; jmp *%rax. */
static void write_jump(unsigned char *at, const void *to)
{
    memcpy(at, "\x48\xb8", 2);
    memcpy(at + 2, &to, sizeof to);
    memcpy(at + 10, "\xff\xe0", 2);
}
#elif defined(__aarch64__)
enum {
    JUMP = 16,
    COPY = 16
};

static size_t length_at(const unsigned char *code)
{
    unsigned word;
    memcpy(&word, code, sizeof word);
    return (word & 0x7f800000) == 0x52800000 ? 4 : 0;
}

/* ldr x15, 8; br x15 */
static void write_jump(unsigned char *at, const void *to)
{
    static const unsigned words[] = {0x5800004f, 0xd61f01e0};
    memcpy(at, words, sizeof words);
    memcpy(at + sizeof words, &to, sizeof to);
}
#endif

#define ROW(kind, name, since, symbol, streams, what)                                              \
    extern ga_cuda_any linked_##symbol __asm__(#symbol);
GA_CUDA_HOOKS(ROW)

#define LINKED(kind, name, since, symbol, streams, what) linked_##symbol,
static ga_cuda_any *const linked[] = {GA_CUDA_HOOKS(LINKED)};

static const ga_cuda_hook hooks[] = {GA_CUDA_HOOKS(GA_CUDA_HOOK_ROW)};

static void (*echo)(bool on);
static ga_cuda_any *original; /* of the row that is hooked */
static int hooked;            /* calls of the hook */

static CUresult hook(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d, ga_cuda_word e,
                     ga_cuda_word f)
{
    hooked++;
    return original(a, b, c, d, e, f);
}

/* The number of bytes in whole instructions that may be copied, at least the size of a jump; 0: too
 * few. */
static size_t movable(const unsigned char *code)
{
    size_t length = 0;
    while (length < JUMP) {
        size_t one = length_at(code + length);
        if (!one) {
            return 0;
        }
        length += one;
    }
    return length;
}

/* The copy, in memory of its own. */
static ga_cuda_any *copy_of(unsigned char *code, size_t length)
{
    unsigned char *copy =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return NULL;
    }
    memcpy(copy, code, length);
    write_jump(copy + length, code + length);
    __builtin___clear_cache((char *)copy, (char *)copy + length + JUMP);
    ga_cuda_any *function;
    memcpy(&function, &copy, sizeof function);
    return function;
}

static void write_over(unsigned char *code, const void *bytes, size_t length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)code & ~(page - 1);
    size_t size = (uintptr_t)code + length - start;
    CHECK_SAME(0, mprotect((void *)start, size, PROT_READ | PROT_WRITE | PROT_EXEC));
    memcpy(code, bytes, length);
    CHECK_SAME(0, mprotect((void *)start, size, PROT_READ | PROT_EXEC));
    __builtin___clear_cache((char *)code, (char *)code + length);
}

static void call_hooked(int row, unsigned char *code)
{
    unsigned char before[JUMP];
    unsigned char jump[JUMP];
    ga_cuda_any *to = hook;
    void *target;
    memcpy(&target, &to, sizeof target);
    memcpy(before, code, sizeof before);
    write_jump(jump, target);
    write_over(code, jump, sizeof jump);
    int calls = hooked;
    echo(true);
    CUresult result = linked[row](11, 22, 33, 44, 55, 66);
    echo(false);
    write_over(code, before, sizeof before);
    CHECK_SAME(calls + 1, hooked);
    CHECK(result == 5000 + row, "%s answers %d", hooks[row].symbol, result);
}

static void check_row(int row)
{
    unsigned char *code;
    memcpy(&code, &linked[row], sizeof code);
    size_t length = movable(code);
    CHECK(length == COPY, "%s begins with %02x %02x %02x %02x", hooks[row].symbol, code[0], code[1],
          code[2], code[3]);
    bool passes = hooks[row].kind == GA_CUDA_PASSES || hooks[row].kind == GA_CUDA_RETRIES;
    original = length && passes ? copy_of(code, length) : NULL;
    if (original) {
        call_hooked(row, code);
    }
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    *(void **)&echo = dlsym(driver, "stand_in_echo");
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        check_row(i);
    }
    CHECK(hooked > 20, "%d hooked", hooked);
    printf("entries: %d rows, %d not so\n", GA_CUDA_HOOK_COUNT, not_so);
    return not_so != 0;
}
