#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc run` and programs that LD_PRELOAD does not reach. Set GPUALLOC_BIN to the command."""

import ctypes
import os
import select
import shlex
import shutil
import stat
import struct
import subprocess
import time
import unittest
from pathlib import Path

import command
from command import RunTest


def small_program(loader: bytes = b"") -> bytes | None:
    """A program that exits with 7; `loader` names its loader, which is not run if it is the
    program itself. Without one it is static."""
    codes = {"x86_64": (62, b"\xbf\x07\0\0\0\xb8\x3c\0\0\0\x0f\x05"),
             "aarch64": (183, struct.pack("<III", 0xD28000E0, 0xD2800BA8, 0xD4000001))}
    if os.uname().machine not in codes:
        return None
    machine, code = codes[os.uname().machine]
    base, start = 0x800000 if loader else 0x400000, 64 + 2 * 56
    name = loader + b"\0" if loader else b""
    size = start + len(code) + len(name)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine, 1, base + start,
                         64, 0, 0, 64, 56, 2 if loader else 1, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x10000)
    at = start + len(code)
    interpreter = struct.pack("<IIQQQQQQ", 3, 4, at, base + at, base + at, len(name), len(name), 1)
    return header + load + interpreter + code + name


def grants_nothing(path: Path) -> str:
    """Why the kernel grants no rights by a file in this environment; empty if it does."""
    if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text():
        return "this process has given up new rights"
    return f"{path} is mounted nosuid" if os.statvfs(path).f_flag & os.ST_NOSUID else ""


