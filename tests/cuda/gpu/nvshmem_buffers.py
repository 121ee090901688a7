#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NVSHMEM's external registration of a heap's blocks, between two processes with a device each.

  nvshmem_buffers.py LIBGPUALLOC

Each process opens `vmm:register=on`, registers a block (nvshmemx_buffer_register_symmetric), and
puts its half of it into the other one's block. NVSHMEM takes sizes that are multiples of
NVSHMEM_CUMEM_GRANULARITY, 512 MiB unless that is set. Exit status 77: fewer than two devices, or no
NVSHMEM (PyPI: nvidia-nvshmem-cu13).
"""

import ctypes
import multiprocessing
import sys
from multiprocessing.connection import Connection
from pathlib import Path

RANKS = 2
SIZES = [512 << 20, 1 << 30]
PLACE_DEVICE = 1
WITH_UNIQUEID = 1 << 3


class UniqueId(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("internal", ctypes.c_char * 124)]


class UniqueIdArguments(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("id", ctypes.c_void_p), ("rank", ctypes.c_int),
                ("ranks", ctypes.c_int)]


class Arguments(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("uid", UniqueIdArguments),
                ("content", ctypes.c_char * 96)]


class Attributes(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("mpi", ctypes.c_void_p), ("arguments", Arguments)]


def versioned(kind: type) -> ctypes.Structure:
    made = kind()
    made.version = (1 << 16) + ctypes.sizeof(kind)
    return made


def check(what: str, status: int) -> None:
    if status:
        raise SystemExit(f"{what}: error {status}")


def nvshmem_path() -> str:
    import nvidia.nvshmem
    return str(Path(list(nvidia.nvshmem.__path__)[0]) / "lib" / "libnvshmem_host.so.3")


def enter_device(cuda: ctypes.CDLL, device: int) -> None:
    context = ctypes.c_void_p()
    check("cuInit", cuda.cuInit(0))
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))


def start(nvshmem: ctypes.CDLL, rank: int, link: Connection) -> None:
    identity = versioned(UniqueId)
    if rank == 0:
        check("nvshmemx_get_uniqueid", nvshmem.nvshmemx_get_uniqueid(ctypes.byref(identity)))
        link.send_bytes(bytes(identity))
    else:
        identity = UniqueId.from_buffer_copy(link.recv_bytes())
    attributes = versioned(Attributes)
    attributes.arguments = versioned(Arguments)
    attributes.arguments.uid = versioned(UniqueIdArguments)
    check("nvshmemx_set_attr_uniqueid_args", nvshmem.nvshmemx_set_attr_uniqueid_args(
        rank, RANKS, ctypes.byref(identity), ctypes.byref(attributes)))
    check("nvshmemx_hostlib_init_attr",
          nvshmem.nvshmemx_hostlib_init_attr(WITH_UNIQUEID, ctypes.byref(attributes)))


def exchange(nvshmem: ctypes.CDLL, cuda: ctypes.CDLL, rank: int, block: int, size: int) -> None:
    """Put the own lower half into the other block's upper half."""
    half = size // 2
    check("cuMemsetD8", cuda.cuMemsetD8_v2(ctypes.c_uint64(block), ctypes.c_ubyte(rank + 1),
                                           ctypes.c_size_t(size)))
    check("cuCtxSynchronize", cuda.cuCtxSynchronize())
    symmetric = nvshmem.nvshmemx_buffer_register_symmetric(ctypes.c_void_p(block),
                                                           ctypes.c_size_t(size), 0)
    if not symmetric:
        raise SystemExit("nvshmemx_buffer_register_symmetric: no address")
    nvshmem.nvshmem_barrier_all()
    nvshmem.nvshmem_putmem(ctypes.c_void_p(symmetric + half), ctypes.c_void_p(block),
                           ctypes.c_size_t(half), 1 - rank)
    nvshmem.nvshmem_barrier_all()
    byte = (ctypes.c_ubyte * half)()
    check("cuMemcpyDtoH", cuda.cuMemcpyDtoH_v2(byte, ctypes.c_uint64(block + half),
                                               ctypes.c_size_t(half)))
    print(f"rank {rank}: {size >> 20} MiB, from the other rank: {set(bytes(byte))}", flush=True)
    if set(bytes(byte)) != {2 - rank}:
        raise SystemExit(f"rank {rank}: expected {2 - rank} everywhere")
    nvshmem.nvshmem_barrier_all()
    check("nvshmemx_buffer_unregister_symmetric", nvshmem.nvshmemx_buffer_unregister_symmetric(
        ctypes.c_void_p(symmetric), ctypes.c_size_t(size)))


def work(rank: int, link: Connection, library: str) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    enter_device(cuda, rank)
    nvshmem = ctypes.CDLL(nvshmem_path(), mode=ctypes.RTLD_GLOBAL)
    nvshmem.nvshmemx_buffer_register_symmetric.restype = ctypes.c_void_p
    gpualloc = ctypes.CDLL(library)
    start(nvshmem, rank, link)
    heap = ctypes.c_void_p()
    check("ga_heap_open", gpualloc.ga_heap_open(ctypes.byref(heap), PLACE_DEVICE, rank,
                                                b"vmm:register=on"))
    for size in SIZES:
        block = ctypes.c_void_p()
        check("ga_alloc", gpualloc.ga_alloc(heap, ctypes.c_size_t(size), ctypes.c_size_t(0),
                                            ctypes.byref(block)))
        exchange(nvshmem, cuda, rank, block.value or 0, size)
        check("ga_free", gpualloc.ga_free(heap, block))
    check("ga_heap_close", gpualloc.ga_heap_close(heap))
    nvshmem.nvshmemx_hostlib_finalize()


def main() -> int:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        nvshmem_path()
    except (ImportError, OSError) as error:
        print(error)
        return 77
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value < RANKS:
        print("two devices are needed")
        return 77
    spawn = multiprocessing.get_context("spawn")
    ends = spawn.Pipe()
    ranks = [spawn.Process(target=work, args=(rank, ends[rank], sys.argv[1]))
             for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return max(abs(process.exitcode or 0) for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
