# SPDX-License-Identifier: MIT
"""The vocabulary of warp algorithms (liballoc/simt), and growth during kernels, which is written
in it: each header compiles alone, first and twice, as C17 and under nvcc, and on the CPU a
branch on a value that differs between lanes does not compile."""

import unittest

from surroundings import CC, NVCC, SOURCE, Case, main
from test_headers import C_WARNINGS, compilers

SIMT = SOURCE / "liballoc/simt"
CPU_ONLY = {"lanes_cpu.h", "row_cpu.h"}
GPU_ONLY = {"lanes_gpu.h", "row_gpu.h"}
HEADERS = [*sorted(header.name for header in SIMT.glob("*.h")),
           "../growth/growth.h", "../growth/mailbox.h"]

# The functions are inlined: they are only compiled if they are called.
GROWTH = """
#include "../growth/growth.h"
GA_SIMT void prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    uint32_t *rows = (uint32_t *)context;
    for (uint32_t i = ga_tile_ranks(tile) + from * 1024u; i < to * 1024u; i += ga_tile_size(tile)) {
        rows[i] = 0;
    }
}
GA_SIMT_SLOW uint32_t grow(ga_growth *growth, uint32_t lanes, uint32_t want, uint32_t *rows)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_growth_hint(tile, growth, want, prepare, rows);
    return ga_growth_await(tile, growth, want, prepare, rows);
}
__global__ void kernel(ga_growth *growth, uint32_t *rows, uint32_t *found)
{
    found[threadIdx.x] = grow(growth, __activemask(), found[threadIdx.x], rows);
}
"""

# Lanes and rows of every origin; LINE is at a place where only a uniform value may decide.
PROGRAM = """
#include "simt.h"
uint32_t check(uint32_t *words, uint32_t n);
uint32_t check(uint32_t *words, uint32_t n)
{{
    ga_tile tile = ga_tile_of(8);
    ga_lanes lanes = ga_lanes_numbers(tile) + n;
    ga_lanes others = ga_lanes_all(n);
    ga_row row = ga_row_load(tile, words);
    uint32_t answer = ga_lanes_sum(tile, lanes) + ga_row_match(tile, row, n) + others[0];
    bool decided = false;
    {line}
    return answer + (decided ? 1u : 0u);
}}
"""

UNIFORM = [
    "",
    "if (ga_lanes_any(tile, lanes)) { answer++; }",
    "if (ga_row_match(tile, row, n)) { answer++; }",
    "while (ga_lanes_nonzero(tile, lanes) & answer) { answer /= 2; }",
    "answer = ga_lanes_get(tile, lanes, 3) ? answer : n;",
    "decided = ga_lanes_any(tile, lanes);",
    "GA_EACH_LANE(tile, n, own) { if (ga_lane_read(lanes, own)) { answer++; } }",
    "GA_SHARE(tile, n, lane) { ga_share_answer(tile, &lanes, lane, n); }",
]

DIVERGENT = [
    "if (lanes) { answer++; }",
    "if (row) { answer++; }",
    "if (lanes == others) { answer++; }",
    "if (row == ga_row_load(tile, words)) { answer++; }",
    "if (lanes + n) { answer++; }",
    "if (!lanes) { answer++; }",
    "if (lanes && n) { answer++; }",
    "while (lanes) { answer++; }",
    "do { answer++; } while (row);",
    "for (; lanes;) { answer++; }",
    "answer = lanes ? answer : n;",
    "switch (lanes) { default: answer++; }",
    "decided = lanes;",
    "answer = lanes;",
    "answer = words[lanes];",
    "answer = ga_row_get(tile, row, lanes);",
    "answer = ga_lanes_get(tile, lanes, others);",
    "GA_EACH_LANE(tile, lanes, own) { (void)own; answer++; }",
    "GA_SHARE(tile, lanes, lane) { (void)lane; answer++; }",
]


class Simt(Case):
    def compile_c(self, compiler: list[str], source: object) -> None:
        self.run_command(*compiler, "-std=c17", "-D_GNU_SOURCE", "-pedantic-errors", *C_WARNINGS,
                         "-Wno-psabi", "-O1", f"-I{SIMT}", "-c", "-o", "object.o", source)

    def compile_nvcc(self, source: object) -> None:
        self.run_command(NVCC, "-std=c++17", "-Werror=all-warnings", "-arch=sm_90",
                         "-Xcompiler=-Wall,-Wextra,-Werror", f"-I{SIMT}", "-c", "-o", "object.o",
                         source)

    def test_headers_are_found(self) -> None:
        self.assertLessEqual(CPU_ONLY | GPU_ONLY | {"bits.h", "atomic.h", "row.h", "share.h",
                                                    "simt.h"}, set(HEADERS))

    def test_c17(self) -> None:
        for compiler in compilers([CC, ["gcc"], ["clang"]]):
            for header in HEADERS:
                if header not in GPU_ONLY:
                    with self.subTest(header=header, compiler=compiler[0]):
                        text = f'#include "{header}"\n' * 2 + "int unused;\n"
                        self.compile_c(compiler, self.write("alone.c", text))

    @unittest.skipUnless(NVCC, "no nvcc")
    def test_nvcc(self) -> None:
        for header in HEADERS:
            if header not in CPU_ONLY:
                with self.subTest(header=header):
                    text = f'#include "{header}"\n' * 2
                    self.compile_nvcc(self.write("alone.cu", text))

    @unittest.skipUnless(NVCC, "no nvcc")
    def test_growth_in_a_kernel(self) -> None:
        self.compile_nvcc(self.write("growth.cu", GROWTH))

    def test_uniform_branches_compile(self) -> None:
        for compiler in compilers([["gcc"], ["clang"]]):
            for line in UNIFORM:
                with self.subTest(line=line, compiler=compiler[0]):
                    self.compile_c(compiler, self.write("uniform.c", PROGRAM.format(line=line)))

    def test_divergent_branches_do_not(self) -> None:
        for compiler in compilers([["gcc"], ["clang"]]):
            for line in DIVERGENT:
                with self.subTest(line=line, compiler=compiler[0]):
                    source = self.write("divergent.c", PROGRAM.format(line=line))
                    with self.assertRaisesRegex(AssertionError, "error: "):
                        self.compile_c(compiler, source)


if __name__ == "__main__":
    main()
