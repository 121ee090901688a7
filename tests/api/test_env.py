#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc env`, `gpualloc run --shell`, and machines that lack something. Set GPUALLOC_BIN to the
command."""

import os
import shlex
import shutil
import subprocess
import sys
import unittest

import command
from command import PRELOAD, Answer, RunTest
from test_libraries import malloc_library

NAMES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "GPUALLOC_PRELOADED", "GPUALLOC_HOST",
         "GPUALLOC_DEVICE", "GPUALLOC_KERNEL", "GPUALLOC_STATS", "GPUALLOC_STATS_PID",
         "GPUALLOC_TRACE", "GPUALLOC_TRACE_STACKS", "GPUALLOC_LOG", "GPUALLOC_STRICT",
         *(f"GPUALLOC_BEFORE_{name}" for name in
           ("HOST", "DEVICE", "KERNEL", "STATS", "TRACE", "TRACE_STACKS", "LOG", "STRICT",
            "TUNABLES")))
SHELLS = [path for path in map(shutil.which, ("sh", "bash", "dash", "zsh")) if path]


class Env(RunTest):
    def output(self, *options: object, env: dict[str, str] | None = None) -> str:
        answer = self.gpualloc("env", *options, env=env)
        self.assertEqual((0, ""), (answer.status, answer.err))
        return answer.out

    def after(self, script: str, shell: str = "/bin/sh",
              env: dict[str, str] | None = None) -> dict[str, str]:
        """The variables of a program that the shell starts behind the script."""
        done = subprocess.run([shell, "-c", f"{script}\n/usr/bin/env -0"], check=True,
                              capture_output=True, cwd=self.folder,
                              env=command.CLEAN | command.SETTINGS | (env or {}))
        self.assertEqual(b"", done.stderr)
        pairs = (line.split("=", 1) for line in done.stdout.decode().split("\0") if "=" in line)
        return {name: value for name, value in pairs if name in NAMES}

    def test_as_run_sets_it(self) -> None:
        for options in ([], ["--host=system"], ["--host=slab/vmm", "--device=vmm:limit=1G"],
                        ["--kernel=slab/vmm", "--strict", "--log=info"]):
            run = {name: self.variable(name, *options) for name in NAMES}
            line = f'eval "$({command.BINARY} env {shlex.join(options)})"'
            self.assertEqual({name: value for name, value in run.items() if value != "unset"},
                             self.after(line))

    ODD_NAME = "it's $(a) `b` \\c\\\\'\td\\"

    def test_shells(self) -> None:
        text = self.output("--host=fail:nth=0", f"--trace={self.ODD_NAME}")
        self.assertEqual([], [line for line in text.splitlines()
                              if not line.startswith("export ") or not line.endswith("';")])
        words = shlex.split(text) # as programs read it
        self.assertIn(f"GPUALLOC_TRACE={self.folder}/{self.ODD_NAME};", words)
        (self.folder / "saved").write_text(text)
        for shell in SHELLS:
            with self.subTest(shell):
                found = self.after(". ./saved", shell)
                self.assertEqual("fail:nth=0", found["GPUALLOC_HOST"])
                self.assertEqual(f"{self.folder}/{self.ODD_NAME}", found["GPUALLOC_TRACE"])

    @unittest.skipUnless(shutil.which("fish"), "no fish here")
    def test_fish(self) -> None:
        found = self.after(f"{command.BINARY} env --host=system --log=warn "
                           '--stats="$NAME" | source', shutil.which("fish"),
                           env={"HOME": str(self.folder), "NAME": self.ODD_NAME})
        self.assertEqual(("system", "warn"), (found["GPUALLOC_HOST"], found["GPUALLOC_LOG"]))
        self.assertEqual(f"{self.folder}/{self.ODD_NAME}", found["GPUALLOC_STATS"])
        self.assertEqual(self.variable("LD_PRELOAD"), found["LD_PRELOAD"])

    def test_eval_without_quotes(self) -> None:
        found = self.after(f"eval $({command.BINARY} env --host=system --log=warn)")
        self.assertEqual(("system", "warn"), (found["GPUALLOC_HOST"], found["GPUALLOC_LOG"]))

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_is_complete(self) -> None:
        """In a shell that has the settings already, too: the output may be kept in a file."""
        first = self.output("--host=system", "--device=vmm")
        line = f'eval "$({command.BINARY} env --host=system --device=vmm)"\n{command.BINARY} env'
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True,
                              env=command.CLEAN | command.SETTINGS)
        self.assertEqual((first, ""), (done.stdout, done.stderr))

    def test_each_process_reports(self) -> None:
        out = self.output("--stats=s.json", env={"GPUALLOC_STATS_PID": "1"})
        self.assertIn(f"export GPUALLOC_STATS='{self.folder}/s.json';\n", out)
        self.assertIn("unset GPUALLOC_STATS_PID;\n", out)

    @unittest.skipIf(command.SANITIZED, "the preload is not the real one")
    def test_programs_run_on_it(self) -> None:
        python = os.path.realpath(sys.executable)
        self.after(f'eval "$({command.BINARY} env --host=system --stats=s.txt)"; '
                   f"{python} -S -c pass; GPUALLOC_STATS=0")
        text = (self.folder / "s.txt").read_text()
        self.assertRegex(text, rf"statistics of {os.path.basename(python)}\b")
        self.assertRegex(text, r"heap +system ")

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_unset(self) -> None:
        set_it = f'eval "$({command.BINARY} env --device=vmm --stats=f --trace=t --strict)"'
        unset = f'eval "$({command.BINARY} env --unset)"'
        keep = {"LD_LIBRARY_PATH": "/x:/y", "LD_PRELOAD": "libm.so.6:libdl.so.2"}
        for env in ({}, keep):
            self.assertEqual(env, self.after(f"{set_it}; {unset}", env=env))
        self.assertEqual("", self.output("--unset"))

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_unset_restores_variables_of_the_user(self) -> None:
        """Those that the settings have changed, and those that they have not; none that an
        enclosing shell has set."""
        own = {"GPUALLOC_HOST": "slab", "GPUALLOC_LOG": "error", "GPUALLOC_STRICT": "1",
               "GPUALLOC_KERNEL": "cuda"}
        set_it = f'eval "$({command.BINARY} env --host=system --kernel=slab/vmm --stats=f)"'
        again = f'eval "$({command.BINARY} env --host=system --log=warn)"'
        unset = f'eval "$({command.BINARY} env --unset)"'
        self.assertEqual("system", self.after(set_it, env=own)["GPUALLOC_HOST"])
        for lines in (set_it, f"{set_it}; {again}", f"{set_it}; unset GPUALLOC_LOG",
                      f"{set_it}; {unset}; {again}"):
            self.assertEqual(own, self.after(f"{lines}; {unset}", env=own), lines)
        done = subprocess.run([command.BINARY, "run", "--host=system", "--", "/bin/sh", "-c",
                               f"{unset}; env -0"], check=True, capture_output=True, text=True,
                              env=command.CLEAN | command.SETTINGS | own)
        found = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
        self.assertEqual(own, {name: found[name] for name in NAMES if name in found})

    def check_relative(self, option: str, given: str, wanted: str) -> None:
        out = self.output(f"--{option}={given}")
        text = next(word for word in shlex.split(out)
                    if word.startswith(f"GPUALLOC_{option.upper()}="))
        self.assertEqual(f"GPUALLOC_{option.upper()}={wanted.format(self.folder)};", text)

    def test_relative_files_in_specs(self) -> None:
        """They are of this directory, as those of options are. No layer of kernels has a file."""
        for option, parent in (("host", "system"), ("device", "cuda")):
            for given, wanted in (
                    ("trace:file=t/", 'trace:file="{}/t"/'),
                    ('trace:batch=1,file="a/b%p"/slab:max=1K/',
                     'trace:batch=1,file="{}/a/b%p"/slab:max=1K/'),
                    ('trace:file="/tmp"/', 'trace:file="/tmp"/')):
                self.check_relative(option, given + parent, wanted + parent)

    @unittest.skipIf(command.SANITIZED, "the library would come before the sanitizer's")
    def test_relative_files_above_a_library(self) -> None:
        malloc_library(self.folder / "whole.so")
        self.check_relative("host", "trace:file=t/dl:./whole.so",
                            'trace:file="{0}/t"/dl:{0}/./whole.so')

    def test_unset_keeps_variables_of_the_user(self) -> None:
        """Nothing has set them for a preload: a linked program reads them, too."""
        self.assertEqual("", self.output("--unset", env={"GPUALLOC_HOST": "system",
                                                         "GPUALLOC_LOG": "info"}))

    @unittest.skipIf(command.SANITIZED, "the library would come before the sanitizer's")
    def test_unset_of_a_library(self) -> None:
        """The spec is not opened again: it may have changed."""
        library = malloc_library(self.folder / "whole.so")
        set_it = f'eval "$({command.BINARY} env --host=dl:{library})"'
        self.assertEqual(str(library), self.after(set_it)["LD_PRELOAD"])
        unset = f'eval "$({command.BINARY} env --unset)"'
        for between in (":", "GPUALLOC_HOST=dl:/nonesuch.so", "GPUALLOC_HOST=system"):
            self.assertEqual({}, self.after(f"{set_it}; {between}; {unset}"), between)

    @unittest.skipIf(command.SANITIZED, "the library would come before the sanitizer's")
    def test_twice_in_a_row(self) -> None:
        """The second allocator takes the place of the first."""
        library = malloc_library(self.folder / "whole.so")
        lines = [f'eval "$({command.BINARY} env --host={host})"'
                 for host in (f"dl:{library}", "system")]
        self.assertEqual(self.after(lines[1]), self.after("; ".join(lines)))

    def test_refused(self) -> None:
        for args, part in ((["true"], '"gpualloc run" runs a program'), (["--bad"], "--bad"),
                           (["--host=nonesuch"], "nonesuch"), (["--device=a b"], "column 2"),
                           (["--device=nonesuch"], '"nonesuch"'), (["--kernel=vmm"], "not kernel"),
                           (["--stats=/nonesuch/x"], "/nonesuch/x"), (["--log=loud"], '"loud"'),
                           (["--trace=/dev/null"], "is no trace"),
                           (["--unset", "--host=nonesuch"], "--unset: expected no other option"),
                           (["--strict", "--unset"], "--unset"),
                           (["--stats=-"], '--stats: expected a file, got "-"'),
                           (["--stats-children", "--stats=/dev/stdout"], '"/dev/stdout"')):
            self.refused(self.gpualloc("env", *args), 2, part)
        self.refused(self.gpualloc("env", env={"GPUALLOC_STATS": "-"}), 2, "GPUALLOC_STATS")
        self.refused(self.gpualloc("env", env={"GPUALLOC_PRELOAD_DIR": "nonesuch"}), 2, PRELOAD)
        self.refused(self.gpualloc("env", env={"GPUALLOC_HOST": "nonesuch"}), 2, "nonesuch")


class Shell(RunTest):
    def test_is_the_users(self) -> None:
        shell = self.make("own-shell", '#!/bin/sh\necho "own $# $GPUALLOC_HOST"; exit 3\n', 0o755)
        answer = self.gpualloc("run", "--shell", "--host=system", env={"SHELL": str(shell)})
        self.assertEqual((3, "own 0 system\n", ""), (answer.status, answer.out, answer.err))

    def test_else_sh(self) -> None:
        for shell in ("", "/nonesuch", "/tmp", "/dev/null"):
            answer = self.gpualloc("run", "--shell", input=b"echo $0 $GPUALLOC_HOST; exit 4",
                                   stdin=None, env={"SHELL": shell, "GPUALLOC_HOST": "system"})
            self.assertEqual((4, "/bin/sh system\n", ""), (answer.status, answer.out, answer.err))

    @unittest.skipIf(command.SANITIZED, "the preload is not the real one")
    def test_its_programs_report(self) -> None:
        python = os.path.realpath(sys.executable)
        answer = self.gpualloc("run", "--host=system", "--shell", "--stats", stdin=None,
                               input=f"{python} -S -c pass\n".encode(), env={"SHELL": "/bin/sh"})
        self.assertIn(f"statistics of {os.path.basename(python)}", answer.err)

    def test_says_so_at_a_terminal(self) -> None:
        master, terminal = os.openpty()
        self.addCleanup(os.close, master)
        answer = self.gpualloc("run", "--host=system", "--shell", stdin=terminal,
                               env={"SHELL": "/bin/true"})
        os.close(terminal)
        self.assertEqual('gpualloc run: this shell runs programs on "system" until you leave it\n',
                         answer.err)

    def test_usage(self) -> None:
        self.refused(self.gpualloc("run", "--shell", "true"), 2, "--shell or a PROGRAM", '"true"')
        self.refused(self.gpualloc("run", "--shell", "--host=nonesuch"), 2, "nonesuch")
        self.refused(self.gpualloc("run", "--shell", "--stats=-"), 2, '--stats', 'got "-"')


class Surroundings(RunTest):
    """What a machine may lack."""

    def test_home(self) -> None:
        closed = self.folder / "closed"
        closed.mkdir(mode=0o555)
        plain = {name: value for name, value in command.CLEAN.items() if name != "HOME"}
        for home in ({}, *({"HOME": path} for path in ("", "/nonesuch", str(closed)))):
            for options in ([], ["--device=vmm"]):
                answer = Answer(subprocess.run(
                    [command.BINARY, "run", *options, "/bin/sh", "-c", "echo well"],
                    capture_output=True, env=plain | command.SETTINGS | home))
                self.assertEqual((0, "well\n", ""), (answer.status, answer.out, answer.err))

    def test_no_shared_memory(self) -> None:
        """/dev/shm is missing, or full."""
        for mount in ("-t tmpfs none /dev", "-t tmpfs -o size=1 none /dev/shm"):
            done = Answer(subprocess.run(
                ["unshare", "-rm", "sh", "-c", f"mount {mount} && exec {command.BINARY} run "
                 "--host=slab/vmm /bin/sh -c 'echo well'"], capture_output=True,
                env=command.CLEAN | command.SETTINGS))
            if done.err.startswith(("unshare:", "mount:")):
                self.skipTest(done.err.strip())
            self.assertEqual((0, "well\n", ""), (done.status, done.out, done.err))


if __name__ == "__main__":
    command.main()
