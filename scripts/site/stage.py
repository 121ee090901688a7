#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the pages of the site as Sphinx reads them.

    scripts/site/stage.py FOLDER

The folder has the layout of the repository, so that a link between documents holds in both.
README.md is the front page; docs/README.md orders the pages below docs/, and has to name each.
Manual pages, public headers and examples become pages, too. A link to another file of the
repository is a download of the file."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headers
from links import DEFINITION, TARGET, Linker

SOURCE = Path(__file__).resolve().parents[2]
HEADERS = sorted(path for path in (SOURCE / "liballoc/include/gpualloc").iterdir()
                 if path.suffix in (".h", ".hpp", ".cuh"))
MANUALS = "docs/man"
PROJECT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
LANGUAGES = {".c": "c", ".h": "c", ".cu": "cuda", ".cuh": "cuda", ".cpp": "cpp", ".hpp": "cpp",
             ".py": "python", ".txt": "cmake", ".build": "meson"}


def documents() -> list[str]:
    """The pages below docs/, in the order in which the index names them."""
    index = SOURCE / "docs/README.md"
    named = dict.fromkeys(f"docs/{match[1]}" for match in
                          TARGET.finditer(index.read_text(encoding="utf-8")))
    for path in sorted((SOURCE / "docs").rglob("*.md")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in named and path != index:
            sys.exit(f"docs/README.md does not name {name}")
    return [name for name in named if re.fullmatch(r"docs/[\w/-]+\.md", name)]


def contents(caption: str, names: list[str]) -> str:
    """A part of the navigation."""
    pages = "".join(f"/{name.removesuffix('.md')}\n" for name in names)
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}```\n"


def title_of(name: str) -> str:
    """A page's file name, or the path of an example."""
    path = Path(name.removesuffix("/index.md").removesuffix(".md"))
    return path.name if name.startswith(("docs/", "api/")) else path.as_posix()


def index(title: str, names: dict[str, str]) -> str:
    """A page that lists others, with a line about each."""
    rows = "".join(f"| [{title_of(name)}](/{name}) | {about} |\n"
                   for name, about in names.items())
    return f"# {title}\n\n| | |\n|---|---|\n{rows}\n" + contents(title, list(names))


def manual(page: Path, manuals: dict[str, str]) -> str:
    """A manual page, with a heading for each of its sections."""
    html = subprocess.run(["mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", page],
                          check=True, capture_output=True, text=True).stdout
    def reference(match: re.Match) -> str:
        ours = manuals.get(re.sub(r"\.(\d)\.html", r"(\1)", match[1]))
        return f'<a href="{Path(ours).stem}.html">{match[2]}</a>' if ours else match[2]

    html = re.sub(r'<a class="Xr" href="([^"]*)">(.*?)</a>', reference, html, flags=re.DOTALL)
    html = re.sub(r'<a class="permalink" href="[^"]*">(.*?)</a>', r"\1", html, flags=re.DOTALL)
    html = re.sub(r'<a class="In">(gpualloc/)(.*?)</a>', r'<a href="../../api/\2.html">\1\2</a>',
                  html)
    html = re.sub(r"(docs/[\w/-]+)\.md", r'<a href="../../\1.html">\1.md</a>', html)
    html = re.sub(r'(<a class="Sx" href="#)([A-Z_]+)"',
                  lambda match: match[1] + match[2].lower().replace("_", "-") + '"', html)
    sections = re.findall(r'<section class="Sh">\n<h1[^>]*>(.*?)</h1>\n(.*?)</section>\n(?='
                          r'<section class="Sh">|</div>)', html, re.DOTALL)
    parts = [f"# {page.stem}({page.suffix[1:]})\n"]
    for title, body in sections:
        heading = " ".join(title.split()).capitalize()
        body = body.replace("<h2", "<h3").replace("</h2>", "</h3>")
        parts.append(f"## {heading}\n\n````{{raw}} html\n<div class=\"manual\">\n{body}</div>\n"
                     "````\n")
    return "\n".join(parts)


def about_manual(page: Path) -> str:
    return re.search(r"^\.Nd (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)[1]


def about_header(header: Path) -> str:
    """The first sentence of its comment."""
    text = headers.uncommented(headers.COMMENT.match(header.read_text(encoding="utf-8"))[0])
    sentence = re.match(r"(.*?)\.(?:\s|\Z)", text.split("\n", 1)[1].strip(), re.DOTALL)[1]
    return " ".join(sentence.split()).replace("|", "\\|")


def about_example(files: list[Path]) -> str:
    return " ".join(f"`{file.name}`" for file in files)


def example_pages() -> dict[str, list[Path]]:
    """The files of each page of examples: a folder's, or one file."""
    found: dict[str, list[Path]] = {}
    for path in sorted((SOURCE / "examples").iterdir()):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        files = [file for file in files if file.suffix in LANGUAGES and file.name != "meson.build"
                 and not file.name.startswith("test_")]
        if files:
            found[path.relative_to(SOURCE).as_posix()] = files
    return found


def example(name: str, files: list[Path], linker: Linker) -> str:
    readme = SOURCE / name / "README.md"
    text = f"# {name}\n"
    if readme.exists():
        text = linker.page(readme, readme.read_text(encoding="utf-8"))
    for file in files:
        heading = f"\n## {file.name}\n" if file.parent.name != "examples" else ""
        text += (f"{heading}\n`````{LANGUAGES[file.suffix]}\n"
                 f"{file.read_text(encoding='utf-8').rstrip()}\n`````\n")
    return text


