# SPDX-License-Identifier: MIT
"""The samples of README.md and the pages below docs/: fenced blocks, each in a language.

The words behind the language say how a block is tested:

    ```console            the commands behind "$ " run, all of a page in one shell and one folder.
                          Lines below a command are its output, in which `...` is any text
    ```c, cpp, cuda       compiled; run if it has a main()
    ```python             run, with the stand-ins for frameworks of tests/python/frameworks
    ```c app.c            also stored in the folder under this name
    ```c gpu              compiled and not run, for the reason that REASONS has under this word
    ```console varies     run, and its output not compared: it has addresses and times

A comment of HTML before a block completes it for the compiler: the block stands for the line `...`
in it, or after it, and its includes come first.

    <!-- sample
    int main(void)
    {
    ...
    }
    -->
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

REASONS = {"build": "it builds the project: build_samples.py runs it",
           "gpu": "it needs a GPU: scripts/gpu-run runs programs",
           "large": "it compiles a program of the page again, which takes a minute",
           "network": "it needs a network",
           "root": "it needs root: scripts/check-debs builds and installs the packages",
           "wheel": "it needs the wheel: tests/python/test_wheel.py runs it"}
UNCOMPARED = "varies"
COMPILED = ("c", "cpp", "cuda")
TESTED = (*COMPILED, "console", "python")
# Languages of text that nothing executes. A shell's commands are in blocks of `console`.
OTHERS = ("", "cmake", "dockerfile", "ini", "json", "meson", "text", "toml", "yaml")
FENCE = re.compile(r"(?:^<!-- sample\n(?P<template>.*?)^-->\n\s*)?"
                   r"^(?P<ticks>```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=ticks)$",
                   re.MULTILINE | re.DOTALL)


@dataclass
class Command:
    """A line behind "$ ", with the lines that continue it, and the output that the page shows."""

    text: str
    shown: list[str] = field(default_factory=list)

    def prints(self, output: str) -> bool:
        """Whether the page shows this output, or none."""
        pattern = ".*".join(re.escape(part) for part in "\n".join(self.shown).split("..."))
        return not self.shown or bool(re.fullmatch(pattern, output.strip(), re.DOTALL))


@dataclass
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    words: list[str]
    text: str
    template: str

    @property
    def reason(self) -> str:
        """Why it does not run; empty if it does."""
        return "; ".join(REASONS[word] for word in self.words if word in REASONS)

    @property
    def names(self) -> list[str]:
        return [word for word in self.words if "." in word]

    def faults(self) -> list[str]:
        """Faults of the line that opens the block."""
        unknown = [word for word in self.words
                   if word not in (*REASONS, UNCOMPARED, *self.names)]
        if self.language not in TESTED + OTHERS:
            unknown.append(self.language)
        return [f"line {self.line}: \"{word}\" is not known" for word in unknown]

    def commands(self) -> list[Command]:
        found: list[Command] = []
        for line in self.text.splitlines():
            if found and not found[-1].shown and found[-1].text.endswith("\\"):
                found[-1].text += "\n" + line
            elif line.startswith("$ "):
                found.append(Command(line[2:]))
            elif found:
                found[-1].shown.append(line)
            else:
                raise ValueError(f"line {self.line}: output before the first command")
        return found

    def source(self) -> str:
        """The file to compile."""
        if not self.template:
            return self.text
        include = re.compile(r"^#include .*\n", re.MULTILINE)
        before, _, after = self.template.partition("...\n")
        return "".join(include.findall(self.text)) + before + include.sub("", self.text) + after


def pages(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        found.append(Block(text.count("\n", 0, match.start("ticks")) + 1, language, words,
                           match["text"], match["template"] or ""))
    return found


def inline_commands(page: Path, program: str) -> list[str]:
    """Commands of a program that stand in the text between backticks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"),
                  flags=re.MULTILINE | re.DOTALL)
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text))
    return [span for span in spans if span.startswith(program)]
