#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Linking with libgpualloc-kernel.a: in-kernel malloc resolves to the library's with every
linker, the host's malloc is not replaced, and neither are functions that are not reached.
Nothing here runs on a GPU."""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

NVCC = os.environ["TEST_NVCC"]
OTHER_NVCC = os.environ["TEST_NVCC_OTHER"]
SOURCE = Path(os.environ["TEST_SOURCE"])
ARCHIVE = os.environ["TEST_ARCHIVE"]
LIBRARY = os.environ["TEST_LIBRARY"]
WRAP = os.environ["TEST_WRAP"].split()
ARCHITECTURES = os.environ["TEST_ARCHITECTURES"].split()
ARCH = "-arch=sm_90"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("GPUALLOC_")}
CLEAN["LD_LIBRARY_PATH"] = str(Path(LIBRARY).parent)
GENERIC_LOAD, GLOBAL_LOAD = 0x980, 0x981  # LD and LDG of sm_90: the low 12 bits of an instruction
OURS = {"malloc", "free", "__cuda_syscall_aligned_malloc"}

# Every form that device code has, and the host's malloc beside them.
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
struct one { int a[8]; __device__ ~one() { a[0] = 0; } };
struct alignas(64) wide { char c[64]; };
__global__ void work(void **p, int n)
{
    p[0] = malloc(n);
    free(p[1]);
    p[2] = new one;
    delete (one *)p[3];
    p[4] = new one[n];
    delete[] (one *)p[5];
    p[6] = new wide;
    delete (wide *)p[7];
    p[8] = new wide[n];
    delete[] (wide *)p[9];
    p[10] = __nv_aligned_device_malloc(n, 128);
    ::operator delete(p[11], (size_t)n);
}
int main()
{
    char *text = (char *)malloc(100);
    strcpy(text, "host malloc works");
    work<<<1, 1>>>(nullptr, 3);
    puts(text);
    free(text);
    return 0;
}
"""

SHARED = r"""
__global__ void shared_work(void **p, int n) { p[0] = malloc(n); }
int shared_run() { shared_work<<<1, 1>>>(nullptr, 3); return 0; }
"""

USES_SHARED = r"""
int shared_run();
__global__ void work(void **p, int n) { p[0] = malloc(n); }
int main() { work<<<1, 1>>>(nullptr, 3); return shared_run(); }
"""

# A program whose device code uses libcudadevrt.
DEVICE_RUNTIME = r"""
__global__ void work(void **p, int n)
{
    cudaMalloc(p, n);
    cudaFree(p[1]);
}
int main() { work<<<1, 1>>>(nullptr, 3); return 0; }
"""

# The archive's symbols, for an archive without some architectures.
REPLACEMENT = r"""
__constant__ int ga_kernel_linked;
extern "C" __device__ void *malloc(size_t) noexcept { return (void *)(size_t)ga_kernel_linked; }
extern "C" __device__ void free(void *) noexcept {}
extern "C" __device__ void *__cuda_syscall_aligned_malloc(size_t, size_t) noexcept { return 0; }
"""

NO_MALLOC = r"""
__global__ void work(int *p) { *p = 1; }
int main() { work<<<1, 1>>>(nullptr); return 0; }
"""


# Not linked: a heap with size classes, chosen when this is compiled.
ONE_KIND = r"""
#define GA_KERNEL_ONLY GA_KERNEL_KIND_SIZED
#include <gpualloc/device.cuh>
extern "C" __global__ void __launch_bounds__(128, 16)
    allocate(ga_kernel_heap heap, size_t size, void **out)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = ga_kernel_malloc(heap, size);
}
"""


