#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The completions of bash, fish and zsh, each where the shell is installed. Set GPUALLOC_BIN to the
command."""

import contextlib
import os
import pty
import shutil
import subprocess
import unittest
from pathlib import Path

import command
from command import COMMANDS, REPO, CommandTest

COMPLETIONS = REPO / "interpose" / "cli"  # completion.SHELL


class Completion:
    """The completions that a shell offers for a command line."""

    environment: dict[str, str]
    folder: Path

    def setUp(self) -> None:
        super().setUp()
        path = f"{os.path.dirname(os.path.abspath(command.BINARY))}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "HOME": str(self.folder)}

    def complete(self, *words: str) -> list[str]:
        """The completions of the last word."""
        raise NotImplementedError

    def test_commands(self) -> None:
        self.assertEqual(set(COMMANDS),
                         {word for word in self.complete("") if not word.startswith("-")})
        self.assertEqual(["list"], self.complete("li"))
        self.assertEqual(["trace"], self.complete("help", "t"))

    def test_options(self) -> None:
        self.assertEqual({"--stacks", "--stats", "--stats-children", "--strict"},
                         set(self.complete("run", "--st")))
        self.assertEqual(["--shell"], self.complete("run", "--sh"))
        self.assertEqual(["--unset"], self.complete("env", "--un"))
        self.assertEqual(["--rounds"], [word.removesuffix("=") for word in
                                        self.complete("compare", "--rou")])
        self.assertIn("--json", self.complete("list", "--"))

    def test_values(self) -> None:
        self.assertEqual(["system"], self.complete("run", "--host", "sy"))
        self.assertEqual(["system"], self.complete("env", "--host", "sy"))
        self.assertEqual(["system"], self.complete("compare", "--host", "sy"))
        self.assertEqual(["system"], self.complete("list", "sy"))
        self.assertNotIn("5", self.complete("list", ""))
        self.assertEqual(["warn"], self.complete("run", "--log", "w"))
        self.assertEqual(["device"], self.complete("bench", "--place", "d"))
        self.assertIn("none", self.complete("trace", "--symbolizer", "non"))
        self.assertEqual(["same-size"], self.complete("bench", "same"))
        self.assertEqual(["coalesce"], self.complete("bench", "coal"))
        self.assertEqual(["spgemm"], self.complete("bench", "spg"))

    def test_files(self) -> None:
        (self.folder / "a.trace").touch()
        self.assertEqual(["a.trace"], self.complete("trace", "a.t"))
        self.assertEqual(["a.trace"], self.complete("replay", "a.t"))
        self.assertEqual(["a.trace"], self.complete("run", "--trace", "a.t"))


class ValueInOneWord:
    """Values behind "=", which bash splits off as words of their own."""

    def test_value_in_one_word(self) -> None:
        self.assertEqual(["system"], [word.removeprefix("--host=")
                                      for word in self.complete("run", "--host=sy")])
        (self.folder / "a.json").touch()
        self.assertEqual(["a.json"], [word.removeprefix("--stats=")
                                      for word in self.complete("run", "--stats=a.j")])

    def test_program(self) -> None:
        """Its name, and its own completion."""
        for before in (["run"], ["run", "--host", "system"], ["run", "--stats", "--"],
                       ["compare", "--host", "system", "--any-output"]):
            self.assertIn("sort", self.complete(*before, "sor"))
            self.assertEqual(["trace"], self.complete(*before, "gpualloc", "tra"))


@unittest.skipUnless(shutil.which("bash"), "no bash here")
class Bash(Completion, CommandTest):
    def complete(self, *words: str) -> list[str]:
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gpualloc; '
                  'printf "%s\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", COMPLETIONS / "completion.bash",
                               "gpualloc", *words], capture_output=True, text=True,
                              env=self.environment, cwd=self.folder)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout.splitlines()

    def test_values_that_take_an_equals_sign(self) -> None:
        self.assertEqual(["--host="], self.complete("run", "--h")[:1])
        self.assertEqual(["system"], self.complete("run", "--host", "=", "sy"))

    def test_files_with_spaces(self) -> None:
        (self.folder / "a file.trace").touch()
        self.assertEqual(["a file.trace"], self.complete("trace", "a f"))


@unittest.skipUnless(shutil.which("fish"), "no fish here")
class Fish(ValueInOneWord, Completion, CommandTest):
    def complete(self, *words: str) -> list[str]:
        script = 'source $argv[1]; complete -C "$argv[2..]"'
        done = subprocess.run(["fish", "--no-config", "-c", script,
                               COMPLETIONS / "completion.fish", "gpualloc", *words],
                              capture_output=True, text=True, env=self.environment,
                              cwd=self.folder)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return [line.split("\t")[0] for line in done.stdout.splitlines()]


@unittest.skipUnless(shutil.which("zsh"), "no zsh here")
class Zsh(ValueInOneWord, Completion, CommandTest):
    """zsh completes only in its line editor, so that a terminal types the keys. `compadd`, which
    takes the candidates, writes those that fit to a file."""

    SETTINGS = r"""
        fpath=(functions $fpath)
        autoload -Uz compinit
        compinit -u -d $ZDOTDIR/dump
        compadd() {
            if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
                local -a fitting
                builtin compadd -A fitting "$@"
                print -rl -- $fitting >>found
            fi
            builtin compadd "$@"
        }
        complete() { _main_complete; compstate[insert]=; compstate[list]= }
        zle -C complete complete-word complete
        bindkey '^I' complete
        PS1='prom''pt>'
        """

    def setUp(self) -> None:
        super().setUp()
        (self.folder / ".zshrc").write_text(self.SETTINGS)
        (self.folder / "functions").mkdir()
        shutil.copy(COMPLETIONS / "completion.zsh", self.folder / "functions" / "_gpualloc")

    def type(self, keys: str) -> None:
        """Type the keys at the prompt of a shell, and wait for its end."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-i", "-d"], self.environment | {
                "ZDOTDIR": str(self.folder), "TERM": "dumb"})
        seen = b""
        with contextlib.suppress(OSError):  # how a terminal says that the last process has ended
            while part := os.read(terminal, 4096):
                asked = b"prompt>" in seen
                seen += part
                if not asked and b"prompt>" in seen:
                    os.write(terminal, keys.encode())
        os.close(terminal)
        self.assertEqual(0, os.waitpid(process, 0)[1], seen)

    def complete(self, *words: str) -> list[str]:
        found = self.folder / "found"
        found.write_text("")
        self.type(" ".join(["gpualloc", *words]) + "\t\x15exit 0\n")
        return [word for word in found.read_text().splitlines() if word]

    def test_its_function_is_found(self) -> None:
        self.type("print -r -- $_comps[gpualloc] >found; exit 0\n")
        self.assertEqual("_gpualloc\n", (self.folder / "found").read_text())


if __name__ == "__main__":
    command.main()
