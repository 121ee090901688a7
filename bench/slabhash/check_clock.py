#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that no rate of bench-slabhash is faster than a processor can be: each thread times its own
calls, so no thread that only waits may be timed.

    bench/slabhash/check_clock.py BENCH-SLABHASH

All threads share one processor, so that a waiting thread reads its clock after the calls have
ended. The bound is a billion calls a second, with keys that the caches hold: a busy machine is
slower, and never faster."""

import os
import re
import subprocess
import sys

RATE_MAX = 1000.0  # millions of calls a second, by one processor
ROW = re.compile(r"^  (.+?)  +([0-9.]+)  +([0-9.]+)  +([0-9.]+)  +[0-9.]+  +[0-9.]+$")


def main() -> int:
    """0: all rates are possible."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    done = subprocess.run([sys.argv[1], "--keys", "12", "--rounds", "15", "--threads", "1,3"],
                          stdout=subprocess.PIPE, text=True, check=True)
    rows = [match for line in done.stdout.splitlines() if (match := ROW.match(line))]
    if len(rows) != 2 * 4 * 6:  # numbers of threads, workloads, ways
        print(f"{len(rows)} rows: expected 48\n{done.stdout}")
        return 1
    wrong = [row[0] for row in rows if not 0 < float(row[4]) <= RATE_MAX]
    print("\n".join(wrong) or f"the highest of {len(rows)} rates is "
          f"{max(float(row[4]) for row in rows):.0f} M/s")
    return 1 if wrong else 0


sys.exit(main())
