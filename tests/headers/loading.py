# SPDX-License-Identifier: MIT
"""A process that loads libgpualloc late, through ctypes: started by test_loading.py.

usage: loading.py LIBRARY SPEC [TLS_LIBRARY...]      these are loaded before, as far as
possible

Prints the number of loaded TLS_LIBRARYs. Fails if a heap does not work in every thread, or if
the process's malloc is another one afterwards.
"""

import ctypes
import sys
import threading
from typing import Any

THREADS = 6
GA_ERR_POINTER = 7


def usable_of_malloc(process: Any) -> int:
    """The usable size of a block of 100 bytes: it differs between allocators."""
    process.malloc.restype = ctypes.c_void_p
    process.malloc_usable_size.restype = ctypes.c_size_t
    block = ctypes.c_void_p(process.malloc(ctypes.c_size_t(100)))
    usable = process.malloc_usable_size(block)
    process.free(block)
    return usable


def load_first(paths: list[str]) -> int:
    """Load libraries until there is no static storage for one more."""
    for count, path in enumerate(paths):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            assert "static TLS" in str(error), error
            return count
    return len(paths)


class Heap:

    def __init__(self, library: Any, spec: str) -> None:
        self.library = library
        library.ga_error_text.restype = ctypes.c_char_p
        library.ga_usable_size.restype = ctypes.c_size_t
        library.ga_owns.restype = ctypes.c_bool
        self.handle = ctypes.c_void_p()
        self.well(library.ga_heap_open(ctypes.byref(self.handle), 0, 0, spec.encode()))

    def well(self, status: int) -> None:
        assert status == 0, self.library.ga_error_text()

    def take(self, size: int) -> ctypes.c_void_p:
        block = ctypes.c_void_p()
        self.well(self.library.ga_alloc(self.handle, ctypes.c_size_t(size), ctypes.c_size_t(0),
                                        ctypes.byref(block)))
        assert self.library.ga_usable_size(self.handle, block) >= size
        return block

    def give(self, block: ctypes.c_void_p) -> None:
        self.well(self.library.ga_free(self.handle, block))

    def use(self, number: int) -> None:
        """Hold blocks of many sizes at once; their contents stay."""
        sizes = [1 + (i * 37 * number) % 5000 for i in range(300)] + [3 << 20]
        blocks = [self.take(size) for size in sizes]
        for i, (block, size) in enumerate(zip(blocks, sizes)):
            ctypes.memset(block, (i + number) % 256, size)
        for i, (block, size) in enumerate(zip(blocks, sizes)):
            assert ctypes.string_at(block, size) == bytes([(i + number) % 256]) * size
            assert self.library.ga_owns(self.handle, block)
            self.give(block)


def main(library_path: str, spec: str, tls_libraries: list[str]) -> None:
    process = ctypes.CDLL(None)
    usable = usable_of_malloc(process)
    loaded = load_first(tls_libraries)

    failures: list[BaseException] = []
    heaps: list[Heap] = []
    ready = threading.Barrier(THREADS + 1)

    def work(number: int) -> None:
        try:
            ready.wait()
            for _ in range(5):
                heaps[0].use(number)
        except BaseException as error:
            failures.append(error)

    # Threads from before the library have no storage for its variables yet; later threads get it
    # when they start.
    threads = [threading.Thread(target=work, args=(i + 1,), daemon=True)
               for i in range(THREADS)]
    for thread in threads[:THREADS // 2]:
        thread.start()
    heaps.append(Heap(ctypes.CDLL(library_path, mode=ctypes.RTLD_GLOBAL), spec))
    for thread in threads[THREADS // 2:]:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join()
    assert not failures, failures

    assert usable_of_malloc(process) == usable
    foreign = ctypes.c_void_p(process.malloc(ctypes.c_size_t(100)))
    if spec == "jemalloc":  # `system` does not report it
        assert not heaps[0].library.ga_owns(heaps[0].handle, foreign)
        assert heaps[0].library.ga_free(heaps[0].handle, foreign) == GA_ERR_POINTER
    process.free(foreign)
    heaps[0].well(heaps[0].library.ga_heap_close(heaps[0].handle))
    print(loaded)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
