#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""MPI between two devices on blocks of several sources: messages both ways, and all-reduces.

  mpirun -n 2 mpi_buffers.py LIBGPUALLOC [--reduce] [--first] [--plain]

For an MPI that takes addresses of devices, which mpi4py loads: MPI4PY_LIBMPI names its library. A
rank has a block of each source; rank 0 sends, rank 1 receives and checks, and back. With --reduce
also sums of both, which an MPI without kernels for CUDA cannot make; with --first each rank sees
its own device first; with --plain only memory of cuMemAlloc, which a preload may serve. Exit status
77: fewer than two devices, or no mpi4py.
"""

import ctypes
import sys
import time

SIZE = 64 << 20
MESSAGES = 10
PLACE_DEVICE = 1
SHARE_FD = 1
SOURCES = ["cuMemAlloc", "vmm:register=on", "vmm:share=fd", "an arena, share=fd"]


class ArenaOptions(ctypes.Structure):
    _fields_ = [("options_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("place", ctypes.c_int), ("device", ctypes.c_int), ("reserve", ctypes.c_uint64),
                ("limit", ctypes.c_uint64), ("chunk", ctypes.c_uint64),
                ("chunk_max", ctypes.c_uint64), ("peers", ctypes.c_void_p),
                ("peer_count", ctypes.c_uint32)]


class OnDevice:
    """What mpi4py takes as memory of a device."""

    def __init__(self, start: int, words: int) -> None:
        self.__cuda_array_interface__ = {"shape": (words,), "typestr": "<u4", "version": 3,
                                         "data": (start, False), "strides": None}


def check(what: str, status: int) -> None:
    if status:
        raise SystemExit(f"{what}: error {status}")


def bus_of(cuda: ctypes.CDLL, device: int) -> str:
    name = ctypes.create_string_buffer(32)
    check("cuDeviceGetPCIBusId", cuda.cuDeviceGetPCIBusId(name, len(name), device))
    return name.value.decode()


class Block:
    def __init__(self, library: ctypes.CDLL, cuda: ctypes.CDLL, source: str, device: int) -> None:
        self.library, self.cuda = library, cuda
        self.heap, self.arena = ctypes.c_void_p(), ctypes.c_void_p()
        at = ctypes.c_void_p()
        if source == "cuMemAlloc":
            check(source, cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(SIZE)))
        elif source.startswith("vmm"):
            check("ga_heap_open", library.ga_heap_open(ctypes.byref(self.heap), PLACE_DEVICE,
                                                       device, source.encode()))
            check("ga_alloc", library.ga_alloc(self.heap, ctypes.c_size_t(SIZE),
                                               ctypes.c_size_t(0), ctypes.byref(at)))
        else:
            options = ArenaOptions(options_size=ctypes.sizeof(ArenaOptions), flags=SHARE_FD,
                                   place=PLACE_DEVICE, device=device, reserve=4 * SIZE)
            check("ga_arena_open", library.ga_arena_open(ctypes.byref(self.arena),
                                                         ctypes.byref(options)))
            check("ga_arena_grow", library.ga_arena_grow(self.arena, ctypes.c_uint64(SIZE)))
            at = ctypes.c_void_p(library.ga_arena_base(self.arena))
        self.start = at.value or 0

    def free(self) -> None:
        if self.arena:
            self.library.ga_arena_close(self.arena)
        elif self.heap:
            check("ga_free", self.library.ga_free(self.heap, ctypes.c_void_p(self.start)))
            check("ga_heap_close", self.library.ga_heap_close(self.heap))
        else:
            check("cuMemFree", self.cuda.cuMemFree_v2(ctypes.c_uint64(self.start)))

    def fill(self, words) -> None:
        check("cuMemcpyHtoD", self.cuda.cuMemcpyHtoD_v2(
            ctypes.c_uint64(self.start), words.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(SIZE)))
        check("cuCtxSynchronize", self.cuda.cuCtxSynchronize())

    def read(self, words) -> None:
        check("cuMemcpyDtoH", self.cuda.cuMemcpyDtoH_v2(
            words.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.start),
            ctypes.c_size_t(SIZE)))


def main() -> int:
    try:
        import numpy
        cuda = ctypes.CDLL("libcuda.so.1")
        from mpi4py import MPI
    except (ImportError, OSError, RuntimeError) as error:
        print(error)
        return 77
    library = ctypes.CDLL(sys.argv[1])
    library.ga_arena_base.restype = ctypes.c_void_p
    comm = MPI.COMM_WORLD
    rank, context, count = comm.Get_rank(), ctypes.c_void_p(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value < 1:
        print("two devices are needed")
        return 77
    # An MPI may let each rank see one alone.
    device = 0 if "--first" in sys.argv else rank % count.value
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    buses = comm.allgather(bus_of(cuda, device))
    if len(set(buses)) < 2:
        print("two devices are needed")
        return 77
    if rank == 0:
        print(MPI.Get_library_version().splitlines()[0], *buses, flush=True)
    pattern = numpy.arange(SIZE // 4, dtype=numpy.uint32) * numpy.uint32(2654435761)
    got, failed = numpy.empty_like(pattern), 0
    for number, source in enumerate(SOURCES[:1] if "--plain" in sys.argv else SOURCES):
        block = Block(library, cuda, source, device)
        buffer = OnDevice(block.start, SIZE // 4)
        salted = pattern + numpy.uint32(number)
        for sender in (0, 1):
            block.fill(salted if rank == sender else numpy.zeros_like(pattern))
            comm.Barrier()
            if rank == sender:
                comm.Send([buffer, MPI.UINT32_T], 1 - rank)
            else:
                comm.Recv([buffer, MPI.UINT32_T], sender)
                block.read(got)
                good = bool((got == salted).all())
                failed += not good
                print(f"{source}: rank {rank} received: {'yes' if good else 'NO'}", flush=True)
            comm.Barrier()
        begin = time.monotonic()
        for _ in range(MESSAGES):
            if rank == 0:
                comm.Send([buffer, MPI.UINT32_T], 1)
            else:
                comm.Recv([buffer, MPI.UINT32_T], 0)
        if rank == 1:
            rate = SIZE * MESSAGES / (time.monotonic() - begin) / 1e9
            print(f"{source}: messages of {SIZE >> 20} MiB: {rate:.1f} GB/s", flush=True)
        if "--reduce" in sys.argv:
            block.fill(salted)
            comm.Barrier()
            comm.Allreduce(MPI.IN_PLACE, [buffer, MPI.UINT32_T])
            block.read(got)
            good = bool((got == 2 * salted).all())
            failed += not good
            print(f"{source}: rank {rank} has the sum: {'yes' if good else 'NO'}", flush=True)
        comm.Barrier()
        block.free()
    return failed != 0


def guarded() -> int:
    """A rank that fails ends the others."""
    try:
        return main()
    except Exception as error:  # of MPI, too
        print(error, flush=True)
        from mpi4py import MPI
        MPI.COMM_WORLD.Abort(1)
        return 1


if __name__ == "__main__":
    sys.exit(guarded())
