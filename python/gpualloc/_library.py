# SPDX-License-Identifier: MIT
"""libgpualloc.so by ctypes: the functions of gpualloc/frameworks.h, with errors as exceptions."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import NamedTuple, Optional, TypedDict

PREFIX = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(PREFIX, "lib", "libgpualloc.so.0")
NO_LIMIT = 2**64 - 1
STATUSES = ("OK", "SPEC", "PLACE", "DEVICE", "MEMORY", "SIZE", "ALIGN", "POINTER", "CANNOT_GROW",
            "UNSUPPORTED", "ARGUMENT", "LIBRARY", "ABI", "IO")


class Error(RuntimeError):
    """A call failed. The text is the library's; `status` is the name of its ga_status, such as
    "SPEC", or "" if the error is not the library's."""

    def __init__(self, text: str, status: str = "") -> None:
        super().__init__(text)
        self.status = status


class Stats(TypedDict):
    """The members of ga_stats (gpualloc.h), in bytes or blocks."""

    allocs: int
    frees: int
    reallocs: int
    failures: int
    live_blocks: int
    live_bytes: int
    peak_bytes: int
    requested_bytes: int
    granted_bytes: int
    held_bytes: int
    growths: int


class Block(NamedTuple):
    """A live block: its address, and its usable bytes."""

    address: int
    size: int


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Stats.__annotations__]


class _Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_size_t), ("size", ctypes.c_size_t)]


_SIGNATURES = {
    "ga_error_text": (ctypes.c_char_p,),
    "ga_error_status": (ctypes.c_int,),
    "ga_version_text": (ctypes.c_char_p,),
    "ga_framework_choose": (ctypes.c_int, ctypes.c_char_p),
    "ga_framework_stats": (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Stats)),
    "ga_framework_limit": (ctypes.c_int, ctypes.c_int, ctypes.c_uint64),
    "ga_framework_blocks": (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Block),
                            ctypes.POINTER(ctypes.c_size_t)),
    "ga_framework_alloc": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p),
    "ga_framework_free": (None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p),
    "ga_cupy_malloc": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    "ga_cupy_free": (None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
}


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library of this package, and no other one."""
    try:
        loaded = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise Error(f"{error}; expected a 64-bit Python on glibc 2.28 or later",
                    "LIBRARY") from None
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def address(name: str) -> int:
    """The address of a function, for frameworks that take one as a number."""
    value = ctypes.cast(getattr(library(), name), ctypes.c_void_p).value
    assert value, name
    return value


def text() -> str:
    """The reason of this thread's last failed call."""
    told: bytes = library().ga_error_text()
    return told.decode(errors="replace")


def version() -> str:
    told: bytes = library().ga_version_text()
    return told.decode()


def error(status: int) -> Error:
    """The Error of this thread's last failed call."""
    return Error(text(), STATUSES[status] if status < len(STATUSES) else "")


def check(status: int) -> None:
    """Raise an Error unless the status is GA_OK."""
    if status:
        raise error(status)


def refusal(out_of_memory: Exception) -> Exception:
    """The exception for the request of this thread that has just returned NULL: the one given if
    there was no memory, or the size can never be served, otherwise an Error."""
    told = error(library().ga_error_status())
    return out_of_memory if told.status in ("MEMORY", "SIZE") else told


def choose(spec: Optional[str]) -> None:
    """Set the spec of the heaps that frameworks open; None: that of the environment again. CUDA is
    not started: a program may fork until it uses a device itself."""
    check(library().ga_framework_choose(None if spec is None else os.fsencode(spec)))


def limit(device: int, size: int) -> None:
    check(library().ga_framework_limit(device, size))


def stats(device: int) -> Stats:
    counts = _Stats()
    check(library().ga_framework_stats(device, ctypes.byref(counts)))
    return Stats(**{name: getattr(counts, name) for name in Stats.__annotations__})  # type: ignore


def snapshot(device: int) -> list[Block]:
    count = ctypes.c_size_t(0)
    room = 0
    while True:
        blocks = (_Block * room)()
        count.value = room
        check(library().ga_framework_blocks(device, blocks, ctypes.byref(count)))
        if count.value <= room:
            return sorted(Block(blocks[i].address, blocks[i].size) for i in range(count.value))
        room = count.value + count.value // 8
