# SPDX-License-Identifier: MIT
"""The library in C programs: linked, or loaded while they run, it does not replace malloc, works
from any thread, and can be unloaded."""

import unittest

from surroundings import CC, LIBRARY, SANITIZED, SOURCE, Case, bindings, main

# The file that each function of the malloc family comes from, by this process's own lookups.
WHOSE_MALLOC = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int whose_malloc(void)
{
    static const char *const names[] = {"malloc", "free", "calloc", "realloc", "posix_memalign",
                                        "aligned_alloc", "malloc_usable_size"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Dl_info info;
        void *found = dlsym(RTLD_DEFAULT, names[i]);
        if (!found || !dladdr(found, &info) || !strstr(info.dli_fname, "libc.so")) {
            printf("%s is %s's\n", names[i], found ? info.dli_fname : "nobody");
            return 1;
        }
    }
    return 0;
}
"""

LINKED = WHOSE_MALLOC + r"""
#include <gpualloc/gpualloc.h>

int main(void)
{
    ga_heap *heap;
    void *block;
    int own = whose_malloc();
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, "jemalloc") != GA_OK &&
        ga_heap_open(&heap, GA_PLACE_HOST, 0, "system") != GA_OK) {
        puts(ga_error_text());
        return 1;
    }
    if (ga_alloc(heap, 100, 0, &block) != GA_OK || ga_free(heap, block) != GA_OK) {
        puts(ga_error_text());
        return 1;
    }
    ga_heap_close(heap);
    return own || whose_malloc();
}
"""

# As a plugin host does: load, use in a thread, unload while the thread still lives.
LOADED = WHOSE_MALLOC + r"""
#include <gpualloc/gpualloc.h>
#include <pthread.h>

static pthread_barrier_t used, gone;
static void *library;

static void *use(void *spec)
{
    ga_heap *heap;
    void *block;
    ga_status (*open_heap)(ga_heap **, ga_place, int, const char *);
    ga_status (*alloc)(ga_heap *, size_t, size_t, void **);
    ga_status (*release)(ga_heap *, void *);
    ga_status (*close_heap)(ga_heap *);
    *(void **)&open_heap = dlsym(library, "ga_heap_open");
    *(void **)&alloc = dlsym(library, "ga_alloc");
    *(void **)&release = dlsym(library, "ga_free");
    *(void **)&close_heap = dlsym(library, "ga_heap_close");
    if (open_heap(&heap, GA_PLACE_HOST, 0, spec) == GA_OK) {
        alloc(heap, 100, 0, &block);
        release(heap, block);
        close_heap(heap);
    }
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&gone);
    return NULL; /* and what the library does at the end of a thread */
}

int main(int argc, char **argv)
{
    pthread_t thread;
    (void)argc;
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&gone, NULL, 2);
    library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        puts(dlerror());
        return 1;
    }
    pthread_create(&thread, NULL, use, argv[2]);
    pthread_barrier_wait(&used);
    int own = whose_malloc();
    dlclose(library);
    pthread_barrier_wait(&gone);
    pthread_join(thread, NULL);
    return own;
}
"""


@unittest.skipIf(SANITIZED, "a sanitized library loads into sanitized programs only")
class Process(Case):
    def build(self, name: str, text: str, *more: str) -> str:
        source = self.write(f"{name}.c", text)
        self.run_command(*CC, "-D_GNU_SOURCE", f"-I{SOURCE}/liballoc/include", source, "-o", name,
                         *more, "-ldl", "-lpthread")
        return str(self.folder / name)

    def linked(self) -> list[str]:
        folder = LIBRARY.parent
        return [f"-L{folder}", "-lgpualloc", f"-Wl,-rpath,{folder}"]

    def test_a_linked_program_keeps_its_malloc(self) -> None:
        self.run_command(self.build("linked", LINKED, *self.linked()))

    def test_a_program_that_loads_it_keeps_its_malloc(self) -> None:
        program = self.build("loaded", LOADED)
        for spec in ("system", "jemalloc"):
            with self.subTest(spec=spec):
                self.run_command(program, LIBRARY, spec)

    def test_nobody_is_bound_to_the_library_for_malloc(self) -> None:
        program = self.build("linked", LINKED, *self.linked())
        family, ours = bindings(program)
        self.assertLessEqual({"malloc", "free", "calloc", "realloc"}, set(family))
        for name, libraries in family.items():
            self.assertNotIn("libgpualloc", " ".join(libraries), name)
        self.assertIn("ga_heap_open", ours)
        self.assertEqual([], [name for name in ours if not name.startswith("ga_")])


if __name__ == "__main__":
    main()
