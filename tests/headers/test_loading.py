#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Linking or loading libgpualloc leaves the program's malloc the C library's, and never fails for
lack of static thread-local storage; heaps work all the same."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import support

LINKED = os.environ["GA_LINKED"]
STATIC_TLS = Path(os.environ["GA_STATIC_TLS"])
LOADING = Path(__file__).resolve().parent / "loading.py"
PYTHON = "/usr/bin/python3"
SPECS = ["system"] + ["jemalloc"] * support.HAVE_JEMALLOC
COPIES = 40  # more than fit, at 300 bytes each


class Bindings(NamedTuple):
    """Which library each name that was looked up was found in, as the dynamic linker tells."""
    family: dict[str, set[str]]
    ours: set[str]


def bindings(*command: object) -> Bindings:
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                          timeout=120, env=support.CLEAN | {"LD_DEBUG": "bindings",
                                                            "LD_BIND_NOW": "1"})
    found = re.findall(r"binding file \S+ \[\d+\] to (\S+) \[\d+\]: \w+ symbol `(\w+)'",
                       done.stderr)
    family: dict[str, set[str]] = {}
    for library, name in found:
        if name in support.MALLOC_FAMILY:
            family.setdefault(name, set()).add(os.path.basename(library))
    return Bindings(family, {name for library, name in found if "libgpualloc" in library})


class Case(support.Case):

    def malloc_is_the_c_librarys(self, *command: object) -> None:
        """Whoever in the process looks malloc up finds the C library's, and what is found in ours
        has our names."""
        found = bindings(*command)
        self.assertLessEqual({"malloc", "free", "calloc", "realloc"}, set(found.family))
        for name, libraries in found.family.items():
            # The program may stand for it, where its code is not made to be moved.
            self.assertIn("libc.so.6", libraries, name)
            self.assertNotIn("gpualloc", " ".join(libraries), name)
        self.assertIn("ga_heap_open", found.ours)
        self.assertEqual([], [name for name in found.ours if not name.startswith("ga_")])


class Linked(Case):

    def test_malloc_stays(self) -> None:
        for spec in SPECS:
            with self.subTest(spec):
                places = self.run_well(LINKED, spec).splitlines()
                self.assertEqual(4, len(places))
                for place in places:
                    self.assertRegex(place, r"/libc\.so\.6$")

    def test_nobody_is_bound_to_ours(self) -> None:
        self.malloc_is_the_c_librarys(LINKED, SPECS[-1])


class Loaded(Case):

    def load(self, spec: str, *tls_libraries: Path) -> int:
        return int(self.run_well(PYTHON, LOADING, support.LIBRARY, spec, *tls_libraries))

    def test_by_ctypes(self) -> None:
        for spec in SPECS:
            with self.subTest(spec):
                self.assertEqual(0, self.load(spec))

    def test_nobody_is_bound_to_ours(self) -> None:
        self.malloc_is_the_c_librarys(PYTHON, LOADING, support.LIBRARY, SPECS[-1])

    def test_with_300_bytes_of_static_tls_used(self) -> None:
        for spec in SPECS:
            with self.subTest(spec):
                self.assertEqual(1, self.load(spec, STATIC_TLS))

    def test_with_no_static_tls_left(self) -> None:
        copies = [self.folder / f"tls-{i}.so" for i in range(COPIES)]
        for copy in copies:
            shutil.copy(STATIC_TLS, copy)
        for spec in SPECS:
            with self.subTest(spec):
                self.assertIn(self.load(spec, *copies), range(1, COPIES))


if __name__ == "__main__":
    support.main()
