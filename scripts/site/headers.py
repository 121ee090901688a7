# SPDX-License-Identifier: MIT
"""A public header as a page: its comments as text, its declarations as code."""

import re
import textwrap
from pathlib import Path

from links import Linker

COMMENT = re.compile(r"\A(?:/\*.*?\*/\n?|(?://[^\n]*\n)+)", re.DOTALL)
SECTION = re.compile(r"\A/\* ---- (.*?)\s*(?:\*\s*)?-*\s*\*/\n?\Z", re.DOTALL)
PROTOTYPE = re.compile(r"^GA_API\b([^;{]*);", re.MULTILINE)
NAME = re.compile(r"(\w+)\s*\(")
# Guards and the like, which a reader does not need.
FRAME = re.compile(r"\A(?:#\s*(?:ifn?def|if|endif|include|error|else).*\n?"
                   r"|#define GPUALLOC_\w+_(?:H|HPP|CUH)\b\n?|extern \"C\" \{\n?|\}\n?)+\Z")


def prototypes(code: str) -> list[str]:
    """The declarations of exported functions, each on one line."""
    found = [" ".join(re.sub(r"__attribute__\(\(.*?\)\)\)?", "", one).split())
             for one in PROTOTYPE.findall(re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL))]
    return [re.sub(r"\* ", "*", one) for one in found]


def functions(header: Path) -> set[str]:
    text = header.read_text(encoding="utf-8")
    return {NAME.search(one)[1] for one in prototypes(text) if NAME.search(one)}


def uncommented(comment: str) -> str:
    """The text of a comment, without its marks."""
    text = re.sub(r"\A/\* ?|\s*\*/\s*\Z", "", comment.strip())
    return re.sub(r"^ ?(?:\*|//) ?", "", text, flags=re.MULTILINE)


def prose(comment: str, linker: Linker) -> str:
    """A comment as Markdown: paragraphs, and tables and code of comments as they stand."""
    found = []
    for part in re.split(r"\n\s*\n", uncommented(comment).replace(
            "SPDX-License-Identifier: MIT", "").strip("\n")):
        columns = re.search(r"^\s{2,}|\S {2,}\S", part, re.MULTILINE)
        if columns:
            found.append(f"```text\n{textwrap.dedent(part)}\n```")
        elif part.strip():
            escaped = re.sub(r"(`[^`]*`)|(__|[*<\[\]{}|#])",
                             lambda match: match[1] or re.sub("(.)", r"\\\1", match[2]),
                             part.strip())
            calls = re.sub(r"(?<![`\w])(ga_\w+\(\))", r"`\1`", escaped)
            found.append(linker.text(calls))
    return "\n\n".join(found)


def paragraphs(text: str) -> list[str]:
    """Parts between blank lines that are not within braces or comments."""
    found, part = [], ""
    for piece in re.split(r"(\n\s*\n)", text):
        part += piece
        code = re.sub(r"/\*.*?\*/", "", part, flags=re.DOTALL)
        open_braces = code.replace('extern "C" {', "").count("{") > code.count("}")
        if piece.isspace() and not open_braces and "/*" not in code:
            found.append(part.strip("\n"))
            part = ""
    return [one for one in (*found, part.strip("\n")) if one]


def declared(part: str, linker: Linker, seen: set[str]) -> str:
    """One paragraph of a header."""
    comment = COMMENT.match(part)
    code = part[comment.end():] if comment else part
    section = SECTION.match(comment[0]) if comment and not code.strip() else None
    if section:
        title = section[1].split("\n")[0].rstrip(" *-")
        return f"## {title[0].upper()}{title[1:]}"
    if FRAME.match(code):
        return ""
    found = prototypes(code)
    names = [NAME.search(one)[1] for one in found if NAME.search(one)]
    if not names or seen & set(names) or len(names) != len(found):
        return f"```c\n{part}\n```" if code.strip() else prose(part, linker)
    seen |= set(names)
    first, *others = found
    text = prose(comment[0], linker) if comment else ""
    notes = "\n".join(line for line in code.splitlines() if "/*" in line)
    return (f"````{{c:function}} {first}\n" + "".join(f"                {one}\n" for one in others)
            + f"\n{text}\n" + (f"\n```c\n{code.strip()}\n```\n" if notes else "") + "````")


def page(header: Path, linker: Linker, seen: set[str]) -> str:
    text = header.read_text(encoding="utf-8")
    head = COMMENT.match(text)
    parts = [declared(part, linker, seen) for part in paragraphs(text[head.end():])]
    return "\n\n".join([f"# {header.name}", f"`#include <gpualloc/{header.name}>`",
                        prose(head[0], linker), *filter(None, parts)]) + "\n"
