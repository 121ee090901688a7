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


def nodes_of(text: str) -> dict[str, str]:
    """The node of each global name of a symbol map; "" in one without nodes."""
    found = {}
    for node, body in re.findall(r"^([\w.]*)\s*\{(.*?)\}", without_comments(text),
                                 re.MULTILINE | re.DOTALL):
        for name in re.findall(r"(\w+);", body.partition("local:")[0]):
            found[name] = node
    return found


def mapped(path: str) -> dict[str, str]:
    text = (SOURCE / path).read_text(encoding="utf-8")
    assert re.search(r"local:\s*\*;", text), f"{path} exports by name and hides the rest"
    return nodes_of(text)


def released() -> dict[str, str]:
    """The node of each function of the last release."""
    text = (SOURCE / "abi/libgpualloc.so.0.abi").read_text(encoding="utf-8")
    return dict(re.findall(r"<elf-symbol name='(\w+)' version='([\w.]+)'", text))


def misplaced(nodes: dict[str, str], before: dict[str, str]) -> list[str]:
    """The functions that are not in the node of the release that had them first. Beside a library
    of an earlier release, the loader refuses a program for a later one by the name of a node."""
    closed = set(before.values())
    return sorted(name for name, node in nodes.items()
                  if (before[name] != node if name in before else node in closed))


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
        self.assertEqual(declared(), set(mapped("liballoc/exports.map")))

    def test_library_exports_what_the_map_says(self) -> None:
        self.assertEqual(mapped("liballoc/exports.map"), self.exported(LIBRARY))

    def test_functions_are_in_the_node_of_their_release(self) -> None:
        """A node that a release has is closed. Before the release of a node,
        `scripts/check-abi --write` adds the functions that it gets."""
        self.assertGreater(len(released()), 25)
        self.assertEqual([], misplaced(mapped("liballoc/exports.map"), released()))

    def test_misplaced_functions_are_found(self) -> None:
        nodes = nodes_of("V_0.1 {\nglobal:\n    a; b; c;\nlocal:\n    *;\n};\n"
                         "V_0.2 {\nglobal:\n    d;\n} V_0.1;\n")
        self.assertEqual(["c", "d"], misplaced(nodes, dict.fromkeys("abd", "V_0.1")))
        self.assertEqual([], misplaced(nodes, dict.fromkeys("abc", "V_0.1")))

    def test_debian_has_each_node(self) -> None:
        """With the release that has it first, on which dependents of its functions depend."""
        text = (SOURCE / "debian/libgpualloc0.symbols").read_text(encoding="utf-8")
        found = dict(re.findall(r"^ \(symver\)(\S+) (\S+)$", text, re.MULTILINE))
        self.assertEqual(set(mapped("liballoc/exports.map").values()), set(found))
        for node, version in found.items():
            self.assertRegex(version, rf"^{re.escape(node.removeprefix('GPUALLOC_'))}\.\d+$")

    def test_preload_exports_the_malloc_family(self) -> None:
        exported = self.exported(PRELOAD)
        self.assertEqual(set(mapped("interpose/malloc/exports.map")), set(exported))
        # sbrk keeps the program break for the C library, and the `dl` backend detects the preload
        # by the other name.
        self.assertEqual(MALLOC_FAMILY | {"sbrk", "gpualloc_malloc_preload"}, set(exported))
        self.assertEqual({""}, set(exported.values()), "versions would miss older references")

    def test_preload_for_aligned_blocks_exports_no_other_function_of_the_family(self) -> None:
        exported = self.exported(ALIGN_PRELOAD)
        self.assertEqual(set(mapped("interpose/align/exports.map")), set(exported))
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
