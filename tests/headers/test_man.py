# SPDX-License-Identifier: MIT
"""The manual pages: formatters accept them, indexes find them, and they agree with the headers, the
symbol map and the list of environment variables. tests/api/test_cli.py compares the options."""

import re
import shlex
import shutil
import unittest
from pathlib import Path

from surroundings import HEADERS, SOURCE, Case, main
from test_exports import mapped, without_comments

PAGES = sorted((SOURCE / "docs/man").glob("*.[1-9]"))
FUNCTIONS = [page for page in PAGES if page.suffix == ".3"]
SUBCOMMANDS = [page for page in PAGES if page.suffix == ".1" and "-" in page.stem]
OVERVIEW = SOURCE / "docs/man/gpualloc.3"


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def section(page: Path, title: str) -> str:
    """The lines between `.Sh title` and the next section."""
    found = re.search(rf"^\.Sh {title}\n(.*?)(?=^\.Sh |\Z)", text(page), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def named(page: Path) -> list[str]:
    """The names in the NAME section."""
    return re.findall(r"^\.Nm (\S+)", section(page, "NAME"), re.MULTILINE)


def plain(prototype: str) -> str:
    return re.sub(r"\s*\*\s*", "*", " ".join(prototype.split()))


def header(name: str) -> str:
    paths = [path for path in HEADERS if path.name == name]
    return without_comments(paths[0].read_text(encoding="utf-8"))


def declared(name: str) -> dict[str, str]:
    """The prototypes of the exported functions of a header, by name."""
    found = {}
    for one in re.findall(r"^GA_API\b([^;{]*?);", header(name), re.MULTILINE):
        prototype = plain(re.sub(r"__attribute__\(\(.*\)\)", "", one, flags=re.DOTALL))
        found[re.search(r"(\w+)\(", prototype)[1]] = prototype
    return found


def shown(page: Path) -> dict[str, str]:
    """The prototypes in the SYNOPSIS of a page, by name."""
    found = {}
    pattern = r"^\.Ft (.*)\n\.Fn (\S+) (.*)$"
    for result, name, arguments in re.findall(pattern, section(page, "SYNOPSIS"), re.MULTILINE):
        if not result.startswith("typedef "):
            found[name] = plain(f"{result} {name}({', '.join(shlex.split(arguments))})")
    return found


class Formatters(Case):
    def silent_about(self, *command: str) -> None:
        if not shutil.which(command[0]):
            self.skipTest(f"no {command[0]}")
        self.assertGreater(len(PAGES), 10)
        for page in PAGES:
            with self.subTest(page.name):
                self.assertEqual("", self.run_command(*command, page))

    def test_groff_has_no_warnings(self) -> None:
        self.silent_about("groff", "-man", "-ww", "-z", "-Tutf8")

    def test_mandoc_has_no_warnings(self) -> None:
        self.silent_about("mandoc", "-T", "lint", "-W", "warning")

    @unittest.skipUnless(shutil.which("lexgrog"), "no lexgrog")
    def test_indexes_have_every_name(self) -> None:
        """lexgrog(1) reads the NAME section for man -k."""
        for page in PAGES:
            with self.subTest(page.name):
                found = re.findall(r'"(\S+) - .', self.run_command("lexgrog", page))
                self.assertEqual(named(page), found)
                self.assertEqual(page.stem, found[0])

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_synopses_begin_with_the_command(self) -> None:
        for page in SUBCOMMANDS:
            with self.subTest(page.name):
                shown_text = self.run_command("groff", "-man", "-Tascii", "-P-cbou", page)
                synopsis = re.search(r"^SYNOPSIS\n(.*?)^DESCRIPTION", shown_text,
                                     re.MULTILINE | re.DOTALL)[1]
                lines = re.findall(r"^ {5}(\S.*)", synopsis, re.MULTILINE)
                forms = section(page, "SYNOPSIS").count(".Nm gpualloc Cm")
                self.assertEqual(max(forms, 1), len(lines), synopsis)
                for line in lines:
                    self.assertRegex(line, rf"^{page.stem.replace('-', ' ', 1)}\b")


class Truth(Case):
    def test_references(self) -> None:
        """Pages of ours that are referred to exist, and none refers to itself."""
        ours = {(name, page.suffix[1:]) for page in PAGES for name in named(page)}
        for page in PAGES:
            for name, number in re.findall(r"^\.Xr (\S+) (\d)", text(page), re.MULTILINE):
                if name.startswith(("gpualloc", "ga_")):
                    self.assertIn((name, number), ours, page.name)
                    self.assertNotEqual((page.stem, page.suffix[1:]), (name, number))

    def test_environment(self) -> None:
        reference = (SOURCE / "docs/reference/environment.md").read_text(encoding="utf-8")
        expected = set(re.findall(r"^\| `(GPUALLOC_\w+)`", reference, re.MULTILINE))
        found = set()
        for page in PAGES:
            found |= set(re.findall(r"\bGPUALLOC_[A-Z_]+\b", section(page, "ENVIRONMENT")))
        self.assertEqual(expected, found)

    def test_every_function_has_a_page(self) -> None:
        exported = set(mapped("liballoc/exports.map"))
        functions = {name: prototype for file in ("gpualloc.h", "backend.h")
                     for name, prototype in declared(file).items()}
        self.assertLessEqual(set(functions), exported)
        self.assertGreater(len(functions), 30)
        names = [name for page in FUNCTIONS for name in named(page)
                 if name not in ("gpualloc", "ga_backend")]
        self.assertEqual(sorted(functions), sorted(names))

    def test_prototypes(self) -> None:
        self.assertEqual(declared("gpualloc.h"), shown(OVERVIEW))
        functions = declared("gpualloc.h") | declared("backend.h")
        for page in FUNCTIONS:
            prototypes = shown(page)
            for name in named(page):
                if name in functions:
                    self.assertEqual(functions[name], prototypes.get(name), page.name)

    def test_overview_describes_every_function(self) -> None:
        items = re.findall(r"^\.It Fn (.*)$", section(OVERVIEW, "DESCRIPTION"), re.MULTILINE)
        described = re.findall(r"ga_\w+", " ".join(items))
        self.assertEqual(sorted(declared("gpualloc.h")), sorted(described))

    def test_overview_has_every_status(self) -> None:
        statuses = re.search(r"enum ga_status \{(.*?)\}", header("gpualloc.h"), re.DOTALL)[1]
        self.assertEqual(
            re.findall(r"\bGA_OK\b|\bGA_ERR_\w+", statuses),
            re.findall(r"^\.It Dv (\w+)", section(OVERVIEW, "ERRORS"), re.MULTILINE))

    def test_statistics(self) -> None:
        members = re.search(r"struct ga_stats \{(.*?)\}", header("gpualloc.h"), re.DOTALL)[1]
        items = re.findall(r"^\.It Va (\w+)", text(SOURCE / "docs/man/ga_heap_open.3"),
                           re.MULTILINE)
        self.assertEqual(re.findall(r"(\w+);", members), items)

    @unittest.skipUnless(shutil.which("cc"), "no cc")
    def test_example_compiles(self) -> None:
        found = re.search(r"^\.Bd .*?\n(.*?)^\.Ed", section(OVERVIEW, "EXAMPLES"),
                          re.MULTILINE | re.DOTALL)
        source = self.write("app.c", found[1].replace(r"\e", "\\"))
        self.run_command("cc", "-Wall", "-Werror", "-fsyntax-only",
                         "-I", HEADERS[0].parents[1], source)


if __name__ == "__main__":
    main()
