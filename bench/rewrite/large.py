#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write a large MPI program in C, to measure how long `gpualloc rewrite` takes.

    bench/rewrite/large.py FOLDER [--lines N] [--modules M] [--one] [--chain] [--seed S]

The program has N lines (100,000) in M modules (100). FOLDER gets a source and a header for each,
and main.c; with --one a single source, all.c. Functions of about 18 lines allocate, test results,
loop, branch on the rank, exchange messages, set variables of their module, and call others: most
in their own module, some in a module that they include, some recursively. With --chain each
function calls the next one alone, and those of the last two modules in three get the rank, which
neither memory nor messages keep the analysis from following. Names are words, so that their order
is not that of the calls."""

import argparse
import pathlib
import random

VERBS = ("add", "balance", "check", "drain", "exchange", "fill", "gather", "hold", "init", "join",
         "keep", "load", "merge", "norm", "order", "pack", "query", "reduce", "scale", "trace",
         "update", "visit", "weigh", "yield", "zero")
NOUNS = ("axis", "block", "cell", "domain", "edge", "face", "grid", "halo", "index", "jump", "key",
         "level", "mesh", "node", "orbit", "plane", "queue", "row", "site", "table", "unit",
         "vector", "wave", "xray", "zone")
LINES_OF_FUNCTION = 17.5
INCLUDED = 8  # modules that a module includes
HEAD = ["#include <mpi.h>", "#include <stdio.h>", "#include <stdlib.h>"]
GRID = ["struct grid {", "    int n, level;", "    double *cells;", "    struct grid *next;", "};"]


class Module:
    def __init__(self, number: int, functions: int, chance: random.Random) -> None:
        self.number, self.random = number, chance
        self.names = [f"{chance.choice(VERBS)}_{chance.choice(NOUNS)}_{number}_{i}"
                      for i in range(functions)]
        self.is_static = [i > 0 and chance.random() < 0.5 for i in range(functions)]
        self.variables = [f"count_{number}", f"limit_{number}", f"step_{number}"]
        self.includes: list[Module] = []
        self.after: Module | None = None  # the next of a chain

    def prototype(self, i: int) -> str:
        static = "static " if self.is_static[i] else ""
        return f"{static}int {self.names[i]}(int n, double *x, struct grid *g)"

    def header(self) -> list[str]:
        shared = [self.prototype(i) + ";" for i, own in enumerate(self.is_static) if not own]
        return [f"extern int {self.variables[0]};", *shared]

    def callee(self, i: int) -> str:
        """Mostly a later function of the module, so that recursion is the exception."""
        chance = self.random.random()
        if chance < 0.15 and self.includes:
            other = self.random.choice(self.includes)
            shared = [name for name, own in zip(other.names, other.is_static) if not own]
            return self.random.choice(shared)
        if chance < 0.18:
            return self.random.choice(self.names)
        return self.names[min(i + 1 + int(self.random.expovariate(0.1)), len(self.names) - 1)]

    def call(self, i: int) -> str:
        size = self.random.choice(["n", "n - 1", "n / 2", "64", "g->n", self.variables[1]])
        return f"{self.callee(i)}({size}, {self.random.choice(['x', 'work'])}, g)"

    def link(self, i: int) -> list[str]:
        """The body of function i of a chain."""
        pick, (count, limit, step) = self.random.choice, self.variables
        following = self.names[i + 1:i + 2] or [self.after.names[0] if self.after else ""]
        size = pick(["n", "n", "n / 2 + 1", limit])
        call = [f"    sum += {following[0]}({size}, x, g);"] if following[0] else []
        return [f"    double *work = malloc({pick(['n', '64', step])} * sizeof *work);",
                "    if (!work)", "        exit(1);", f"    {pick([count, limit, step])} = n;",
                "    for (k = 0; k < n; k++) {", "        sum += k;", "    }",
                f"    if (sum > {limit}) {{", "        sum--;", "    }", *call, "    free(work);",
                "    return sum + rank;"]

    def part(self, i: int) -> list[str]:
        """Statements of the body of function i."""
        pick, number = self.random.choice, self.random.randrange
        count, limit, step = self.variables
        return pick([
            lambda: [f"    sum += {self.call(i)};"],
            lambda: [f"    if ({self.call(i)} < 0)", "        return -1;"],
            lambda: [f"    for (k = 0; k < {pick(['n', 'g->n', '16'])}; k++) {{",
                     "        work[k % 8] += x[k % 4] * k;", "        sum += k;", "    }"],
            lambda: [f"    if (n > {number(99)}) {{", f"        sum += {self.call(i)};",
                     "    } else {", f"        sum -= {pick(self.variables)};", "    }"],
            lambda: ["    MPI_Comm_rank(MPI_COMM_WORLD, &rank);", "    if (rank == 0) {",
                     f"        printf(\"%d %d\\n\", sum, {count});", "    }"],
            lambda: [f"    {count} = {pick(['n', 'sum', limit, step])};"],
            lambda: [f"    {step}++;", f"    while (sum > {limit} && sum > 0) {{",
                     f"        sum -= {step};", "    }"],
            lambda: ["    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);"],
            lambda: [f"    MPI_Bcast(x, {pick(['4', 'n'])}, MPI_DOUBLE, 0, MPI_COMM_WORLD);"],
            lambda: [f"    if ({step} % 2)",
                     "        MPI_Send(x, 1, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD);"],
            lambda: [f"    switch (n % {number(3, 9)}) {{", "    case 0:",
                     f"        sum += {self.call(i)};", "        break;", "    default:",
                     "        sum++;", "    }"],
            lambda: ["    if (g->next && g->next->level < n) {",
                     f"        sum += {self.callee(i)}(n, x, g->next);", "    }"],
        ])()

    def function(self, i: int, is_chain: bool) -> list[str]:
        size = self.random.choice(["n * sizeof *work", "64 * sizeof *work", "g->n * 8",
                                   f"{self.variables[1]} * sizeof *work"])
        allocates = self.random.random() < 0.5
        text = ["", self.prototype(i), "{", "    int k = 0, rank = 0, sum = n;"]
        if is_chain:
            return [*text, *self.link(i), "}"]
        if allocates:
            text += [f"    double *work = malloc({size});", "    if (!work)",
                     self.random.choice(["        return -1;", "        exit(1);"])]
        else:
            text += ["    double work[8] = {0};"]
        for _ in range(3):
            text += self.part(i)
        text += ["    free(work);"] if allocates else []
        varies = self.random.random() < 0.2
        return [*text, f"    return sum{' + (rank > k)' if varies else ''};", "}"]

    def source(self, is_chain: bool) -> list[str]:
        text = [f"int {self.variables[0]} = 1;"]
        text += [f"static int {name} = {self.random.randrange(9)};" for name in self.variables[1:]]
        text += [self.prototype(i) + ";" for i, own in enumerate(self.is_static) if own]
        for i in range(len(self.names)):
            text += self.function(i, is_chain)
        return text


def make_modules(lines: int, count: int, is_chain: bool, chance: random.Random) -> list[Module]:
    functions = max(1, int(lines / (LINES_OF_FUNCTION + is_chain) / count))
    modules = [Module(number, functions, chance) for number in range(count)]
    for module in modules:
        later = modules[module.number + 1:module.number + 1 + 4 * INCLUDED]
        module.includes = chance.sample(later, min(len(later), INCLUDED))
        module.includes.append(chance.choice(modules))  # a circle now and then
        module.after = later[0] if is_chain and later else None
    return modules


def main_function(modules: list[Module]) -> list[str]:
    calls = [f"    {module.names[0]}(argc * 8, x, &g);" for module in modules]
    if modules[0].after:
        calls = ["    int rank;", "    MPI_Comm_rank(MPI_COMM_WORLD, &rank);", calls[0],
                 f"    {modules[len(modules) // 3].names[0]}(rank, x, &g);"]
    return ["", "int main(int argc, char **argv)", "{", "    double x[4] = {0};",
            "    struct grid g = {8, 0, 0, 0};", "    MPI_Init(&argc, &argv);", *calls,
            "    MPI_Finalize();", "    return 0;", "}"]


def write(path: pathlib.Path, lines: list[str]) -> int:
    path.write_text("\n".join(lines) + "\n")
    return len(lines)


def write_files(folder: pathlib.Path, modules: list[Module], is_chain: bool) -> int:
    """Returns the number of lines, without headers."""
    write(folder / "grid.h", ["#pragma once", *GRID])
    total = 0
    for module in modules:
        wanted = {module, *module.includes, module.after or module}
        names = sorted(f"module_{other.number}.h" for other in wanted)
        write(folder / f"module_{module.number}.h",
              ["#pragma once", '#include "grid.h"', *module.header()])
        total += write(folder / f"module_{module.number}.c",
                       HEAD + [f'#include "{name}"' for name in names] + module.source(is_chain))
    headers = [f'#include "module_{module.number}.h"' for module in modules]
    return total + write(folder / "main.c", HEAD + headers + main_function(modules))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a large MPI program in C.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--modules", type=int, default=100)
    parser.add_argument("--one", action="store_true", help="one source of all modules")
    parser.add_argument("--chain", action="store_true", help="each function calls the next one")
    parser.add_argument("--seed", type=int, default=1)
    of = parser.parse_args()
    modules = make_modules(of.lines, of.modules, of.chain, random.Random(of.seed))
    of.folder.mkdir(parents=True, exist_ok=True)
    if of.one:
        headers = [line for module in modules for line in module.header()]
        body = [line for module in modules for line in module.source(of.chain)]
        total = write(of.folder / "all.c", HEAD + GRID + headers + body + main_function(modules))
    else:
        total = write_files(of.folder, modules, of.chain)
    print(f"{total} lines, {sum(len(module.names) for module in modules) + 1} functions")


if __name__ == "__main__":
    main()
