#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python module, with stand-ins for the frameworks and for the driver."""

import os
import subprocess

import package

class Frameworks(package.Case):
    def test_torch(self) -> None:
        """All tensors are blocks, and PyTorch's own statistics show them."""
        told = self.python("""
import gpualloc, torch
print(gpualloc.enable("vmm"), torch.cuda.memory_stats_as_nested_dict())
a, b = torch.empty(5 << 20), torch.empty(3 << 20)
address = b.block
del a
stats = gpualloc.stats()
print(stats["allocs"], stats["frees"], stats["live_blocks"])
assert torch.cuda.memory_allocated() == torch.cuda.memory_allocated("cuda") == stats["live_bytes"]
assert torch.cuda.memory_stats("cuda:0")["allocation.all.allocated"] == 2
assert 8 << 20 <= torch.cuda.max_memory_allocated() and 3 << 20 <= torch.cuda.memory_reserved(0)
segment, = torch.cuda.memory_snapshot()
assert segment["address"] == address and segment["blocks"][0]["size"] >= 3 << 20
assert len(torch.cuda.memory.current.inner.functions) == 5
""")
        self.assertEqual("('torch',) {}\n2 1 1", told)

    def test_torch_that_is_initialized(self) -> None:
        told = self.python("""
import gpualloc, torch
torch.cuda.initialized = True
gpualloc.enable("vmm")
""", fails=True)
        self.assertEqual("gpualloc._library.Error: PyTorch: Can't swap an already initialized "
                         "allocator; call gpualloc.enable() before CUDA is initialized", told)

    def test_torch_keeps_its_peak(self) -> None:
        told = self.python("""
import gpualloc, torch
gpualloc.enable("vmm")
torch.cuda.reset_peak_memory_stats()
""", fails=True)
        self.assertIn("reset_peak_memory_stats: a heap keeps its peak", told)

    def test_cupy(self) -> None:
        """CuPy's pool stays in front, and is the one that CuPy returns."""
        told = self.python("""
import cupy, gpualloc
gpualloc.enable("vmm", "cupy")
a = cupy.empty(5 << 20)
assert cupy.get_default_memory_pool().used_bytes() == 5 << 20
assert [block.address for block in gpualloc.snapshot()] == [a.block]
try:
    cupy.empty(1 << 50)
except cupy.cuda.memory.OutOfMemoryError as error:
    print(error)
""")
        self.assertRegex(told, r"^1125899906842624 bytes beside \d+$")

    def test_numba(self) -> None:
        told = self.python("""
import gpualloc
from numba import cuda
print(gpualloc.enable("vmm"))
a = cuda.device_array(5 << 20)
assert gpualloc.snapshot()[0].address == a.pointer.value
del a
print(gpualloc.stats()["frees"])
assert cuda.manager.get_memory_info().total > 0
cuda.device_array(1 << 50)
""", fails=True)
        self.assertRegex(told, "^MemoryError: .+")

    def test_rmm(self) -> None:
        told = self.python("""
import gpualloc, rmm
gpualloc.enable("async")
a = rmm.DeviceBuffer(1000)
del a
print(gpualloc.stats()["frees"])
try:
    rmm.DeviceBuffer(1 << 50)
except MemoryError as error:
    print(type(error).__name__)
""")
        self.assertEqual("1\nMemoryError", told)

    def test_several(self) -> None:
        told = self.python("""
import cupy, gpualloc, rmm
print(gpualloc.enable("vmm"))
import torch
print(gpualloc.enable("vmm"))
keep = cupy.empty(1 << 20), rmm.DeviceBuffer(1 << 20), torch.empty(1 << 20)
print(gpualloc.stats()["live_blocks"])
gpualloc.enable("async")
""", fails=True)
        self.assertIn('the heaps are open with the spec "vmm"; expected the same, got "async"',
                      told)

    def test_no_framework(self) -> None:
        for imports, words in (("", "expected one of these to be imported: torch, cupy"),
                               ("sys.modules['jax'] = sys", "JAX takes no allocator")):
            told = self.python(f"import gpualloc, sys\n{imports}\ngpualloc.enable('vmm')",
                               fails=True)
            self.assertIn(words, told)
        told = self.python("import gpualloc\ngpualloc.enable('vmm', 'tensorflow')", fails=True)
        self.assertIn('unknown framework "tensorflow"; known: torch, cupy, numba, rmm', told)

    def test_bad_specs(self) -> None:
        """Refused by the library's words, before a framework is changed."""
        for spec, status, words in (("vmmm", "SPEC", 'unknown backend "vmmm"'),
                                    ("vmm:limit=x", "SPEC", "limit"),
                                    ("jemalloc", "PLACE", "device")):
            told = self.python(f"""
import cupy, gpualloc
try:
    gpualloc.enable({spec!r})
except gpualloc.Error as error:
    print(error.status, error)
assert cupy._default_memory_pool.malloc_below is None
gpualloc.enable("vmm")
""")
            self.assertTrue(told.startswith(status + " "), told)
            self.assertIn(words, told)

    def test_no_device(self) -> None:
        told = self.python("import cupy, gpualloc\ngpualloc.enable('vmm')", fails=True,
                           variables={"LD_LIBRARY_PATH": "", "GPUALLOC_CUDA_DRIVER": "/none.so"})
        self.assertRegex(told, r"^gpualloc\._library\.Error: .*/none\.so")
        told = self.python("import cupy, gpualloc\ngpualloc.enable('vmm', device=77)", fails=True)
        self.assertIn("77", told)


