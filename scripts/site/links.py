# SPDX-License-Identifier: MIT
"""Names in the text of pages become links: documents, manual pages, headers, functions, examples.
Code blocks and links are left as they are."""

import re
from pathlib import Path

FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# A link is kept whole; inline code is looked up by its content.
TOKEN = re.compile(r"(?P<link>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\([^()\s]+\))|`(?P<code>[^`]+)`"
                   r"|(?P<document>(?<![\w/])(?:(?:docs|bench)/[\w/-]+|[A-Z]{6,})\.md\b)"
                   r"|(?P<manual>\b[a-z][\w-]*\([1-8]\))")
SAMPLE = re.compile(r"^<!-- sample\n.*?^-->\n\s*", re.MULTILINE | re.DOTALL)
DEFINITION = re.compile(r"^\[[^\]]+\]:\s+(\S+)$", re.MULTILINE)
TARGET = re.compile(r"\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def manual_names(page: Path) -> list[str]:
    """The names in the NAME section of a manual page."""
    section = page.read_text(encoding="utf-8").split(".Sh NAME\n")[1].split(".Sh")[0]
    return re.findall(r"^\.Nm (\S+)", section, re.MULTILINE)


class Linker:
    """The names that have a page: manual pages, headers, functions of C, examples."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.manuals = {f"{name}({page.suffix[1:]})": f"/docs/man/{page.name}.md"
                        for page in (source / "docs/man").glob("*.[1-9]")
                        for name in manual_names(page)}
        self.headers: dict[str, str] = {}
        self.functions: set[str] = set()
        self.examples: dict[str, str] = {}

    def code(self, text: str) -> str:
        plain = " ".join(text.split())
        function = re.fullmatch(r"(ga_\w+)\(\)", plain)
        if function and function[1] in self.functions:
            return f"{{c:func}}`{function[1]}`"
        page = self.headers.get(plain) or self.examples.get(plain.rstrip("/"))
        return f"[`{plain}`]({page})" if page else f"`{text}`"

    def token(self, match: re.Match) -> str:
        whole = match[0]
        if match["code"]:
            return self.code(match["code"])
        if match["document"] and (self.source / whole).exists():
            return f"[{whole}](/{whole})"
        if match["manual"] and whole in self.manuals:
            return f"[{whole}]({self.manuals[whole]})"
        return whole

    def text(self, text: str) -> str:
        """Markdown outside of code blocks, with links."""
        return TOKEN.sub(self.token, text)

    def target(self, page: Path, match: re.Match) -> str:
        """A link of the repository as a link of the site: to the page of a manual page or of an
        example, to the front page instead of README.md, to a folder's README.md."""
        file = Path((page.parent / match[1]).resolve())
        if file.is_dir():
            file /= "README.md"
        name = file.relative_to(self.source).as_posix()
        if name == "README.md":
            name = "index.md"
        elif f"{file.stem}({file.suffix[1:]})" in self.manuals:
            name += ".md"
        name = self.examples.get(name, f"/{name}")
        return f"]({name}{match[2] or ''})"

    def page(self, page: Path, text: str) -> str:
        """A page of the repository for the site."""
        parts = FENCE.split(SAMPLE.sub("", text))
        for index in range(0, len(parts), 2):
            targets = TARGET.sub(lambda match: self.target(page, match), parts[index])
            parts[index] = self.text(targets)
        fences = (re.sub(r"\A(```\w+)[^\n]*", r"\1", part) for part in parts[1::2])
        parts[1::2] = fences
        return "".join(parts)
