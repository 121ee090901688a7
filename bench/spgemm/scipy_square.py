#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The time of A A by SciPy, with sorted columns, for Matrix Market files: a baseline for the
products of `gpualloc bench spgemm --file FILE` on the host. SciPy uses one thread.

    bench/spgemm/scipy_square.py [--rounds N] FILE...

Prints for each file rows, entries, entries of the product, and the median and half the
interquartile range of the rounds."""

import argparse
import pathlib
import statistics
import sys
import time


def measure(matrix, rounds: int) -> tuple[list[float], int]:
    """Milliseconds of each round, and the entries of the product."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        product = matrix @ matrix
        product.sort_indices()
        times.append((time.perf_counter() - begin) * 1e3)
    return times, product.nnz


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds: bad number {arguments.rounds}; expected 1 or more")
    try:
        import scipy
        import scipy.io
        import scipy.sparse
    except ImportError:
        print("scipy_square.py: SciPy is not installed", file=sys.stderr)
        return 77
    print(f"SciPy {scipy.__version__}, {arguments.rounds} rounds")
    for file in arguments.files:
        try:
            matrix = scipy.sparse.csr_array(scipy.io.mmread(file))
        except (OSError, ValueError) as error:
            print(f"scipy_square.py: {file}: {error}", file=sys.stderr)
            return 1
        times, entries = measure(matrix, arguments.rounds)
        quarters = statistics.quantiles(times, n=4) if len(times) > 1 else [0.0, 0.0, 0.0]
        spread = (quarters[2] - quarters[0]) / 2
        print(f"{pathlib.Path(file).stem}: {matrix.shape[0]} rows, {matrix.nnz} entries, product "
              f"{entries}: {statistics.median(times):.1f} ms +- {spread:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