class Heaps(package.Case):
    def test_limit(self) -> None:
        told = self.python("""
import gpualloc, torch
gpualloc.enable("vmm")
gpualloc.limit(8 << 20)
a = torch.empty(5 << 20)
try:
    torch.empty(5 << 20)
except MemoryError:
    print("refused")
gpualloc.limit(None)
b = torch.empty(5 << 20)
gpualloc.limit(-1)
""", fails=True)
        self.assertIn("expected a size from 0 to 18446744073709551614 bytes, or None, got -1", told)

    def test_before_enable(self) -> None:
        for call in ("limit(1)", "stats()", "snapshot()"):
            told = self.python(f"import gpualloc\ngpualloc.{call}", fails=True)
            self.assertIn("no framework is enabled: call gpualloc.enable() first", told)

    def test_backend_without_a_list(self) -> None:
        told = self.python("""
import gpualloc, torch
gpualloc.enable("cuda")
try:
    gpualloc.snapshot()
except gpualloc.Error as error:
    print(error.status, error)
""")
        self.assertRegex(told, "^UNSUPPORTED cuda.* list of its live blocks")

    def test_threads(self) -> None:
        """Each thread has the text of its own errors."""
        told = self.python("""
import gpualloc, threading, torch
gpualloc.enable("vmm")
wrong = []
def work(device):
    for _ in range(200):
        keep = torch.empty(1 << 20)
        gpualloc.snapshot()
        try:
            gpualloc.stats(device)
        except gpualloc.Error as error:
            if f" {device}:" not in str(error):
                wrong.append(str(error))
threads = [threading.Thread(target=work, args=(1000 + i,)) for i in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(wrong[:3], gpualloc.stats()["live_blocks"])
""")
        self.assertEqual("[] 0", told)


    def test_thread_local_storage_of_jemalloc(self) -> None:
        """The library is loaded while threads run, and serves them and later ones."""
        told = self.python("""
import ctypes, gpualloc, threading
opened, wrong = threading.Event(), []
heap = ctypes.c_void_p()
def work():
    opened.wait()
    library = gpualloc._library.library()
    for i in range(2000):
        block = ctypes.c_void_p()
        if library.ga_alloc(heap, ctypes.c_size_t(i * 7), 0, ctypes.byref(block)):
            wrong.append(gpualloc._library.text())
            break
        ctypes.memset(block, 1, i * 7)
        library.ga_free(heap, block)
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads[:4]]
status = gpualloc._library.library().ga_heap_open(ctypes.byref(heap), 0, 0, b"jemalloc")
opened.set()
[thread.start() for thread in threads[4:]]
[thread.join() for thread in threads]
print(status or wrong, gpualloc._library.text())
""")
        if 'unknown backend "jemalloc"' in told:
            self.skipTest("no jemalloc in this build")
        self.assertEqual("[]", told)


