#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A kernel that allocates, compiled and loaded in each way in which compilers at run time do it:

  nvrtc-cubin   NVRTC to machine code
  nvrtc-ptx     NVRTC to PTX, which the driver compiles
  culink        PTX to the driver's linker, and the result to the driver (CUDA.jl)
  nvjitlink     PTX to nvJitLink, and the result to the driver (numba-cuda)
  library       PTX as a library (cuLibraryLoadData)
  apart         one module allocates and is unloaded, another one of the same code frees

  kernel_jit.py [WAY...]

Each line must be equal with CUDA's malloc and with gpualloc's. Exit status 77: no GPU or no NVRTC.
"""

import ctypes as c
import sys

SOURCE = b"""
struct node { unsigned long long value; node *next; };

static __device__ node *build_list(unsigned thread)
{
    node *list = nullptr;
    for (unsigned i = 0; i < thread % 20 + 1; i++) {
        node *added = (node *)malloc(sizeof(node));
        if (!added) {
            break;
        }
        *added = {thread * i, list};
        list = added;
    }
    return list;
}

static __device__ unsigned long long consume(node *list)
{
    unsigned long long sum = 0;
    while (list) {
        node *next = list->next;
        sum += list->value;
        free(list);
        list = next;
    }
    return sum;
}

extern "C" __global__ void lists(unsigned long long *sums)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    sums[thread] = consume(build_list(thread));
}

extern "C" __global__ void first_half(unsigned long long *lists)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    lists[thread] = (unsigned long long)build_list(thread);
}

