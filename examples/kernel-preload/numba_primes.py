#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A Numba kernel that allocates: each thread sieves the primes below a number of its own.

  gpualloc run --kernel=slab/vmm -- python3 numba_primes.py

Numba has no malloc in kernels, so the program declares it as a C function, which numba-cuda 0.30
can. It prints the same line with CUDA's malloc. Exit status 77: no Numba, or no GPU.
"""

import sys

try:
    import numpy
    from numba import cuda, types
except ImportError:
    sys.exit(77)

THREADS = 1024

words = types.CPointer(types.uint64)
malloc = cuda.declare_device("malloc", words(types.uint64), abi="c")
free = cuda.declare_device("free", types.void(words), abi="c")


@cuda.jit
def sum_primes(sums: object) -> None:
    thread = cuda.grid(1)
    limit = thread % 300 + 2
    composite = malloc(8 * limit)
    for number in range(limit):
        composite[number] = 0
    total = 0
    for number in range(2, limit):
        if composite[number] == 0:
            total += number
            for multiple in range(number * number, limit, number):
                composite[multiple] = 1
    free(composite)
    sums[thread] = total


def main() -> None:
    if not cuda.is_available():
        sys.exit(77)
    sums = cuda.to_device(numpy.zeros(THREADS, dtype=numpy.uint64))
    sum_primes[THREADS // 128, 128](sums)
    found = sums.copy_to_host()
    assert found[98] == 1060  # the primes below 100
    print("numba:", int(found.sum()))


if __name__ == "__main__":
    main()