class OutOfReach(RunTest):
    def check(self, program: object, reason: str, status: int) -> None:
        answer = self.gpualloc("run", program)
        self.assertEqual(status, answer.status, answer.err)
        self.assertEqual(1, answer.err.count("\n"), answer.err)
        self.assertIn(reason, answer.err)
        self.refused(self.gpualloc("run", "--strict", program), 2, reason)
        self.assertEqual("", self.gpualloc("run", "--log=error", program).err)

    def test_static(self) -> None:
        content = small_program()
        if content is None:
            self.skipTest("no static program for this processor")
        path = self.make("static", content, 0o755)
        self.check(path, "statically", 7)
        self.check(self.make("script", f"#!{path} -x\n", 0o755), "statically", 7)

    def test_musl(self) -> None:
        """Its loader would end a program that has the preload: it runs without, with a message.
        The loader here is a static program with musl's name."""
        content = small_program()
        if content is None:
            self.skipTest("no small program for this processor")
        loader = self.make("ld-musl-any.so.1", content, 0o755)
        path = self.make("musl", small_program(bytes(loader)), 0o755)
        self.check(path, "made for musl", 7)

    def test_musl_is_not_preloaded(self) -> None:
        compiler = shutil.which("musl-gcc")
        if not compiler:
            self.skipTest("there is no musl-gcc")
        source = self.make("print.c", self.SHOW, 0o644)
        subprocess.run([compiler, str(source), "-o", str(self.folder / "print")], check=True)
        answer = self.gpualloc("run", self.folder / "print")
        self.assertEqual((0, "alone\n"), (answer.status, answer.out), answer.err)
        self.assertIn("made for musl", answer.err)

    def compile(self, name: str, source: str, *options: str) -> Path:
        path = self.folder / name
        subprocess.run(["cc", "-o", path, *options, self.make(f"{name}.c", source, 0o644)],
                       check=True)
        return path

    def test_own_malloc(self) -> None:
        family = "".join(f"{result} {name}({args});\n" for result, name, args in (
            ("void *", "__libc_malloc", "unsigned long"), ("void", "__libc_free", "void *")))
        for table in ("gnu", "sysv", "both"):
            path = self.compile("own", f"{family}void *malloc(unsigned long size) "
                                "{ return __libc_malloc(size); }\n"
                                "void free(void *block) { __libc_free(block); }\n"
                                "int main(void) { return 7; }\n", "-fno-builtin",
                                f"-Wl,--hash-style={table}")
            self.check(path, "defines malloc itself", 7)
        path = self.compile("user", "#include <stdlib.h>\nvoid *(*volatile f)(size_t) = malloc;\n"
                            "int main(void) { free(f(1)); return 7; }\n", "-no-pie")
        self.assertEqual((7, ""), self.result("--strict", path))
        path = self.compile("old", "#include <stdlib.h>\nvoid *(*volatile f)(size_t) = malloc;\n"
                            "int main(void) { free(f(1)); return 7; }\n",
                            "-Wl,--hash-style=sysv")
        self.assertEqual((7, ""), self.result("--strict", path))

    def result(self, *args: object, **more: object) -> tuple[int, str]:
        answer = self.gpualloc("run", *args, **more)
        return answer.status, answer.err

    def test_env_script(self) -> None:
        """`#!/usr/bin/env program`: the program counts."""
        content = small_program()
        if content is None:
            self.skipTest("no static program for this processor")
        self.make("small", content, 0o755)
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        for line in ("small", "-S small -x", "-S A=b small", " -S\tsmall", "-Ssmall", "-vSsmall",
                     "--split-string=small x", "--split-string small", '-S "./small"',
                     "-S -uHOME small", "-S -u HOME small", "-S --unset=HOME small"):
            script = self.make("script", f"#!/usr/bin/env {line}\n", 0o755)
            answer = self.gpualloc("run", script, env=path)
            self.assertIn("it is linked statically", answer.err, line)
        for line in ("-S -i small", "-iS small", "-S - small", "-S -vi small",
                     "-S --ignore-environment small", "-S -uLD_PRELOAD small",
                     "-S -u LD_PRELOAD small", "-S --unset=LD_PRELOAD small",
                     "-S LD_PRELOAD= small", "-S -C / -i small"):
            script = self.make("script", f"#!/usr/bin/env {line}\n", 0o755)
            self.assertIn("env removes it", self.gpualloc("run", script, env=path).err, line)
            self.refused(self.gpualloc("run", "--strict", script, env=path), 2, "env removes it")
        for line in ("nonesuch", "-S nonesuch -x", "-S -u", "-S '"):
            script = self.make("script", f"#!/usr/bin/env {line}\n", 0o755)
            self.assertNotIn("is linked", self.gpualloc("run", script, env=path).err)

    def own_loader(self) -> str:
        text = subprocess.run(["readelf", "-lW", "/bin/true"], capture_output=True, text=True,
                              check=True).stdout
        return text.split("program interpreter: ")[1].split("]")[0]

    @unittest.skipIf(command.SANITIZED, "the preload is not the real one")
    def test_loader_as_program(self) -> None:
        """It loads the preload, although it names no loader itself."""
        other = shutil.copy(self.own_loader(), self.folder / "ld.so")
        for loader in (self.own_loader(), other):
            self.assertEqual((0, ""), self.result("--strict", loader, "/bin/true"))

    def test_musl_loader_as_program(self) -> None:
        content = small_program()
        if content is None:
            self.skipTest("no static program for this processor")
        self.check(self.make("ld-musl-any.so.1", content, 0o755), "made for musl", 7)

    SHOW = ('#include <stdio.h>\n#include <stdlib.h>\nint main(void)'
            '{ puts(getenv("LD_PRELOAD") ? "preloaded" : "alone"); return 0; }')

    @unittest.skipIf(command.SANITIZED, "the preload is not the real one")
    def test_other_loader(self) -> None:
        """It is asked which libraries it loads."""
        other = shutil.copy(self.own_loader(), self.folder / "ld.so")
        path = self.compile("show", self.SHOW, f"-Wl,--dynamic-linker={other}")
        answer = self.gpualloc("run", path)
        self.assertEqual((0, "preloaded\n", ""), (answer.status, answer.out, answer.err))

    def test_other_loader_that_does_not_load_it(self) -> None:
        """Scripts answer in place of such loaders, so that the program itself cannot run."""
        content = small_program(os.fsencode(self.folder / "ld.so"))
        if content is None:
            self.skipTest("no small program for this processor")
        path = self.make("program", content, 0o755)
        library = self.variable("LD_PRELOAD")
        old = f"program: libc.so.6: version `GLIBC_2.99' not found (required by {library})"
        listed = f"\t{library} (0x00007f0000000000)"
        for lines, status, reason in (
                ([listed], 0, None), ([f"\tx => {library} (0x1)"], 0, None),
                ([old, listed], 0, "older than the library expects"), ([old], 1, "older"),
                ([], 0, "does not load it"), ([listed], 1, "does not load it"),
                ([f"ERROR: ld.so: object '{library}' from LD_PRELOAD cannot be preloaded"], 0,
                 "does not load it")):
            echo = "".join(f"echo {shlex.quote(line)}\n" for line in lines)
            self.make("ld.so", "#!/bin/sh\n[ \"$1\" = --list ] || exit 99\n"
                      f"{echo}exit {status}\n", 0o755)
            answer = self.gpualloc("run", "--strict", path)
            if reason:
                self.refused(answer, 2, str(path), reason, f"{self.folder}/ld.so")
            else:
                self.assertNotIn("LD_PRELOAD", answer.err)

    def test_other_loader_is_asked_apart(self) -> None:
        """It has no input, no LD_DEBUG, and cannot delay the program by a process that it leaves
        behind."""
        content = small_program(os.fsencode(self.folder / "ld.so"))
        if content is None:
            self.skipTest("no small program for this processor")
        path = self.make("program", content, 0o755)
        listed = f"\t{self.variable('LD_PRELOAD')} (0x00007f0000000000)"
        self.make("ld.so", f"#!/bin/sh\ncat >input; echo ${{LD_DEBUG-unset}} >debug\n"
                  f"sleep 20 & echo {shlex.quote(listed)}\n", 0o755)
        before = time.monotonic()
        answer = self.gpualloc("run", "--strict", path, stdin=None, input=b"for the program\n",
                               env={"LD_DEBUG": "statistics", "LD_DEBUG_OUTPUT": "/dev/null"},
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.assertLess(time.monotonic() - before, 15)
        self.assertNotIn("LD_PRELOAD", answer.err)
        self.assertEqual(("", "unset\n"), tuple((self.folder / name).read_text()
                                                for name in ("input", "debug")))

    def program_of_32_bits(self) -> Path:
        try:
            path = self.compile("small", self.SHOW, "-m32")
            subprocess.run([path], check=True, capture_output=True)
        except (subprocess.CalledProcessError, OSError):
            self.skipTest("no programs of 32 bits here")
        return path

    def test_one_line_for_32_bits(self) -> None:
        path = self.program_of_32_bits()
        answer = self.gpualloc("run", path)
        self.assertEqual((0, "alone\n"), (answer.status, answer.out))
        self.assertEqual(1, answer.err.count("\n"), answer.err)
        self.assertIn("another kind of processor", answer.err)

    @unittest.skipIf(command.SANITIZED, "the preload is not the real one")
    def test_children_of_32_bits(self) -> None:
        """They run; the loader of each writes one line for each library of ours."""
        path = self.program_of_32_bits()
        answer = self.gpualloc("run", "--strict", "sh", "-c", f"{path}; {path}")
        self.assertEqual((0, "preloaded\npreloaded\n"), (answer.status, answer.out))
        lines = answer.err.splitlines()
        self.assertEqual(2, len(lines), answer.err)
        for line in lines:
            self.assertRegex(line, r"^ERROR: ld\.so: .*libgpualloc-malloc\.so.*: ignored\.$")

    def test_other_processor(self) -> None:
        content = small_program() or b"\x7fELF\x02\x01\x01" + bytes(57)
        path = self.make("foreign", content[:18] + b"\x08\0" + content[20:], 0o755)
        answer = self.gpualloc("run", path)
        self.assertNotEqual(0, answer.status)
        self.assertIn("another kind of processor", answer.err.splitlines()[0])

    def test_gains_rights(self) -> None:
        if reason := grants_nothing(self.folder if os.getuid() == 0 else Path("/bin")):
            self.skipTest(reason)
        if os.getuid() == 0:
            path = self.make("true", Path("/bin/true").read_bytes(), 0o755)
            os.chown(path, 65534, 65534)
            path.chmod(0o4755)
            self.folder.chmod(0o755)
            self.check(path, "gains rights", 0)
            os.chown(path, 65534, 65534)
            path.chmod(0o2705) # setgid has no meaning without execution by the group
            self.assertEqual((0, ""), self.result("--strict", path))
        else:
            su = shutil.which("su")
            if not su or not os.stat(su).st_mode & stat.S_ISUID:
                self.skipTest("no setuid program here")
            self.assertIn("gains rights", self.gpualloc("run", su, "--version").err)

    @unittest.skipIf(command.SANITIZED, "the preload's folder comes from the environment")
    def test_rights_of_the_process(self) -> None:
        """Of an effective user or group other than the real one."""
        if os.getuid() != 0:
            self.skipTest("only root can change its real user")
        for change in (lambda: os.setresuid(65534, 0, 0), lambda: os.setresgid(65534, 0, 0)):
            self.refused(self.gpualloc("run", "--strict", "/bin/true", preexec_fn=change), 2,
                         "this process has rights that its user has not")
            answer = self.gpualloc("run", "/bin/true", preexec_fn=change)
            self.assertEqual((0, 1), (answer.status, answer.err.count("\n")), answer.err)

    def test_rights_that_are_not_granted(self) -> None:
        """By a process that has given up new rights, and by a file system that is mounted
        nosuid."""
        if os.getuid() != 0:
            self.skipTest("a file of another user is needed")
        path = self.make("true", Path("/bin/true").read_bytes(), 0o755)
        os.chown(path, 65534, 65534)
        path.chmod(0o4755)
        no_new_privileges = 38
        libc = ctypes.CDLL(None)
        self.assertEqual((0, ""), self.result(
            "--strict", path, preexec_fn=lambda: libc.prctl(no_new_privileges, 1, 0, 0, 0)))
        folder = self.folder / "mount"
        folder.mkdir()
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o nosuid none {folder} && "
             f"cp -p {path} {folder} && exec {command.BINARY} run --strict {folder}/true"],
            capture_output=True, text=True, env=command.CLEAN | command.SETTINGS)
        if not done.stderr.startswith(("unshare:", "mount:")):
            self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_within_reach(self) -> None:
        for program in ("/bin/true", self.make("s", "#!/bin/sh\n", 0o755),
                        self.make("e", "#! /usr/bin/env sh\n", 0o755)):
            answer = self.gpualloc("run", "--strict", program)
            self.assertEqual((0, ""), (answer.status, answer.err))

    def test_files_that_are_no_programs(self) -> None:
        for content in (b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\xff" * 200, b"#!", b"#!\n", b"",
                        b"#!" + b"x" * 1000):
            path = self.make("odd", content, 0o755)
            self.assertGreaterEqual(self.gpualloc("run", path).status, 0)

    def test_many_segments_and_tags(self) -> None:
        """The tables of a damaged file are not searched once for each entry."""
        content = small_program(self.own_loader().encode())
        if content is None:
            self.skipTest("no small program for this processor")
        for segments in (1100, 65535): # the kernel takes at most 1170
            start, tags = 64 + segments * 56, 4096
            dynamic = struct.pack("<IIQQQQQQ", 2, 4, start, 0, 0, tags * 16, tags * 16, 8)
            load = struct.pack("<IIQQQQQQ", 1, 4, 0, 1 << 40, 0, 1, 1, 4096)
            interpreter = bytearray(content[64 + 56:64 + 2 * 56])
            struct.pack_into("<Q", interpreter, 8, start + tags * 16)
            header = bytearray(content[:64])
            struct.pack_into("<HH", header, 54, 56, segments)
            path = self.make("large", bytes(header) + interpreter + dynamic
                             + load * (segments - 2) + struct.pack("<QQ", 6, 1) * tags
                             + self.own_loader().encode() + b"\0", 0o755)
            self.gpualloc("run", "--strict", path, timeout=20)

    def test_device_as_interpreter_is_not_opened(self) -> None:
        """Opening one can have effects: this terminal tells if it was opened and closed."""
        libc = ctypes.CDLL(None)
        libc.ptsname.restype = ctypes.c_char_p
        master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        self.addCleanup(os.close, master)
        libc.unlockpt(master)
        script = self.make("script", f"#!{os.fsdecode(libc.ptsname(master))}\n", 0o755)
        self.refused(self.gpualloc("run", script), 126, "Permission denied")
        poll = select.poll()
        poll.register(master, 0)
        self.assertEqual([], poll.poll(0))

    def test_pipe_as_interpreter_is_not_waited_for(self) -> None:
        os.mkfifo(self.folder / "pipe")
        script = self.make("script", f"#!{self.folder}/pipe\n", 0o755)
        self.refused(self.gpualloc("run", script, timeout=30), 126, "Permission denied")


if __name__ == "__main__":
    command.main()