class Case(unittest.TestCase):
    """A test with a folder of its own."""
    objects: dict[tuple[str, ...], bytes] = {}  # by what they were compiled from

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-kernel-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def call(self, *command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(part) for part in command], cwd=self.folder, env=CLEAN,
                              capture_output=True, text=True, timeout=120)

    def must(self, *command: object) -> str:
        """The output of the command, which must succeed."""
        done = self.call(*command)
        told = f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        self.assertEqual(0, done.returncode, told)
        return done.stdout

    def compile(self, name: str, text: str, *flags: str, nvcc: str = NVCC,
                arch: str = ARCH) -> str:
        """Compile the text, or take the object that another test compiled from it."""
        (self.folder / f"{name}.cu").write_text(text, encoding="utf-8")
        key = (name, text, *flags, nvcc, arch)
        if key not in self.objects:
            self.must(nvcc, "-std=c++17", arch, *flags, "-c", f"{name}.cu", "-o", f"{name}.o")
            self.objects[key] = (self.folder / f"{name}.o").read_bytes()
        (self.folder / f"{name}.o").write_bytes(self.objects[key])
        return f"{name}.o"

    def link(self, out: str, *parts: str) -> str:
        self.must(NVCC, ARCH, "-forward-unknown-to-host-compiler", *parts, "-Xlinker", LIBRARY,
                  *WRAP, "-o", out)
        return out

    def functions(self, cubin: str) -> tuple[set[str], set[str]]:
        """The global names that linked device code defines and needs."""
        text = self.must("readelf", "--wide", "--symbols", cubin)
        defined, lacks = set(), set()
        for line in text.splitlines():
            found = re.match(r"\s*\d+: .*\bGLOBAL\s+DEFAULT\s+(?:\[.*?\]\s+)?(\w+) (\S+)$", line)
            if found:
                (lacks if found[1] == "UND" else defined).add(found[2])
        return defined, lacks

    def linked(self, *parts: str, nvcc: str = NVCC, arch: str = ARCH) -> tuple[set[str], set[str]]:
        self.must(nvcc, arch, "-Xnvlink=-suppress-stack-size-warning", "-dlink", "-cubin", *parts,
                  "-o", "linked.cubin")
        return self.functions("linked.cubin")

    def expect_ours(self, *parts: str, arch: str = ARCH) -> None:
        defined, lacks = self.linked(*parts, arch=arch)
        self.assertLessEqual(OURS | {"ga_kernel_linked"}, defined)
        self.assertEqual(set(), lacks & OURS)

    def host_names(self, program: str) -> dict[str, str]:
        """The program's symbols and their letters."""
        names = {}
        for line in self.must("nm", program).splitlines():
            kind, name = line.split()[-2:]
            names[name.partition("@")[0]] = names.get(name.partition("@")[0], "") + kind
        return names

    def expect_hosts_own(self, program: str) -> None:
        """Its malloc is the C library's, with any libraries that nvcc links for the device."""
        names = self.host_names(program)
        for name in ("malloc", "free"):
            self.assertIn("U", names[name], "it is taken from the C library")
            self.assertNotIn("T", names[name])
        exported = {line.split()[-1].partition("@")[0] for line in
                    self.must("nm", "-D", "--defined-only", program).splitlines()}
        self.assertEqual(set(), exported & {"malloc", "free", "ga_kernel_linked"})

    def expect_runs(self, program: str) -> None:
        """Without a GPU the launch fails in the usual way, and the host's part works."""
        done = self.call(f"./{program}")
        self.assertEqual((0, "host malloc works\n"), (done.returncode, done.stdout), done.stderr)


class Resolving(Case):
    def test_every_form_in_either_order(self) -> None:
        program = self.compile("program", PROGRAM, "-rdc=true")
        self.expect_ours(program, ARCHIVE)
        self.expect_ours(ARCHIVE, program)

    def test_without_the_archive_it_is_cudas(self) -> None:
        defined, lacks = self.linked(self.compile("program", PROGRAM, "-rdc=true"))
        self.assertLessEqual(OURS, lacks)
        self.assertNotIn("ga_kernel_linked", defined)

    def test_device_runtime(self) -> None:
        """cudaMalloc() in kernels comes from the heap, because free() in kernels may release it."""
        program = self.compile("program", DEVICE_RUNTIME, "-rdc=true")
        self.expect_ours(program, ARCHIVE, "-lcudadevrt")

    def test_the_oldest_and_the_newest_architecture(self) -> None:
        for architecture in (ARCHITECTURES[0], ARCHITECTURES[-1]):
            with self.subTest(architecture=architecture):
                arch = f"-arch=sm_{architecture}"
                program = self.compile("program", PROGRAM, "-rdc=true", arch=arch)
                self.expect_ours(program, ARCHIVE, arch=arch)

    def test_code_in_the_archive(self) -> None:
        """Machine code and intermediate code for each architecture, and PTX of the first."""
        shutil.copy(ARCHIVE, self.folder / "archive.a")
        self.must("ar", "x", "archive.a", "kernel_malloc.o")
        found = set(fatbin_entries((self.folder / "kernel_malloc.o").read_bytes()))
        expected = {(kind, int(architecture)) for architecture in ARCHITECTURES
                    for kind in ("elf", "lto")} | {("ptx", int(ARCHITECTURES[0]))}
        self.assertEqual(expected, found)
        self.assertGreaterEqual(int(ARCHITECTURES[-1]), 120)
        self.assertEqual("75", ARCHITECTURES[0])

    def test_an_archive_without_the_architecture(self) -> None:
        """The trap: nvlink takes CUDA's malloc in silence. The host's half reports it."""
        only = "-gencode=arch=compute_80,code=sm_80" # and no PTX
        self.must("ar", "crs", "other.a", self.compile("other", REPLACEMENT, "-rdc=true",
                                                       arch=only))
        program = self.compile("program", PROGRAM, "-rdc=true")
        defined, lacks = self.linked(program, "other.a")
        self.assertLessEqual(OURS, lacks)
        self.assertNotIn("ga_kernel_linked", defined)
        older = self.compile("older", PROGRAM, "-rdc=true", arch="-arch=sm_86")
        self.expect_ours(older, "other.a", arch="-arch=sm_86") # of the same generation


