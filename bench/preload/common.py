# SPDX-License-Identifier: MIT
"""Common parts of the scripts that measure whole programs: paths of products, form of results."""

import argparse
import datetime
import functools
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]


def clean_environment() -> dict[str, str]:
    """The environment without preloads and our settings, so that only intended settings apply."""
    return {key: value for key, value in os.environ.items()
            if key != "LD_PRELOAD" and not key.startswith("GPUALLOC_")}


def find_library(soname: str) -> str | None:
    """The full path of a library that the dynamic linker would find."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    found = re.search(rf"^\s*{re.escape(soname)} .*=> (\S+)$", listing, re.MULTILINE)
    return found[1] if found else None


def add_build_arguments(parser: argparse.ArgumentParser, **products: str) -> None:
    """An option --build for the build directory, and one for each product, by default in there."""
    parser.add_argument("--build", metavar="DIR", type=Path, default=ROOT / "build",
                        help="the build directory (default: build)")
    for name, place in products.items():
        parser.add_argument(f"--{name}", metavar="FILE", help=f"default: DIR/{place}")
    parser.set_defaults(products=products)


def resolve_products(arguments: argparse.Namespace) -> None:
    """Fill in the products that were not named; end the program if one is not there."""
    for name, place in arguments.products.items():
        path = Path(getattr(arguments, name) or arguments.build / place).resolve()
        if not path.is_file():
            sys.exit(f"no file {path}: build first, or name another with --build or --{name}")
        setattr(arguments, name, str(path))


@functools.cache
def processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


@functools.cache
def commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def write_result(out: TextIO, *, bench: str, spec: str, metric: str, unit: str, value: float,
                 spread: float, baseline: str, ratio: float, size: int = 0) -> None:
    """One line with the keys that bench/README.md describes. Size 0: the program's own."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    line: dict[str, Any] = {
        "bench": bench, "place": "host", "spec": spec, "device": processor(), "driver": None,
        "threads": 1, "size": size, "metric": metric, "unit": unit, "value": value,
        "spread": spread, "baseline": baseline, "ratio": ratio, "date": date, "commit": commit(),
    }
    print(json.dumps(line, separators=(",", ":")), file=out, flush=True)
