#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tensors of PyTorch in one arena of the card, which several processes read.

  torch_weights.py publish @weights   puts the tensors of a small model there, until its input ends
  torch_weights.py read @weights      maps them, and multiplies by them

The arena begins with 1 MiB for their names, types, shapes and offsets, as JSON. The library is the
one that GPUALLOC_LIBRARY names, or libgpualloc.so.0. The tensors are valid until the arena is
closed; this program leaves that to its end.
"""

import ctypes
import json
import os
import sys

import torch

GPU = ctypes.CDLL(os.environ.get("GPUALLOC_LIBRARY", "libgpualloc.so.0"))
GPU.ga_arena_base.restype = ctypes.c_void_p
GPU.ga_arena_size.restype = ctypes.c_uint64
GPU.ga_error_text.restype = ctypes.c_char_p
SHARE_FD, PLACE_DEVICE, READ = 1, 1, 1
HEADER = 1 << 20


class Options(ctypes.Structure):
    _fields_ = [("options_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("place", ctypes.c_int), ("device", ctypes.c_int),
                ("reserve", ctypes.c_uint64), ("limit", ctypes.c_uint64),
                ("chunk", ctypes.c_uint64), ("chunk_max", ctypes.c_uint64),
                ("peers", ctypes.c_void_p), ("peer_count", ctypes.c_uint32)]


class Memory:
    """The bytes of an arena, for torch.as_tensor(). PyTorch knows no read-only tensors: a write to
    an arena that was opened with READ is a fault in this process."""

    def __init__(self, arena: ctypes.c_void_p) -> None:
        self.__cuda_array_interface__ = {
            "shape": (GPU.ga_arena_size(arena),), "typestr": "|u1", "version": 3,
            "data": (GPU.ga_arena_base(arena), False)}


def check(status: int) -> None:
    if status:
        sys.exit(f"torch_weights: {GPU.ga_error_text().decode()}")


def bytes_of(arena: ctypes.c_void_p) -> torch.Tensor:
    return torch.as_tensor(Memory(arena), device="cuda")


def publish(name: str, weights: dict[str, torch.Tensor]) -> ctypes.c_void_p:
    table, end = {}, HEADER
    for key, tensor in weights.items():
        table[key] = (str(tensor.dtype).split(".")[1], list(tensor.shape), end)
        end += (tensor.nbytes + 255) // 256 * 256
    arena = ctypes.c_void_p()
    options = Options(options_size=ctypes.sizeof(Options), flags=SHARE_FD, place=PLACE_DEVICE)
    check(GPU.ga_arena_open(ctypes.byref(arena), ctypes.byref(options)))
    check(GPU.ga_arena_grow(arena, ctypes.c_uint64(end)))
    text = json.dumps(table).encode().ljust(HEADER)
    bytes_of(arena)[:HEADER] = torch.frombuffer(bytearray(text), dtype=torch.uint8).cuda()
    for key, tensor in tensors(arena).items():
        tensor.copy_(weights[key])
    torch.cuda.synchronize()
    check(GPU.ga_arena_publish(arena, name.encode()))
    return arena


def tensors(arena: ctypes.c_void_p) -> dict[str, torch.Tensor]:
    memory, found = bytes_of(arena), {}
    for key, (kind, shape, at) in json.loads(bytes(memory[:HEADER].tolist())).items():
        dtype = getattr(torch, kind)
        size = torch.Size(shape).numel() * dtype.itemsize
        found[key] = memory[at:at + size].view(dtype).view(shape)
    return found


def read(name: str) -> dict[str, torch.Tensor]:
    arena = ctypes.c_void_p()
    check(GPU.ga_arena_join(ctypes.byref(arena), name.encode(), READ))
    return tensors(arena)


def main() -> None:
    torch.cuda.init()
    if sys.argv[1] == "publish":
        model = {"up.weight": torch.eye(1024, dtype=torch.float16) * 3,
                 "bias": torch.full((1024,), 0.5)}
        publish(sys.argv[2], model)
        print("published", flush=True)
        sys.stdin.read()
    else:
        model = read(sys.argv[2])
        y = torch.ones(1, 1024, dtype=torch.float16, device="cuda") @ model["up.weight"]
        print("sum", (y.float() + model["bias"]).sum().item(), flush=True)


main()
