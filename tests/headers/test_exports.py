# SPDX-License-Identifier: MIT
"""The exports and needs of the libraries: the names in the headers, in the symbol maps and in
the files are equal, and only the C library is needed."""

import re
import unittest

from surroundings import (ALIGN_PRELOAD, HEADERS, LIBRARY, MALLOC_FAMILY, PRELOAD, SANITIZED,
                          SOURCE, Case, main)

# Part of glibc wherever it runs; the loader is named where thread-local storage is used.
C_LIBRARY = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2",
             "ld-linux-aarch64.so.1"}

ALIGNED_FAMILY = {"memalign", "posix_memalign", "aligned_alloc", "valloc", "pvalloc",
                  "free_aligned_sized"}


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def declared() -> set[str]:
    """Functions marked GA_API in the headers."""
    names: set[str] = set()
    for header in HEADERS:
        text = without_comments(header.read_text(encoding="utf-8"))
        names |= set(re.findall(r"^GA_API\b[^;(]*?\b(\w+)\s*\(", text, re.MULTILINE))
    return names


def mapped(path: str) -> set[str]:
    """The global names of a symbol map."""
    text = without_comments((SOURCE / path).read_text(encoding="utf-8"))
    found = re.search(r"global:(.*?)local:\s*\*;", text, re.DOTALL)
    assert found, f"{path} exports by name and hides the rest"
    return set(re.findall(r"(\w+);", found[1]))


class Exports(Case):
    def exported(self, library: object) -> dict[str, str]:
        """Each name a library defines for others, and its version; "" without one."""
        names = {}
        for line in self.run_command("nm", "-D", "--defined-only", library).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.partition("@@")
            if kind != "A":  # the name of a version itself
                names[name] = version
        return names

    def dynamic(self, library: object) -> str:
        return self.run_command("readelf", "--wide", "--dynamic", library)

    def test_headers_agree_with_the_map(self) -> None:
        self.assertGreater(len(declared()), 25)
        self.assertEqual(declared(), mapped("liballoc/exports.map"))

    def test_library_exports_what_the_map_says(self) -> None:
        exported = self.exported(LIBRARY)
        self.assertEqual(mapped("liballoc/exports.map"), set(exported))
        self.assertEqual({"GPUALLOC_0.1"}, set(exported.values()))

    def test_preload_exports_the_malloc_family(self) -> None:
        exported = self.exported(PRELOAD)
        self.assertEqual(mapped("interpose/malloc/exports.map"), set(exported))
        # sbrk keeps the program break for the C library, and the `dl` backend detects the preload
        # by the other name.
        self.assertEqual(MALLOC_FAMILY | {"sbrk", "gpualloc_malloc_preload"}, set(exported))
        self.assertEqual({""}, set(exported.values()), "versions would miss older references")

    def test_preload_for_aligned_blocks_exports_no_other_function_of_the_family(self) -> None:
        exported = self.exported(ALIGN_PRELOAD)
        self.assertEqual(mapped("interpose/align/exports.map"), set(exported))
        operators = {name for name in exported if re.match("_Z(nw|na|dl|da)", name)}
        self.assertEqual(ALIGNED_FAMILY, set(exported) - operators)
        # Each operator new, and those operators delete that rely on the size of an aligned block.
        self.assertEqual((8, 2), (sum(name.startswith("_Zn") for name in operators),
                                  sum("mSt11align_val_t" in name and name.startswith("_Zd")
                                      for name in operators)))
        self.assertEqual((10, {""}), (len(operators), set(exported.values())))

    @unittest.skipIf(SANITIZED, "a sanitizer adds libraries of its own")
    def test_nothing_but_the_c_library_is_needed(self) -> None:
        for library in (LIBRARY, PRELOAD, ALIGN_PRELOAD):
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", self.dynamic(library)))
            self.assertLessEqual(needed, C_LIBRARY, library)

    def test_soname(self) -> None:
        self.assertIn("Library soname: [libgpualloc.so.0]", self.dynamic(LIBRARY))
        self.assertIn("Library soname: [libgpualloc-malloc.so]", self.dynamic(PRELOAD))
        self.assertIn("Library soname: [libgpualloc-align.so]", self.dynamic(ALIGN_PRELOAD))

    def test_library_needs_no_static_tls(self) -> None:
        """A library that does cannot always be loaded while a program runs."""
        self.assertNotIn("STATIC_TLS", self.dynamic(LIBRARY))
        self.assertNotIn("TEXTREL", self.dynamic(LIBRARY))


if __name__ == "__main__":
    main()