def fatbin_entries(data: bytes) -> list[tuple[str, int]]:
    """Kind and architecture of each piece of device code in an object file of nvcc's."""
    kinds = {1: "ptx", 2: "elf", 8: "lto"}
    entries = []
    at = data.find(struct.pack("<I", 0xBA55ED50))
    while at >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, head, body = struct.unpack_from("<HHIQ", data, entry)
            [architecture] = struct.unpack_from("<I", data, entry + 28)
            entries.append((kinds.get(kind, str(kind)), architecture))
            entry += head + body
        at = data.find(struct.pack("<I", 0xBA55ED50), end)
    return entries


def cubin_sections(data: bytes) -> dict[str, bytes]:
    """The contents by name."""
    [at] = struct.unpack_from("<Q", data, 40)
    count, of_names = struct.unpack_from("<HH", data, 60)
    headers = [struct.unpack_from("<I20xQQ", data, at + 64 * i) for i in range(count)]
    names = data[headers[of_names][1]:]
    return {names[name:names.index(0, name)].decode(): data[start:start + size]
            for name, start, size in headers}


class Registers(Case):
    def test_none_above_31(self) -> None:
        """ptxas takes malloc and free for CUDA's own, which preserve those registers; and a
        kernel has the registers of its callees."""
        program = self.compile("program", PROGRAM, "-rdc=true")
        done = self.call(NVCC, ARCH, "-Xnvlink=-v,-suppress-stack-size-warning", "-dlink", "-cubin",
                         program, ARCHIVE, "-o", "linked.cubin")
        used = [int(number) for number in re.findall(r"used (\d+) registers", done.stderr)]
        self.assertEqual(1, len(used), done.stdout + done.stderr)
        self.assertLessEqual(used[0], 32)


    def compiled(self, source: str, output: str, *options: str) -> str:
        """What ptxas says of the functions."""
        return self.call(NVCC, ARCH, "-cubin", "-std=c++17", "-O3", "-rdc=true",
                         ",".join(("-Xptxas=-v,-maxrregcount=32", *options)),
                         "-I", SOURCE / "liballoc/include", SOURCE / "interpose/kernel" / source,
                         "-o", output).stderr

    def check_saves(self, said: str, *names: str) -> None:
        """Two registers for the return address and one for a barrier, and no other."""
        for name in names:
            saved = re.search(rf"properties for {name}\n.* (\d+) bytes spill stores", said)
            self.assertIsNotNone(saved, said)
            assert saved is not None
            self.assertLessEqual(int(saved[1]), 3 * 4, name)

    def test_the_usual_calls_save_what_a_call_takes(self) -> None:
        self.check_saves(self.compiled("malloc.cu", "malloc.cubin"), "malloc", "free")

    def test_those_of_the_module_do_so_too(self) -> None:
        """And they know that the heap is in global memory."""
        names = ("ga_module_malloc", "ga_module_free")
        said = self.compiled("module.cu", "module.cubin", "--disable-optimizer-constants")
        self.check_saves(said, *names)
        sections = cubin_sections((self.folder / "module.cubin").read_bytes())
        for name in names:
            words = struct.iter_unpack("<Q8x", sections[f".text.{name}"])
            codes = [word & 0xFFF for word, in words]
            self.assertIn(GLOBAL_LOAD, codes)
            self.assertNotIn(GENERIC_LOAD, codes)

    def test_a_kernel_reloads_nothing_after_malloc_of_one_kind(self) -> None:
        """Neither registers nor barriers, although the slow paths need all of them."""
        (self.folder / "one.cu").write_text(ONE_KIND, encoding="utf-8")
        said = self.call(NVCC, ARCH, "-cubin", "-std=c++17", "-O3", "-Xptxas=-v",
                         "-I", SOURCE / "liballoc/include", "one.cu", "-o", "one.cubin").stderr
        self.assertRegex(said, r"properties for allocate\n.* 0 bytes spill loads\n", said)


