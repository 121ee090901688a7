#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Links between documents resolve, and files that comments and documents name exist.

A link is `[text](target)` or `[name]: target` in a document; its file and its heading must exist. A
name is a path below docs/ or bench/results/ in any text of the project. Each file of bench/results
is in the table there, and each page of docs/ in the index."""

import os
import re
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("TEST_SOURCE", Path(__file__).resolve().parents[2]))
RESULTS = SOURCE / "bench" / "results"
ROOMS = (".ci", "bench", "docs", "examples", "hashtables", "interpose", "liballoc", "packaging",
         "scripts", "spgemm", "tests")
PLANTED = {"test_prose.py", "test_docs.py"}  # they name files that need not exist
LINK = re.compile(r"\]\(([^()\s]+)\)|^\[[^\]]+\]:\s+(\S+)$", re.MULTILINE)
NAMED = re.compile(r"(?<![\w/.-])(?:docs|bench/results)/[\w/.-]*"
                   r"\.(?:md|py|log|txt|jsonl|gz|svg|1|3|7)\b")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def texts(root: Path) -> list[Path]:
    """Documents and sources of the project below `root`, without the logs."""
    found = [path for path in root.iterdir() if path.is_file()]
    for room in ROOMS:
        found += [path for path in (root / room).rglob("*") if path.is_file()]
    return [path for path in found if path.name not in PLANTED and "__pycache__" not in path.parts
            and (path.parts[:-2] != RESULTS.parts or path.suffix == ".md")
            and not path.is_symlink()]


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def anchors(page: Path) -> set[str]:
    """The names by which the headings of a page are linked."""
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for match in LINK.finditer(CODE.sub("", read(page))):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{page}: {target}")
    return broken


def missing_names(root: Path, path: Path) -> list[str]:
    return [f"{path}: {name}" for name in NAMED.findall(read(path))
            if not any((place / name).exists() for place in (root, path.parent))]


class Docs(unittest.TestCase):
    def test_links(self) -> None:
        pages = [path for path in texts(SOURCE) if path.suffix == ".md"]
        self.assertGreater(len(pages), 20)
        self.assertEqual([], [link for page in pages for link in broken_links(page)])

    def test_names(self) -> None:
        self.assertEqual([], [name for path in texts(SOURCE)
                              for name in missing_names(SOURCE, path)])

    def test_index(self) -> None:
        """docs/README.md names each page, and thereby its place in the site."""
        index = SOURCE / "docs/README.md"
        linked = {(index.parent / target[1]).resolve() for target in LINK.finditer(read(index))
                  if target[1]}
        pages = set((SOURCE / "docs").resolve().rglob("*.md")) - {index.resolve()}
        self.assertGreater(len(pages), 20)
        self.assertEqual([], sorted(str(page) for page in pages - linked))

    def test_results(self) -> None:
        table = read(RESULTS / "README.md")
        files = [path.relative_to(RESULTS) for path in RESULTS.rglob("*") if path.is_file()]
        self.assertEqual([], [str(file) for file in files
                              if str(file) != "README.md" and f"({file})" not in table])


if __name__ == "__main__":
    unittest.main(verbosity=2)
