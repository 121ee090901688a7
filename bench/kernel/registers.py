#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The registers of kernels that call malloc and free in kernels and do nothing else (registers.cu):
with one backend that is chosen at compile time, with the backend that the view names at run time,
and linked with libgpualloc-kernel.a, whose spec is chosen at run time; CUDA's own beside them.

    bench/kernel/registers.py [--build DIR] [--nvcc NVCC] [--arch sm_90]

Each without a limit and limited to 40, with the bytes that rarely executed code then spills to the
stack. Needs nvcc, no GPU; the archive is the build's."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REGISTERS_MAX = 40  # as the functions of libgpualloc-kernel.a
KERNELS = {"take": "malloc", "give_back": "free"}
COMPILED = {
    "one backend, slab": ["-DGA_KERNEL_ONLY=GA_KERNEL_KIND_SIZED"],
    "one backend, coalesce/slab": ["-DGA_KERNEL_ONLY=GA_KERNEL_KIND_COALESCE",
                                   "-DGA_COALESCE_ONLY_SIZED"],
    "one backend, coalesce": ["-DGA_KERNEL_ONLY=GA_KERNEL_KIND_COALESCE"],
    "run-time switch": [],
}


def run(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"registers.py: {' '.join(str(word) for word in words)}:\n{done.stderr}")
    return done.stdout + done.stderr


def properties(said: str) -> dict[str, tuple[int, int]]:
    """By kernel its registers and bytes of stack, as ptxas and nvlink say them."""
    found: dict[str, tuple[int, int]] = {}
    kernel, stack = "", 0
    for line in said.splitlines():
        if name := re.search(r"(?:entry function|properties for) '?_Z\d+([a-z_]+?)14ga_", line):
            kernel = name[1]
        if frame := re.search(r"(\d+) (?:bytes )?stack", line):
            stack = int(frame[1])
        if used := re.search(r"[Uu]sed (\d+) registers", line):
            found[kernel] = (int(used[1]), stack)
    return found


def compiled(arguments: argparse.Namespace, flags: list[str]) -> dict[str, tuple[int, int]]:
    with tempfile.TemporaryDirectory() as folder:
        return properties(run(arguments.nvcc, "-cubin", "-std=c++17", "-O3",
                              f"-arch={arguments.arch}",
                              "-I", HERE / "../../liballoc/include", *flags, "-Xptxas=-v", "-o",
                              f"{folder}/out.cubin", HERE / "registers.cu"))


def linked(arguments: argparse.Namespace, *archive: pathlib.Path) -> dict[str, tuple[int, int]]:
    with tempfile.TemporaryDirectory() as folder:
        run(arguments.nvcc, "-dc", "-DLINKED", "-std=c++17", "-O3", f"-arch={arguments.arch}", "-I",
            HERE / "../../liballoc/include", "-o", f"{folder}/own.o", HERE / "registers.cu")
        return properties(run(arguments.nvcc, "-dlink", f"-arch={arguments.arch}", "-Xnvlink=-v",
                              "-o", f"{folder}/linked.o", f"{folder}/own.o", *archive))


def row(name: str, *measured: dict[str, tuple[int, int]]) -> str:
    cells = []
    for found in measured:
        if set(found) != set(KERNELS):
            sys.exit(f"registers.py: {name}: expected both kernels, nvcc named {sorted(found)}")
        cells += [f"{found[kernel][0]} ({found[kernel][1]})" for kernel in KERNELS]
    return f"| {name} | " + " | ".join(cells + [""] * (4 - len(cells))) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE / "../../build/gpu")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", default="sm_90")
    arguments = parser.parse_args()
    archive = arguments.build / "interpose/kernel/libgpualloc-kernel.a"
    if not archive.exists():
        parser.error("--build: expected a build with libgpualloc-kernel.a, "
                     f"\"{archive}\" is not there")
    print(f"registers (bytes of stack), {arguments.arch}, "
          f"nvcc {re.search(r'release ([0-9.]+)', run(arguments.nvcc, '--version'))[1]}\n")
    print(f"| | malloc, free choice | free | malloc, held to {REGISTERS_MAX} | free |\n"
          "|---|---|---|---|---|")
    for name, flags in COMPILED.items():
        held = compiled(arguments, flags + [f"-maxrregcount={REGISTERS_MAX}"])
        print(row(name, compiled(arguments, flags), held), flush=True)
    print(row("CUDA's own", linked(arguments)))
    print(row("linked, run-time spec", linked(arguments, archive)))


if __name__ == "__main__":
    main()