class Programs(Case):
    def test_by_nvcc(self) -> None:
        program = self.compile("program", PROGRAM, "-rdc=true")
        for name, parts in {"after": (program, ARCHIVE), "before": (ARCHIVE, program)}.items():
            with self.subTest(archive=name):
                self.link(name, *parts)
                self.expect_hosts_own(name)
                self.expect_runs(name)
                self.assertIn("__wrap___cudaLaunchKernel", self.host_names(name))

    def test_by_device_link_and_host_linker(self) -> None:
        program = self.compile("program", PROGRAM, "-rdc=true")
        self.must(NVCC, ARCH, "-dlink", program, ARCHIVE, "-o", "device.o")
        root = Path(NVCC).resolve().parents[1]
        folders = [f"-L{folder}" for folder in (root / "lib64", root / "lib") if folder.exists()]
        self.must("g++", program, "device.o", ARCHIVE, LIBRARY, *WRAP, *folders, "-lcudadevrt",
                  "-lcudart_static", "-ldl", "-lrt", "-lpthread", "-o", "split")
        self.expect_hosts_own("split")
        self.expect_runs("split")

    def test_whole_programs_are_not_reached(self) -> None:
        """Without -rdc=true device code is complete when it is compiled; and it still links."""
        program = self.compile("program", PROGRAM)
        self.link("whole", program, ARCHIVE)
        self.expect_hosts_own("whole")
        self.expect_runs("whole")
        self.must(NVCC, "-std=c++17", ARCH, "-cubin", "program.cu", "-o", "whole.cubin")
        defined, lacks = self.functions("whole.cubin")
        self.assertLessEqual(OURS, lacks)
        self.assertNotIn("ga_kernel_linked", defined)

    def test_a_program_that_calls_no_malloc(self) -> None:
        program = self.compile("program", NO_MALLOC, "-rdc=true")
        self.link("none", program, ARCHIVE)
        self.assertEqual(0, self.call("./none").returncode)

    def test_without_the_flags(self) -> None:
        """Of the host's half only the objects that ga_kernel_init() needs are linked."""
        program = self.compile("program", PROGRAM.replace(
            "int main()\n{", 'extern "C" int ga_kernel_init();\nint main()\n{\n'
            "    ga_kernel_init();"), "-rdc=true")
        self.must(NVCC, ARCH, program, ARCHIVE, "-Xlinker", LIBRARY, "-o", "plain")
        self.assertNotIn("__wrap___cudaLaunchKernel", self.host_names("plain"))
        self.expect_runs("plain")

    def test_two_modules(self) -> None:
        """A library linked with the archive too keeps its registration private: if it were
        exported, the program's would be called for the library's object, whose kernels would
        never be registered."""
        shared = self.compile("shared", SHARED, "-rdc=true", "-Xcompiler=-fPIC")
        self.link("libshared.so", shared, ARCHIVE, "-shared")
        program = self.compile("program", USES_SHARED, "-rdc=true")
        self.link("two", program, ARCHIVE, "-L.", "-lshared", "-Xlinker", "-rpath=$ORIGIN")
        for module in ("libshared.so", "two"):
            names = self.host_names(module)
            ours = [name for name in names if re.match(r"__cudaRegisterLinkedBinary_.*malloc_cu",
                                                       name)]
            self.assertEqual(1, len(ours), names)
            self.assertEqual("t", names[ours[0]], "it is local")
            exported = self.must("nm", "-D", "--defined-only", module)
            for name in ("malloc_cu", "ga_kernel", "__wrap", "__fatbinwrap_.*malloc"):
                self.assertNotRegex(exported, name)
        self.assertEqual(0, self.call("./two").returncode)

    def test_link_time_optimisation(self) -> None:
        """With -dlto malloc is inlined: no call is left; mixed objects work as well."""
        nvcc = next((name for name in (NVCC, OTHER_NVCC) if self.can_optimise(name)), None)
        if not nvcc:
            self.skipTest("nvlink finds no libnvvm")
        whole = self.compile("whole", PROGRAM, "-rdc=true", "-dlto", nvcc=nvcc)
        defined, lacks = self.linked("-dlto", whole, ARCHIVE, nvcc=nvcc)
        self.assertIn("ga_kernel_linked", defined, "the host finds the variable")
        self.assertEqual(set(), (defined | lacks) & OURS, "inlined")
        done = self.call(nvcc, ARCH, "-dlto", "-dlink", "-cubin", whole, ARCHIVE, "-o",
                         "again.cubin")
        self.assertNotIn("maxrregcount", done.stdout + done.stderr,
                         "it would be the program's, too")
        plain = self.compile("plain", SHARED, "-rdc=true")
        defined, lacks = self.linked("-dlto", whole, plain, ARCHIVE, nvcc=nvcc)
        self.assertIn("ga_kernel_linked", defined)
        self.assertEqual(set(), lacks & OURS)

    def can_optimise(self, nvcc: str) -> bool:
        if not Path(nvcc).exists():
            return False
        (self.folder / "probe.cu").write_text(NO_MALLOC, encoding="utf-8")
        return self.call(nvcc, "-rdc=true", "-dlto", ARCH, "probe.cu", "-o",
                         "probe").returncode == 0


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    broken = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
    skipped = len(result.skipped)
    print(f"{result.testsRun - len(broken) - skipped} passed, {len(broken)} failed, "
          f"{skipped} skipped")
    sys.exit(1 if broken else 0)
