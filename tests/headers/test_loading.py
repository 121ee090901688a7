# SPDX-License-Identifier: MIT
"""The library in a process that loads it late, Debian's python3 by ctypes: malloc stays the C
library's, heaps work in threads from before and after, and it never fails for lack of static
thread-local storage, which is scarce."""

import shutil
import sys
import unittest
from pathlib import Path

from surroundings import CC, LIBRARY, SANITIZED, SPECS, Case, bindings, main

LOADING = Path(__file__).resolve().parent / "loading.py"
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
COPIES = 40  # more than fit

# Its variables take static storage: each such library leaves less for the next.
STATIC_TLS = r"""
char *storage(void);
static _Thread_local char bytes[300] __attribute__((tls_model("initial-exec")));
char *storage(void) { bytes[0] = 1; return bytes; }
"""


@unittest.skipIf(SANITIZED, "a sanitized library loads into sanitized programs only")
class Loading(Case):
    def load(self, spec: str, *tls_libraries: Path) -> int:
        """The number of `tls_libraries` that could be loaded first; loading.py checks the rest."""
        return int(self.run_command(PYTHON, LOADING, LIBRARY, spec, *tls_libraries))

    def tls_library(self) -> Path:
        source = self.write("static_tls.c", STATIC_TLS)
        library = self.folder / "static_tls.so"
        self.run_command(*CC, "-shared", "-fPIC", source, "-o", library)
        self.assertIn("STATIC_TLS", self.run_command("readelf", "--dynamic", library))
        return library

    def test_heaps_work_in_every_thread(self) -> None:
        for spec in SPECS:
            with self.subTest(spec=spec):
                self.assertEqual(0, self.load(spec))

    def test_with_300_bytes_of_static_tls_used(self) -> None:
        library = self.tls_library()
        for spec in SPECS:
            with self.subTest(spec=spec):
                self.assertEqual(1, self.load(spec, library))

    def test_with_no_static_tls_left(self) -> None:
        library = self.tls_library()
        copies = [self.folder / f"copy-{i}.so" for i in range(COPIES)]
        for copy in copies:
            shutil.copy(library, copy)
        for spec in SPECS:
            with self.subTest(spec=spec):
                self.assertIn(self.load(spec, *copies), range(1, COPIES))

    def test_nobody_is_bound_to_it_for_malloc(self) -> None:
        family, _ = bindings(PYTHON, LOADING, LIBRARY, SPECS[-1])
        self.assertLessEqual({"malloc", "free", "calloc", "realloc"}, set(family))
        for name, libraries in family.items():
            # A program that is not position-independent may define names of the C library.
            self.assertIn("libc.so.6", libraries, name)
            self.assertNotIn("libgpualloc", " ".join(libraries), name)


if __name__ == "__main__":
    main()
