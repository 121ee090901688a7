#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A room includes only rooms above it (CONTRIBUTING.md), and each room has a README."""

import os
import re
from pathlib import Path

from surroundings import SOURCE, Case, main

# From the first room to the last. Rooms of one line do not include each other.
ORDER = [
    ["platform", "simt"],
    ["device"],
    ["growth"],
    ["arena"],
    ["reclaim"],
    ["backends/native", "backends/vmm", "backends/slab/units", "backends/hazard",
     "backends/hardened", "backends/testing", "backends/trace"],
    ["backends/slab/classes", "backends/slab/host"],
    ["backends/slab", "backends/coalesce"],
    ["runtime"],
    ["linked", "frameworks"],
    ["lfht", "slabhash", "spgemm"],
    ["sharded"],
    ["device_code"],
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
ROOTS = [SOURCE / "liballoc", SOURCE / "hashtables"]
FOLDERS = [*ROOTS, SOURCE / "spgemm"]  # the last is a room itself


def sources() -> list[Path]:
    return sorted(Path(folder) / name for root in FOLDERS for folder, _, names in os.walk(root)
                  for name in names if re.search(r"\.(c|h|cu|cuh)$", name))


def room_of(file: Path) -> str:
    """The longest known room that the file is in; "" for a public header."""
    folder = file.parent
    for root in [SOURCE, *ROOTS]:
        if root in file.parents:
            folder = file.parent.relative_to(root)
    parts = folder.parts
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in RANK:
            return "/".join(parts[:length])
    return ""


def target(file: Path, name: str) -> Path | None:
    for base in (file.parent, SOURCE / "liballoc", SOURCE / "liballoc/include"):
        if (base / name).is_file():
            return (base / name).resolve()
    return None


def may_include(file: Path, here: str, there: str) -> bool:
    if not here or not there or here == there:
        return True
    if file.name == "registry.c":  # it names the built-in backends
        return True
    return RANK[there] < RANK[here]


class Rooms(Case):
    def test_includes_run_upwards(self) -> None:
        wrong, seen = [], 0
        for file in sources():
            for name in INCLUDE.findall(file.read_text(encoding="utf-8")):
                found = target(file, name)
                if found:
                    seen += 1
                    if not may_include(file, room_of(file), room_of(found)):
                        wrong.append(f"{file.relative_to(SOURCE)} includes {name}")
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 500)

    def test_each_source_is_in_a_room(self) -> None:
        self.assertEqual([str(file) for file in sources()
                          if not room_of(file) and "include" not in file.parts], [])

    def test_each_room_has_a_readme(self) -> None:
        wings = {"backends/native", "backends/hazard", "backends/hardened", "backends/testing",
                 "backends/trace", "backends/slab/units", "backends/slab/classes",
                 "backends/slab/host"}  # in the README of the folder above
        self.assertEqual([room for room in RANK if room not in wings and
                          not any((root / room / "README.md").is_file()
                                  for root in [SOURCE, *ROOTS])], [])


if __name__ == "__main__":
    main()
