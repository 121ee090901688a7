#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the look at modules costs programs that do not allocate in kernels: run each several times
without the preload, with it, and with GPUALLOC_KERNEL, in turns, and print the medians.

  start_cost.py LIBGPUALLOC-CUDA.SO [--runs 7] [--kernel slab/vmm] [PROGRAM...]

A PROGRAM may have arguments. torch, cupy and jax are programs that import it for a product of two
matrices, and the default. A program that ends with status 77 cannot run here. Exit status 77: none
ran; 1: one failed.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time

PRODUCTS = {
    "torch": "import torch; a = torch.ones(512, 512, device='cuda'); (a @ a).sum().item()",
    "cupy": "import cupy; a = cupy.ones((512, 512), cupy.float32); float((a @ a).sum())",
    "jax": "import jax.numpy as n; a = n.ones((512, 512)); float((a @ a).sum())",
}


def program_of(name: str) -> str:
    guarded = (f"import importlib.util, sys\n"
               f"if not importlib.util.find_spec({name!r}): sys.exit(77)\n{PRODUCTS[name]}")
    return shlex.join([sys.executable, "-c", guarded])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preload", type=os.path.abspath)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--kernel", default="slab/vmm")
    parser.add_argument("programs", nargs="*")
    return parser.parse_intermixed_args()


def seconds(program: str, variables: dict[str, str]) -> tuple[float, int]:
    began = time.perf_counter()
    status = subprocess.run(shlex.split(program), env=os.environ | variables, check=False,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    return time.perf_counter() - began, status


def measure(name: str, program: str, arguments: argparse.Namespace) -> int:
    preload = {"LD_PRELOAD": arguments.preload}
    ways = {"without": {}, "preload": preload,
            f"--kernel={arguments.kernel}": preload | {"GPUALLOC_KERNEL": arguments.kernel}}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    _, status = seconds(program, {})  # files come from the disk, and caches fill
    for _ in range(arguments.runs if status == 0 else 0):
        for way, variables in ways.items():
            time_taken, status = seconds(program, variables)
            if status:
                print(f"{name} {way}: status {status}")
                return status
            taken[way].append(time_taken)
    print(f"{name}: " + (f"status {status}" if status else ", ".join(
        f"{way} {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f})"
        for way, times in taken.items())), flush=True)
    return status


def main() -> int:
    arguments = parse()
    ended = [measure(name, program_of(name) if name in PRODUCTS else name, arguments)
             for name in arguments.programs or PRODUCTS]
    if any(status not in (0, 77) for status in ended):
        return 1
    return 0 if 0 in ended else 77


if __name__ == "__main__":
    sys.exit(main())
