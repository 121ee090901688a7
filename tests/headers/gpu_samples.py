#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile the programs of README and docs/ that need a GPU (```cuda gpu), for scripts/gpu-stage.

  gpu_samples.py NVCC LIBGPUALLOC.SO FOLDER

They go to FOLDER/guide-PAGE-LINE, for H100 and H200.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import samples

SOURCE = Path(__file__).resolve().parents[2]


def programs() -> dict[str, str]:
    """The name and the text of each."""
    found = {}
    for page in samples.pages(SOURCE):
        for block in samples.blocks(page):
            if block.language == "cuda" and "gpu" in block.words:
                found[f"guide-{page.stem}-{block.line}"] = block.source()
    return found


def main() -> None:
    nvcc, library, folder = sys.argv[1:]
    for name, text in programs().items():
        with tempfile.NamedTemporaryFile("w", suffix=".cu") as source:
            source.write(text)
            source.flush()
            subprocess.run([nvcc, "-std=c++17", "-arch=sm_90", f"-I{SOURCE}/liballoc/include",
                            "-cudart", "static", "-Xcompiler=-static-libstdc++,-static-libgcc",
                            "-o", f"{folder}/{name}", source.name, "-Xlinker", library],
                           check=True)


if __name__ == "__main__":
    main()
