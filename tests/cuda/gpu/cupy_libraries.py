#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CUDA's libraries through CuPy: cuBLAS, cuSPARSE, cuFFT, cuSOLVER, cuRAND, CUB and Thrust.
Print a checksum of each result.

  cupy_libraries.py cached | uncached

cached: with CuPy's pool. uncached: without, so that each array is a cudaMalloc. Exit status
77: no CuPy, or no GPU.
"""

import sys
import zlib

MODE = sys.argv[1] if len(sys.argv) > 1 else "cached"
if MODE not in ("cached", "uncached"):
    sys.exit(f'cupy_libraries.py: mode "{MODE}", expected cached or uncached')

try:
    import cupy
    from cupyx.scipy import sparse
except ImportError:
    sys.exit(77)

N = 1500


def say(name: str, array: "cupy.ndarray") -> None:
    print(name, f"{zlib.crc32(cupy.asnumpy(array).tobytes()):08x}", array.shape, array.dtype)


def main() -> None:
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        sys.exit(77)
    if MODE == "uncached":
        cupy.cuda.set_allocator(None)
    random = cupy.random.RandomState(1)
    a = random.standard_normal((N, N), dtype=cupy.float32)
    b = random.standard_normal((N, N), dtype=cupy.float32)
    say("cuRAND", a)
    say("cuBLAS", a @ b)
    rows = cupy.arange(N * 20) // 20
    columns = (cupy.arange(N * 20) * 7919) % N
    m = sparse.csr_matrix((a.ravel()[:N * 20], (rows, columns)), shape=(N, N))
    say("cuSPARSE, by a vector", m @ b[0])
    say("cuSPARSE, by a matrix", m @ b)
    say("cuFFT", cupy.fft.fft2(a))
    say("cuSOLVER", cupy.linalg.cholesky(a @ a.T / N + cupy.eye(N, dtype=cupy.float32)))
    say("Thrust", cupy.sort(a.ravel()))
    say("CUB", cupy.cumsum((a * 1000).astype(cupy.int64).ravel()))
    # Arrays of several sizes that are allocated and freed, on several streams.
    for i in range(30):
        with cupy.cuda.Stream():
            parts = [cupy.arange(i * 10007 + j * 65536, dtype=cupy.int32) for j in range(20)]
            total = sum(int(part.sum(dtype=cupy.int64)) for part in parts[::2])
        print("streams", i, total)


main()