class Environment(package.Case):
    def test_library_that_cannot_be_loaded(self) -> None:
        """As on musl, or in a 32-bit Python: one line."""
        library = self.package / "lib/libgpualloc.so.0"
        library.unlink()
        library.write_text("not for this Python", encoding="utf-8")
        told = self.python("import cupy, gpualloc\ngpualloc.enable('vmm')", fails=True)
        self.assertRegex(told, "^gpualloc._library.Error: .*/libgpualloc.so.0: .*; expected a "
                               "64-bit Python on glibc 2.28 or later$")

    def test_import_loads_little(self) -> None:
        told = self.python("""
import sys
before = set(sys.modules)
import gpualloc
print(sorted({name.partition(".")[0] for name in set(sys.modules) - before}
             & {"subprocess", "importlib", "inspect", "asyncio", "json"}))
print("libgpualloc" in open("/proc/self/maps").read())
""")
        self.assertEqual("[]\nFalse", told)

    def test_env(self) -> None:
        """A program that is started with it has the preloads, behind which others stay."""
        told = self.python("""
import gpualloc, os, subprocess, sys
told = gpualloc.env("vmm", host="slab/system", stats="/dev/null")
print(sorted(told))
program = "print(*{line.split('/')[-1].strip() for line in open('/proc/self/maps')})"
print(subprocess.run([sys.executable, "-c", program], env={**os.environ, **told}, text=True,
                     stdout=subprocess.PIPE, check=True).stdout)
other = gpualloc.env(host="slab", environ={"LD_PRELOAD": "libm.so.6"})["LD_PRELOAD"]
print(other.endswith(":libm.so.6"), gpualloc.env(host="slab", environ={})["GPUALLOC_HOST"])
try:
    gpualloc.env(host="slabb")
except gpualloc.Error as error:
    print(error)
""")
        names, maps, _, other, error = told.splitlines()
        self.assertEqual(str(["GPUALLOC_DEVICE", "GPUALLOC_HOST", "GPUALLOC_STATS", "LD_PRELOAD"]),
                         names)
        self.assertLessEqual({"libgpualloc-malloc.so", "libgpualloc-cuda.so"}, set(maps.split()))
        self.assertEqual("True slab", other)
        self.assertRegex(error, r'^gpualloc env: .*unknown backend "slabb"')

    def test_command_by_the_module(self) -> None:
        """Also where a file's permission was lost, as `python3 -m zipfile` loses it."""
        command = self.package / "bin/gpualloc"
        command.unlink()
        command.write_text("#!/bin/sh\necho ran \"$@\"\n", encoding="utf-8")
        command.chmod(0o644)
        done = subprocess.run([package.INTERPRETER, "-m", "gpualloc", "run", "a b"], text=True,
                              env=os.environ | {"PYTHONPATH": str(self.folder)},
                              capture_output=True, timeout=60)
        self.assertEqual("ran run a b\n", done.stdout, done.stderr)

    def test_types(self) -> None:
        python = package.SOURCE.parent / ".deps/venv/bin/python3"
        if not python.exists() or subprocess.run([python, "-m", "mypy", "--version"],
                                                 capture_output=True).returncode:
            self.skipTest("no mypy")
        done = subprocess.run([python, "-m", "mypy", "--strict", "--cache-dir=/dev/null",
                               self.package], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout)


if __name__ == "__main__":
    package.main()
