/* SPDX-License-Identifier: MIT
 *
 * PyTorch's CUDAPluggableAllocator does not test an allocator's result: a NULL becomes a tensor
 * at address 0, and the first kernel on it destroys the context. Only an exception reports a failed
 * request. PyTorch maps c10::OutOfMemoryError to torch.OutOfMemoryError.
 *
 * The library is C and links neither libstdc++ nor PyTorch, so it throws through the C++ ABI, with
 * functions that it looks up by symbol in the libraries of the process. It relies on parts of the
 * Itanium C++ ABI and of libstdc++'s ABI: the layout of an empty std::string, the place of the
 * destructor in a vtable, and how arguments of these classes are passed. Layout and size of
 * c10::Error are left to its constructor.
 *
 * Failures are rare, so every call looks the symbols up again. That way PyTorch may be loaded later
 * than the library.
 */
#include "torch_errors.h"

#include "../platform/log.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The mangled name of std::string up to its last "E". */
#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE"

enum {
    EXCEPTION_BYTES = 1024, /* a c10::Error has 128 in PyTorch 2.11 */
    TEXT_BYTES = 1000
};

/* std::string of libstdc++ since GCC 5. A text of up to 15 bytes is stored in `local`. */
typedef struct cxx_string {
    char *data;
    size_t length;
    char local[16];
} cxx_string;

/* c10::SourceLocation, which is passed by value. */
typedef struct source_location {
    const char *function, *file;
    uint32_t line;
} source_location;

typedef void destroy_object(void *object);

/* The class of the exception, and the functions that make an object of it. */
typedef struct exception_class {
    void *(*allocate)(size_t bytes);
    void (*throw_object)(void *object, void *type, destroy_object *destroy);
    void (*append)(cxx_string *string, const char *text);
    void (*dispose)(cxx_string *string);
    void (*construct)(void *object, source_location where, cxx_string *message);
    void *type;
    void **vtable; /* the first virtual function: the destructor */
} exception_class;

/* A library of that name, if the process has it. It stays loaded for the life of the process. */
static void *loaded(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

static void *symbol_in(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* ---- whether to throw ---------------------------------------------------------------------- */

/* The address of PyTorch's variable. A program that is linked with PyTorch may have a copy of it in
 * the global scope, which PyTorch then uses; Python's modules have a scope of their own. */
static void **current_allocator(void)
{
    static const char name[] = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
    void **shared = dlsym(RTLD_DEFAULT, name);
    return shared ? shared : symbol_in(loaded("libc10_cuda.so"), name);
}

/* Whether PyTorch's current allocator is a plug-in: a cast from c10::Allocator, the first base of
 * all allocators, to CUDAPluggableAllocator. If the symbols are missing the answer is yes, because
 * an exception is safe in both cases: within a MemPool it only skips the attempt to free cached
 * memory first. */
static bool is_plugged_in(void *cxx)
{
    void *torch = loaded("libtorch_cuda.so");
    void **current = current_allocator();
    void *base = symbol_in(loaded("libc10.so"), "_ZTIN3c109AllocatorE");
    void *plugged =
        symbol_in(torch, "_ZTIN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE");
    void *(*cast)(const void *object, const void *from, const void *to, ptrdiff_t hint);
    *(void **)&cast = symbol_in(cxx, "__dynamic_cast");
    bool known = current && *current && base && plugged && cast;
    return !known || cast(*current, base, plugged, -1) != NULL;
}

/* ---- the exception ------------------------------------------------------------------------- */

/* The symbols of c10::OutOfMemoryError are in every library that throws one, and in no other. */
static void *symbol_of_class(const char *name)
{
    static const char *const libraries[] = {"libc10_cuda.so", "libtorch_cuda.so", "libc10.so"};
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof libraries / sizeof *libraries; i++) {
        found = symbol_in(loaded(libraries[i]), name);
    }
    return found;
}

static bool find_class(exception_class *out, void *cxx, void *torch, ga_status status)
{
    bool memory = status == GA_ERR_MEMORY;
    *(void **)&out->allocate = symbol_in(cxx, "__cxa_allocate_exception");
    *(void **)&out->throw_object = symbol_in(cxx, "__cxa_throw");
    *(void **)&out->append = symbol_in(cxx, "_Z" STRING "6appendEPKc");
    *(void **)&out->dispose = symbol_in(cxx, "_Z" STRING "10_M_disposeEv");
    *(void **)&out->construct = symbol_in(torch, "_ZN3c105ErrorC1ENS_14SourceLocationE" STRING "E");
    out->type = symbol_of_class(memory ? "_ZTIN3c1016OutOfMemoryErrorE" : "_ZTIN3c105ErrorE");
    void **table = symbol_of_class(memory ? "_ZTVN3c1016OutOfMemoryErrorE" : "_ZTVN3c105ErrorE");
    out->vtable = table ? table + 2 : NULL; /* behind the offset to the top and the type */
    return out->allocate && out->throw_object && out->append && out->dispose && out->construct &&
           out->type && out->vtable;
}

static void write_message(char *text, size_t capacity, ga_status status, size_t size, int device)
{
    const char *reason = ga_error_text();
    bool large = size >> 30 != 0;
    double number = (double)size / (large ? 1 << 30 : 1 << 20);
    if (status == GA_ERR_MEMORY) { /* programs search for PyTorch's own wording */
        snprintf(text, capacity, "CUDA out of memory. Tried to allocate %.2f %s on device %d. %s",
                 number, large ? "GiB" : "MiB", device, reason);
    } else {
        snprintf(text, capacity, "gpualloc: device %d: %s", device, reason);
    }
}

/* The constructor of c10::Error makes the object. c10::OutOfMemoryError adds only a vtable of its
 * own, which then replaces the one that the constructor stored. */
static void throw_error(const exception_class *class, const char *text)
{
    source_location where = {__func__, __FILE__, __LINE__};
    cxx_string message = {.data = message.local};
    void *object = class->allocate(EXCEPTION_BYTES);
    destroy_object *destroy;
    class->append(&message, text);
    class->construct(object, where, &message);
    class->dispose(&message);
    *(void ***)object = class->vtable;
    *(void **)&destroy = class->vtable[0];
    class->throw_object(object, class->type, destroy);
}

static void throw_bad_alloc(void *cxx)
{
    void (*throw_it)(void);
    *(void **)&throw_it = symbol_in(cxx, "_ZSt17__throw_bad_allocv");
    if (throw_it) {
        throw_it();
    }
    ga_log(GA_LOG_ERROR, "PyTorch is loaded without libstdc++.so.6: a failed request cannot be "
                         "reported as an exception");
}

void ga_torch_throw(ga_status status, size_t size, int device)
{
    char text[TEXT_BYTES];
    exception_class class;
    void *torch = loaded("libc10.so");
    void *cxx = torch ? loaded("libstdc++.so.6") : NULL;
    if (!torch || !is_plugged_in(cxx)) {
        return;
    }
    write_message(text, sizeof text, status, size, device);
    if (find_class(&class, cxx, torch, status)) {
        throw_error(&class, text);
    }
    throw_bad_alloc(cxx);
}
