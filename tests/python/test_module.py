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

    def test_torch_without_cuda(self) -> None:
        """As some other library may have imported it."""
        told = self.python("""
import cupy, gpualloc, torch
torch.version.cuda = None
del torch.cuda.memory.CUDAPluggableAllocator
print(gpualloc.enable("vmm"))
gpualloc.enable("vmm", "torch")
""", fails=True)
        self.assertEqual("gpualloc._library.Error: torch cannot be served: this build of PyTorch "
                         "has no CUDA", told)
        told = self.python("""
import cupy, gpualloc, torch
torch.version.cuda = None
print(gpualloc.enable("vmm"))
""")
        self.assertEqual("('cupy',)", told)

    def test_frameworks_that_cannot_be_served(self) -> None:
        for change, reason in (("sys.modules['cupy'] = None", "import of cupy halted"),
                               ("import cupy; del cupy.cuda.MemoryPool", "'MemoryPool'")):
            told = self.python(f"import gpualloc, sys\n{change}\n"
                               "gpualloc.enable('vmm', 'cupy')", fails=True)
            self.assertRegex(told, f"^gpualloc._library.Error: cupy cannot be served: .*{reason}")

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

    def test_cupy_frees_its_cache(self) -> None:
        """Where there is no memory, CuPy's pool frees its cache and tries again."""
        told = self.python("""
import cupy, gpualloc
gpualloc.enable("vmm")
gpualloc.limit(8 << 20)
a = cupy.empty(6 << 20)
del a
b = cupy.empty(7 << 20)
print(len(gpualloc.snapshot()), cupy.get_default_memory_pool().total_bytes() >> 20)
""")
        self.assertEqual("1 7", told)

    def test_cupy_keeps_streams(self) -> None:
        """A block in CuPy's pool is freed on its stream, which therefore exists until then."""
        told = self.python("""
import cupy, gpualloc, weakref
from numba import cuda
cuda.current_context()
gpualloc.enable("vmm", "cupy")
stream = cupy.cuda.Stream()
there = weakref.ref(stream)
with stream:
    a = cupy.empty(5 << 20)
del a, stream
print(there() is not None, gpualloc.stats()["frees"])
cupy.get_default_memory_pool().free_all_blocks()
print(there() is None, gpualloc.stats()["frees"])
""")
        self.assertEqual("True 0\nTrue 1", told)

    def test_requests_that_fail_otherwise(self) -> None:
        """Not for lack of memory: the library's sentence, in each framework."""
        for imports, request in (("cupy", "cupy.empty(1 << 20)"),
                                 ("rmm", "rmm.DeviceBuffer(1 << 20)"),
                                 ("numba.cuda", "numba.cuda.device_array(1 << 20)")):
            told = self.python(f"""
import gpualloc, os, sys
import {imports}
gpualloc.enable("vmm")
keep = {request}
child = os.fork()
if not child:
    try:
        {request}
    except gpualloc.Error as error:
        print(error.status, error, flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
""")
            self.assertRegex(told, r"^[A-Z]+ .*fork")

    def test_numba(self) -> None:
        told = self.python("""
import gpualloc
from numba import cuda
print(gpualloc.enable("vmm"))
a = cuda.device_array(5 << 20)
assert gpualloc.snapshot()[0].address == a.pointer.value
del a
print(gpualloc.stats()["frees"])
assert cuda.current_context().memory_manager.get_memory_info().total > 0
try:
    cuda.current_context().memory_manager.get_ipc_handle(None)
except NotImplementedError as error:
    print(error)
cuda.device_array(1 << 50)
""", fails=True)
        self.assertRegex(told, "^MemoryError: .+")

    def test_numba_with_a_context(self) -> None:
        """Its context keeps the memory manager that it began with."""
        told = self.python("""
import gpualloc
from numba import cuda
cuda.current_context()
gpualloc.enable("vmm")
""", fails=True)
        self.assertEqual("gpualloc._library.Error: Numba: device 0 has a context already; call "
                         "gpualloc.enable() before Numba uses a device", told)

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

    def test_rmm_on_two_devices(self) -> None:
        told = self.python("""
import gpualloc, rmm
print(gpualloc.enable("vmm", "rmm"), gpualloc.enable("vmm", "rmm", device=1), *rmm.resources)
""")
        self.assertEqual("('rmm',) ('rmm',) 0 1", told)

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

    def test_a_heap_that_is_open(self) -> None:
        """By a MemPool over ga_torch_alloc: both specs are in the message, and the framework keeps
        its allocator."""
        told = self.python("""
import cupy, gpualloc, torch
from gpualloc import _library
plugin = torch.cuda.memory.CUDAPluggableAllocator(_library.LIBRARY, "ga_torch_alloc",
                                                  "ga_torch_free")
with torch.cuda.use_mem_pool(torch.cuda.MemPool(plugin.allocator())):
    tensor = torch.empty(1 << 20)
try:
    gpualloc.enable("vmm", "cupy")
except gpualloc.Error as error:
    print(error.status, error)
assert cupy._default_memory_pool.malloc_below is None
print(gpualloc.enable("cuda", "cupy"))
""", variables={"GPUALLOC_DEVICE": "cuda"})
        self.assertEqual('SPEC the heap of device 0 is open with the spec "cuda"; expected the '
                         "same, got \"vmm\"\n('cupy',)", told)

    def test_environment_stays(self) -> None:
        """A program that this one starts is not served unless it is asked for."""
        told = self.python("import cupy, gpualloc, os\nbefore = dict(os.environ)\n"
                           "gpualloc.enable('vmm')\nprint(before == dict(os.environ))")
        self.assertEqual("True", told)

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
        """The first request tells."""
        for device in (1, 64):
            told = self.python(f"""
import gpualloc, rmm
gpualloc.enable('vmm', device={device})
rmm.DeviceBuffer(1000, device={device})
""", fails=True)
            self.assertRegex(told, rf"^gpualloc\._library\.Error: .*device {device}: ")

    def test_cuda_is_not_started(self) -> None:
        """By enable(): a child of a fork may be the one that uses the device."""
        told = self.python("""
import cupy, gpualloc, os, rmm, torch
gpualloc.enable("vmm")
print("libcuda" in open("/proc/self/maps").read())
child = os.fork()
if not child:
    keep = rmm.DeviceBuffer(1000)
    print(gpualloc.stats()["allocs"], flush=True)
    os._exit(0)
os.waitpid(child, 0)
""")
        self.assertEqual("False\n1", told)


    def test_other_calls_do_not_start_cuda(self) -> None:
        """A limit and queries, also of other devices: a child may use them."""
        told = self.python("""
import gpualloc, os, rmm, torch
gpualloc.enable("vmm")
gpualloc.limit(8 << 20)
print(gpualloc.stats(1)["held_bytes"], gpualloc.snapshot(), gpualloc.snapshot(5))
torch.cuda.initialized = True
print(torch.cuda.memory_allocated(1), torch.cuda.memory_snapshot())
print("libcuda" in open("/proc/self/maps").read(), flush=True)
child = os.fork()
if not child:
    keep = rmm.DeviceBuffer(1 << 20)
    print(gpualloc.stats()["allocs"])
    try:
        rmm.DeviceBuffer(8 << 20)
    except MemoryError:
        print("refused", flush=True)
    os._exit(0)
os.waitpid(child, 0)
""")
        self.assertEqual("0 [] []\n0 []\nFalse\n1\nrefused", told)

    def test_queries_of_other_devices(self) -> None:
        """No context is made there."""
        told = self.python("""
import ctypes, gpualloc, rmm
gpualloc.enable("vmm")
keep = rmm.DeviceBuffer(1 << 20)
print([gpualloc.stats(device)["live_blocks"] for device in range(4)])
flags, active = ctypes.c_uint(), ctypes.c_int()
driver = ctypes.CDLL("libcuda.so.1")
for device in range(2):
    driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    print(active.value)
""", variables={"STAND_IN_DEVICES": "2"})
        self.assertEqual("[1, 0, 0, 0]\n1\n0", told)

    def test_no_driver(self) -> None:
        """Each request has the reason, and so have queries then."""
        for request in ("rmm.DeviceBuffer(1000)", "gpualloc.stats()", "gpualloc.limit(1)"):
            told = self.python(f"""
import gpualloc, rmm
gpualloc.enable("vmm")
try:
    rmm.DeviceBuffer(1000)
except gpualloc.Error as error:
    assert error.status == "DEVICE", error.status
    assert str(error).startswith("vmm: no CUDA driver: /no/driver"), error
{request}
""", fails=True, variables={"GPUALLOC_CUDA_DRIVER": "/no/driver"})
            self.assertRegex(told, "^gpualloc._library.Error: .*no CUDA driver: /no/driver")

    def test_spec_of_a_refused_call(self) -> None:
        """It is forgotten."""
        told = self.python("""
import gpualloc, torch
torch.cuda.initialized = True
try:
    gpualloc.enable("vmm", "torch")
except gpualloc.Error as error:
    print(error)
torch.cuda.initialized = False
library = gpualloc._library.library()
assert library.ga_framework_alloc(1000, 0, None)
print(gpualloc.enable("cuda", "torch"))
""", variables={"GPUALLOC_DEVICE": "cuda"})
        self.assertRegex(told, r"^PyTorch: .*\n\('torch',\)$")

    def test_fork_during_a_call(self) -> None:
        """The child does not wait for a thread that only its parent has."""
        told = self.python("""
import cupy, gpualloc, os, threading
begun, ends = threading.Event(), threading.Event()
def slow(spec):
    begun.set()
    ends.wait()
choose = gpualloc._library.choose
gpualloc._library.choose = slow
thread = threading.Thread(target=gpualloc.enable, args=("vmm",))
thread.start()
begun.wait()
child = os.fork()
if not child:
    gpualloc._library.choose = choose
    print(gpualloc.enable("vmm"), flush=True)
    os._exit(0)
os.waitpid(child, 0)
ends.set()
thread.join()
""")
        self.assertEqual("('cupy',)", told)


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

    def test_device_numbers(self) -> None:
        """None of them is cut to that of another device."""
        for device in (-1, 2**31, 2**40, 2**64):
            for call in (f"limit(1, {device})", f"stats({device})", f"snapshot({device})"):
                told = self.python(f"import gpualloc, rmm\ngpualloc.enable('vmm')\n"
                                   f"gpualloc.{call}", fails=True)
                self.assertEqual(f"gpualloc._library.Error: no CUDA device {device}", told)

    def test_backend_without_a_list(self) -> None:
        told = self.python("""
import gpualloc, torch
gpualloc.enable("cuda")
torch.empty(1000)
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
for spec, others in (None, {"host": "slabb"}), ("vmm:x=1", {}), (None, {"kernel": "vmm"}):
    try:
        gpualloc.env(spec, **others)
    except gpualloc.Error as error:
        print(error)
""")
        names, maps, _, other, *errors = told.splitlines()
        self.assertEqual(str(["GPUALLOC_DEVICE", "GPUALLOC_HOST", "GPUALLOC_PRELOADED",
                              "GPUALLOC_STATS", "LD_PRELOAD"]), names)
        self.assertLessEqual({"libgpualloc-malloc.so", "libgpualloc-cuda.so"}, set(maps.split()))
        self.assertEqual("True slab", other)
        for error, expected in zip(errors, ('--host: unknown backend "slabb"',
                                            '--device: vmm: unknown option "x"',
                                            "--kernel: vmm: serves the place"), strict=True):
            self.assertIn(f"gpualloc env: {expected}", error)

    def test_env_keeps_tunables(self) -> None:
        """The user's own, also where they are those that `gpualloc run` adds for `dl`."""
        told = self.python("""
import gpualloc
tls = "glibc.rtld.optional_static_tls=16000"
for own in tls, "glibc.malloc.perturb=0:" + tls:
    for spec in "system", "dl:libc.so.6":
        print(gpualloc.env(host=spec, environ={"GLIBC_TUNABLES": own})["GLIBC_TUNABLES"] == own)
""")
        self.assertEqual(["True"] * 4, told.split())

    def test_env_removes_variables(self) -> None:
        """An empty one replaces that of a surrounding `gpualloc run --stats`."""
        report = self.folder / "child.json"
        told = self.python(f"""
import gpualloc, os, subprocess, sys
told = gpualloc.env("vmm", host="system", stats={str(report)!r})
print(told["GPUALLOC_STATS_PID"] == "")
subprocess.run([sys.executable, "-c", ""], env={{**os.environ, **told}}, check=True)
""", variables={"GPUALLOC_STATS": "/dev/null", "GPUALLOC_STATS_PID": str(os.getpid())})
        self.assertEqual("True", told)
        self.assertIn('"place":"host"', report.read_text("utf-8"))

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

    def test_env_without_permission(self) -> None:
        command = self.package / "bin/gpualloc"
        command.unlink()
        command.write_text("#!/bin/sh\necho \"export A='b';\"\n", encoding="utf-8")
        command.chmod(0o644)
        self.assertEqual("{'A': 'b'}", self.python("import gpualloc\nprint(gpualloc.env())"))
        command.unlink()
        told = self.python("import gpualloc\ngpualloc.env()", fails=True)
        self.assertEqual(f"gpualloc._library.Error: cannot execute {command}: No such file or "
                         "directory", told)

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
