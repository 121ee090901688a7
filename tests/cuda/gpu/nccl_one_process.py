#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All-reduce with NCCL between the two devices of one process: plain, with buffers that are
registered (ncclCommRegister), and in a captured graph, in which NCCL registers buffers by
itself.

NCCL asks the driver for the address range and the handle behind each buffer. If the results
do not match each other, a registered collective hangs or warns. The sums are checked, and
NCCL_DEBUG=WARN shows NCCL's warnings: `gpu-run` fails on a line "NCCL WARN".

Exit status 77: fewer than two devices, or no NCCL.
"""

import ctypes
import sys

SIZES = [1000, 1 << 18, 1 << 20, 3 << 20, 16 << 20]  # floats
FLOAT, SUM = 7, 0  # ncclFloat32, ncclSum


def library() -> ctypes.CDLL:
    import nvidia.nccl  # of PyPI's package; otherwise the loader's
    folder = list(nvidia.nccl.__path__)[0]
    return ctypes.CDLL(folder + "/lib/libnccl.so.2")


def check(status: int) -> None:
    if status:
        raise SystemExit(f"nccl: error {status}")


class Both:
    """Communicators, streams and buffers of two devices."""

    def __init__(self, torch: object, nccl: ctypes.CDLL) -> None:
        self.torch, self.nccl = torch, nccl
        self.comms = (ctypes.c_void_p * 2)()
        check(nccl.ncclCommInitAll(self.comms, 2, (ctypes.c_int * 2)(0, 1)))
        self.streams = [torch.cuda.Stream(d) for d in (0, 1)]

    def buffers(self, size: int) -> list:
        return [self.torch.full((size,), float(d + 1), device=f"cuda:{d}") for d in (0, 1)]

    def reduce(self, buffers: list) -> None:
        check(self.nccl.ncclGroupStart())
        for d in (0, 1):
            address = ctypes.c_void_p(buffers[d].data_ptr())
            check(self.nccl.ncclAllReduce(address, address, ctypes.c_size_t(buffers[d].numel()),
                                          FLOAT,
                                          SUM, ctypes.c_void_p(self.comms[d]),
                                          ctypes.c_void_p(self.streams[d].cuda_stream)))
        check(self.nccl.ncclGroupEnd())

    def wait(self) -> None:
        for d in (0, 1):
            self.torch.cuda.synchronize(d)

    def plain(self, size: int) -> list:
        buffers = self.buffers(size)
        self.wait()
        self.reduce(buffers)
        self.wait()
        return buffers

    def registered(self, size: int) -> list:
        buffers, handles = self.buffers(size), [ctypes.c_void_p() for _ in (0, 1)]
        self.wait()
        for d in (0, 1):
            check(self.nccl.ncclCommRegister(
                ctypes.c_void_p(self.comms[d]), ctypes.c_void_p(buffers[d].data_ptr()),
                ctypes.c_size_t(buffers[d].numel() * 4), ctypes.byref(handles[d])))
        self.reduce(buffers)
        self.wait()
        for d in (0, 1):
            check(self.nccl.ncclCommDeregister(ctypes.c_void_p(self.comms[d]), handles[d]))
        return buffers

    def captured(self, size: int) -> list:
        """Both devices in one graph: an event joins the second stream to the capture."""
        torch = self.torch
        buffers = self.buffers(size)
        self.wait()
        graph, joined, done = torch.cuda.CUDAGraph(), torch.cuda.Event(), torch.cuda.Event()
        with torch.cuda.device(0), torch.cuda.stream(self.streams[0]):
            graph.capture_begin(capture_error_mode="relaxed")
            joined.record(self.streams[0])
            self.streams[1].wait_event(joined)
            self.reduce(buffers)
            with torch.cuda.device(1):
                done.record(self.streams[1])
            self.streams[0].wait_event(done)
            graph.capture_end()
            graph.replay()
        self.wait()
        return buffers


def main() -> int:
    try:
        import torch
        nccl = library()
    except (ImportError, OSError) as error:
        print(f"not here: {error}")
        return 77
    if torch.cuda.device_count() < 2:
        print("fewer than two devices")
        return 77
    both = Both(torch, nccl)
    for way in (both.plain, both.registered, both.captured):
        for size in SIZES:
            sums = [float(b.sum(dtype=torch.float64)) for b in way(size)]
            if sums != [3.0 * size] * 2:
                print(f"{way.__name__}, {size} floats: sums {sums}, expected {3.0 * size}")
                return 1
        print(f"{way.__name__}: {len(SIZES)} sizes, sums right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