extern "C" __global__ void second_half(unsigned long long *lists)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    lists[thread] = consume((node *)lists[thread]);
}
"""
THREADS = 2048
INPUT_PTX = 1  # CU_JIT_INPUT_PTX
LINK_PTX = 2  # NVJITLINK_INPUT_PTX


def library(*names: str) -> c.CDLL:
    for name in names:
        for folder in ("", "/usr/local/cuda/lib64/"):
            try:
                return c.CDLL(folder + name)
            except OSError:
                pass
    sys.exit(77)


def check(status: int, call: str) -> None:
    if status:
        sys.exit(f"{call}: {status}")


class Driver:
    """The primary context of device 0."""

    def __init__(self) -> None:
        self.cuda = library("libcuda.so.1")
        context, major, minor = c.c_void_p(), c.c_int(), c.c_int()
        if self.cuda.cuInit(0) or self.cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0):
            sys.exit(77)
        self.call("cuCtxSetCurrent", context)
        self.call("cuDeviceGetAttribute", c.byref(major), 75, 0)
        self.call("cuDeviceGetAttribute", c.byref(minor), 76, 0)
        self.sm = f"{major.value}{minor.value}"

    def call(self, name: str, *arguments: object) -> None:
        check(getattr(self.cuda, name)(*arguments), name)

    def launch(self, function: c.c_void_p, block: c.c_uint64) -> None:
        parameters = (c.c_void_p * 1)(c.addressof(block))
        self.call("cuLaunchKernel", function, THREADS // 128, 1, 1, 128, 1, 1, 0, None, parameters,
                  None)

    def allocated(self) -> c.c_uint64:
        block = c.c_uint64()
        self.call("cuMemAlloc_v2", c.byref(block), c.c_size_t(8 * THREADS))
        return block

    def sum_of(self, block: c.c_uint64) -> int:
        sums = (c.c_uint64 * THREADS)()
        self.call("cuMemcpyDtoH_v2", sums, block, c.c_size_t(c.sizeof(sums)))
        self.call("cuMemFree_v2", block)
        return sum(sums)

    def run(self, function: c.c_void_p) -> int:
        block = self.allocated()
        self.launch(function, block)
        return self.sum_of(block)

    def load(self, code: bytes, name: bytes) -> tuple[c.c_void_p, c.c_void_p]:
        module, function = c.c_void_p(), c.c_void_p()
        self.call("cuModuleLoadData", c.byref(module), code)
        self.call("cuModuleGetFunction", c.byref(function), module, name)
        return module, function

    def run_module(self, code: bytes) -> int:
        return self.run(self.load(code, b"lists")[1])

    def run_apart(self, code: bytes) -> int:
        block = self.allocated()
        for name in b"first_half", b"second_half":
            module, function = self.load(code, name)
            self.launch(function, block)
            self.call("cuCtxSynchronize")
            self.call("cuModuleUnload", module)
        return self.sum_of(block)

    def run_library(self, code: bytes) -> int:
        handle, kernel, function = c.c_void_p(), c.c_void_p(), c.c_void_p()
        self.call("cuLibraryLoadData", c.byref(handle), code, None, None, 0, None, None, 0)
        self.call("cuLibraryGetKernel", c.byref(kernel), handle, b"lists")
        self.call("cuKernelGetFunction", c.byref(function), kernel)
        return self.run(function)

    def link(self, ptx: bytes) -> bytes:
        state, cubin, size = c.c_void_p(), c.c_void_p(), c.c_size_t()
        self.call("cuLinkCreate_v2", 0, None, None, c.byref(state))
        self.call("cuLinkAddData_v2", state, INPUT_PTX, ptx, c.c_size_t(len(ptx)), b"lists", 0,
                  None, None)
        self.call("cuLinkComplete", state, c.byref(cubin), c.byref(size))
        code = c.string_at(cubin, size.value)
        self.call("cuLinkDestroy", state)
        return code


def compiled(architecture: str, kind: str) -> bytes:
    """By NVRTC; `kind` is PTX or CUBIN."""
    nvrtc = library("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
    program, size = c.c_void_p(), c.c_size_t()
    options = (c.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    check(nvrtc.nvrtcCreateProgram(c.byref(program), SOURCE, b"lists.cu", 0, None, None),
          "nvrtcCreateProgram")
    check(nvrtc.nvrtcCompileProgram(program, 1, options), "nvrtcCompileProgram")
    check(getattr(nvrtc, f"nvrtcGet{kind}Size")(program, c.byref(size)), "nvrtcGetSize")
    code = c.create_string_buffer(size.value)
    check(getattr(nvrtc, f"nvrtcGet{kind}")(program, code), "nvrtcGet")
    return code.raw


def joined(sm: str, ptx: bytes) -> bytes:
    """By nvJitLink."""
    linker = library("libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so")
    handle, size = c.c_void_p(), c.c_size_t()
    options = (c.c_char_p * 1)(f"-arch=sm_{sm}".encode())

    def call(name: str, *arguments: object) -> None:
        check(getattr(linker, "nvJitLink" + name)(*arguments), name)

    call("Create", c.byref(handle), 1, options)
    call("AddData", handle, LINK_PTX, ptx, c.c_size_t(len(ptx)), b"lists")
    call("Complete", handle)
    call("GetLinkedCubinSize", handle, c.byref(size))
    code = c.create_string_buffer(size.value)
    call("GetLinkedCubin", handle, code)
    return code.raw


def main() -> None:
    driver = Driver()
    ptx = compiled(f"compute_{driver.sm}", "PTX")
    ways = {
        "nvrtc-cubin": lambda: driver.run_module(compiled(f"sm_{driver.sm}", "CUBIN")),
        "nvrtc-ptx": lambda: driver.run_module(ptx),
        "culink": lambda: driver.run_module(driver.link(ptx)),
        "nvjitlink": lambda: driver.run_module(joined(driver.sm, ptx)),
        "library": lambda: driver.run_library(ptx),
        "apart": lambda: driver.run_apart(compiled(f"sm_{driver.sm}", "CUBIN")),
    }
    for name in sys.argv[1:] or ways:
        print(name, ways[name](), flush=True)


if __name__ == "__main__":
    main()
