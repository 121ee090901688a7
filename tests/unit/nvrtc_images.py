#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile a CUDA source by NVRTC: the compiler of another CUDA release needs no more than its
library, and no GPU.

  nvrtc_images.py LIBNVRTC SOURCE ARCHITECTURE=CUBIN...
"""

import ctypes as c
import sys
from pathlib import Path

# NVRTC has no headers of the C library.
HEADERS = {
    b"cassert": b"""
        extern "C" __device__ void __assertfail(const char *what, const char *file, unsigned line,
                                                const char *function, size_t size);
        #define assert(e) ((e) ? (void)0 : __assertfail(#e, __FILE__, __LINE__, __func__, 1))
        """,
    b"cstdio": b"",
}


def compiled(nvrtc: c.CDLL, source: bytes, architecture: str) -> bytes:
    program, size = c.c_void_p(), c.c_size_t()

    def text(call: str) -> bytes:
        getattr(nvrtc, f"nvrtcGet{call}Size")(program, c.byref(size))
        room = c.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{call}")(program, room)
        return room.raw

    names = (c.c_char_p * len(HEADERS))(*HEADERS)
    contents = (c.c_char_p * len(HEADERS))(*HEADERS.values())
    options = (c.c_char_p * 2)(b"--std=c++17", f"--gpu-architecture=sm_{architecture}".encode())
    if nvrtc.nvrtcCreateProgram(c.byref(program), source, b"source.cu", len(HEADERS), contents,
                                names):
        sys.exit("nvrtcCreateProgram failed")
    if nvrtc.nvrtcCompileProgram(program, len(options), options):
        sys.exit(text("ProgramLog").decode())
    return text("CUBIN")


def main() -> None:
    nvrtc = c.CDLL(sys.argv[1])
    source = Path(sys.argv[2]).read_bytes()
    for pair in sys.argv[3:]:
        architecture, path = pair.split("=", 1)
        Path(path).write_bytes(compiled(nvrtc, source, architecture))


if __name__ == "__main__":
    main()