class Stage:
    """The folder that is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.linker = Linker(SOURCE)
        self.linker.headers = {f"gpualloc/{path.name}": f"/api/{path.name}.md" for path in HEADERS}
        self.linker.functions = {name for path in HEADERS for name in headers.functions(path)}
        self.examples = example_pages()
        for name, files in self.examples.items():
            for part in (name, f"{name}/README.md", *(f"{name}/{file.name}" for file in files)):
                self.linker.examples[part] = f"/{name}/index.md"

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def document(self, name: str, as_name: str = "", after: str = "") -> None:
        """A page of the repository, and the files that it links to."""
        page = SOURCE / name
        text = self.linker.page(page, page.read_text(encoding="utf-8"))
        self.write(as_name or name, text + after)
        for match in (*TARGET.finditer(text), *DEFINITION.finditer(text)):
            file = Path(os.path.normpath((page.parent if match[1][0] != "/" else SOURCE)
                                         / match[1].lstrip("/")))
            if file.is_file() and file.suffix != ".md":
                copy = self.folder / file.relative_to(SOURCE)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)

    def all(self) -> None:
        listed = documents()
        guide = [name for name in listed if name.startswith("docs/guide/")]
        internals = [name for name in listed if name.startswith("docs/internals/")]
        reference = [name for name in listed if name not in guide + internals]
        manuals = sorted((SOURCE / MANUALS).glob("*.[1-9]"),
                         key=lambda page: (page.suffix, page.stem))
        results = sorted(path.relative_to(SOURCE).as_posix()
                         for path in (SOURCE / "bench/results").glob("*/*.md"))
        project = [name for name in PROJECT if (SOURCE / name).exists()]
        for name in (*listed, "docs/README.md", "bench/README.md", *results, *project):
            self.document(name)
        self.document("bench/results/README.md", after="\n" + contents("Tables", results))
        for page in manuals:
            self.write(f"{MANUALS}/{page.name}.md", manual(page, self.linker.manuals))
        seen: set[str] = set()
        for path in HEADERS:
            self.write(f"api/{path.name}.md", headers.page(path, self.linker, seen))
        for name, files in self.examples.items():
            self.write(f"{name}/index.md", example(name, files, self.linker))
        self.write(f"{MANUALS}/index.md", index("Manual pages", {
            f"{MANUALS}/{page.name}.md": about_manual(page) for page in manuals}))
        self.write("api/index.md", index("Headers", {
            f"api/{path.name}.md": about_header(path) for path in HEADERS}))
        self.write("examples/index.md", index("Examples", {
            f"{name}/index.md": about_example(files) for name, files in self.examples.items()}))
        self.document("README.md", "index.md", "\n" + "\n".join((
            contents("Guide", ["docs/README.md", *guide, "examples/index.md"]),
            contents("Reference", [*reference, f"{MANUALS}/index.md", "api/index.md"]),
            contents("How it works", internals),
            contents("Project", [*project, "bench/README.md", "bench/results/README.md"]))))


if __name__ == "__main__":
    Stage(Path(sys.argv[1])).all()
