# SPDX-License-Identifier: MIT
#
# gpualloc for Spack. Put this folder as packages/gpualloc into a repository of your own
# (`spack repo create`), with the archive of the release in the working directory. The archive has
# no checksum here, because this file is in it: `spack install --no-checksum gpualloc`, or add the
# checksum to version().
import os

from spack.package import *


class Gpualloc(MesonPackage):
    """Interchangeable allocators for the host, CUDA devices and their kernels, behind one small
    C interface; preloads that put unmodified programs on them."""

    manual_download = True
    url = f"file://{os.getcwd()}/gpualloc-0.1.0.tar.gz"

    # With jemalloc, LZ4 and Zstandard, which are in the libraries.
    license("MIT AND BSD-2-Clause AND BSD-3-Clause")

    version("0.1.0")

    variant("cuda", default=False, description="Device code, compiled by nvcc")
    variant("rewrite", default=False, description="gpualloc rewrite, which needs Clang")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+rewrite")
    depends_on("meson@1:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("jansson@2.10:")
    depends_on("lz4 libs=static,shared")
    depends_on("zstd libs=static,shared")
    depends_on("cuda@13:", type="build", when="+cuda")
    depends_on("llvm@14: +clang +llvm_dylib", when="+rewrite")

    resource(
        name="jemalloc",
        url="https://github.com/jemalloc/jemalloc/releases/download/5.3.0/jemalloc-5.3.0.tar.bz2",
        sha256="2db82d1e7119df3e71b7640219b6dfe84789bc0537983c3b7ac4f7189aecfeaa",
        destination="",
        placement="jemalloc",
    )

    conflicts("platform=darwin", msg="gpualloc is for Linux with glibc")
    conflicts("platform=windows", msg="gpualloc is for Linux with glibc")

    @run_before("meson")
    def build_jemalloc(self):
        Executable("scripts/build-jemalloc")("--source", "jemalloc")

    def meson_args(self):
        args = ["-Djemalloc=enabled", "-Dtests=disabled", "-Ddevice_tests=none"]
        for name in ("cuda", "rewrite"):
            args.append(f"-D{name}={'enabled' if self.spec.satisfies('+' + name) else 'disabled'}")
        if self.spec.satisfies("+cuda"):
            args.append(f"-Dnvcc={self.spec['cuda'].prefix.bin.nvcc}")
        return args
