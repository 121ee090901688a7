#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The libraries that `gpualloc run` puts into LD_PRELOAD: where they are found, which it refuses,
and how it names them. Set GPUALLOC_BIN to the command."""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import command
from command import ALIGN_PRELOAD, PRELOAD, Answer, RunTest

FOUR = ("void *malloc(size_t size) { return __libc_malloc(size); }\n"
        "void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }\n"
        "void *realloc(void *old, size_t size) { return __libc_realloc(old, size); }\n"
        "void free(void *block) { __libc_free(block); }\n")
MEMALIGN = "void *memalign(size_t align, size_t size) { return __libc_memalign(align, size); }\n"
ALIGNED = ("void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }\n"
           "void *valloc(size_t size) { return memalign(4096, size); }\n"
           "int posix_memalign(void **out, size_t align, size_t size)\n"
           "{ return (*out = memalign(align, size)) ? 0 : 12; }\n")
USABLE = ("size_t malloc_usable_size(void *block)\n"
          "{ return block ? (((size_t *)block)[-1] & -16) - 16 : 0; }\n")
PVALLOC = "void *pvalloc(size_t size) { return memalign(4096, size + 4095 & -4096); }\n"
FAMILY = FOUR + MEMALIGN + ALIGNED + USABLE
LARGE = "static __thread char large[1 << 13];\n" + FAMILY.replace(
    "{ return __libc_malloc", "{ large[0]++; return __libc_malloc")


def malloc_library(path: Path, source: str = FAMILY + PVALLOC, *options: str) -> Path:
    """Compile a library; by default it has the whole family of malloc."""
    (path.parent / "family.c").write_text(
        "#include <stddef.h>\nextern void *__libc_malloc(size_t), *__libc_calloc(size_t, "
        "size_t), *__libc_realloc(void *, size_t), __libc_free(void *), "
        "*__libc_memalign(size_t, size_t);\n" + source)
    subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", *options, "-o", path,
                    path.parent / "family.c"], check=True)
    return path


@unittest.skipIf(command.SANITIZED, "the library would come before the sanitizer's")
class DirectLibrary(RunTest):
    """The library of dl: is preloaded itself where nothing is lost."""

    def library(self, name: str, source: str, *options: str) -> Path:
        return malloc_library(self.folder / name, source, *options)

    def preloads(self, *options: object, env: dict[str, str] | None = None) -> list[str]:
        return [Path(name).name for name in
                self.variable("LD_PRELOAD", *options, env=env).split(":")]

    def test_whole_family(self) -> None:
        path = self.library("whole.so", FAMILY + PVALLOC)
        for host in (f"--host=dl:{path}", f'--host=dl:path="{path}"'):
            self.assertEqual(str(path), self.variable("LD_PRELOAD", host))
            self.assertEqual(host.partition("=")[2], self.variable("GPUALLOC_HOST", host))
        self.assertEqual(["whole.so"], self.preloads(env={"GPUALLOC_HOST": f"dl:{path}"}))

    def test_a_relative_path_becomes_absolute(self) -> None:
        path = self.library("whole.so", FAMILY + PVALLOC)
        self.assertEqual(str(path), self.variable("LD_PRELOAD", "--host=dl:./whole.so"))
        trace = f'trace:file="{self.folder}/dl:./whole.so"'
        (self.folder / "dl:.").mkdir()
        shutil.copy(path, self.folder / 'wh"ole.so')
        for spec, expected in (
                ("dl:./whole.so", "dl:{}/./whole.so"), (f"dl:{path}", "dl:{}/whole.so"),
                ('dl:path="./whole.so"', "dl:{}/./whole.so"),
                ('dl:path="./wh\\"ole.so"', 'dl:{}/./wh"ole.so'),
                (f"{trace}/dl:./whole.so", trace + "/dl:{}/./whole.so")):
            self.assertEqual(expected.format(self.folder), self.variable(
                "GPUALLOC_HOST", "--log=error", f"--host={spec}"))

    def test_a_relative_path_in_another_directory(self) -> None:
        """Forwarded: each program opens the library by its spec."""
        self.library("whole.so", FAMILY + PVALLOC)
        from_environment = {"GPUALLOC_HOST": "dl:./whole.so"}
        for options, env in ((["--host=dl:./whole.so"], {}), ([], from_environment),
                             (["--host=hazard/dl:./whole.so"], {})):
            answer = self.run_shell("cd / && /bin/true && echo well", *options, "--strict",
                                    f"--stats={self.folder}/s.json", env=env)
            self.assertEqual((0, "well\n", ""), (answer.status, answer.out, answer.err))

    def test_part_of_the_family(self) -> None:
        """The C library's pvalloc would return blocks that this library's free does not know."""
        path = self.library("part.so", FAMILY)
        self.assertEqual([ALIGN_PRELOAD, "part.so"], self.preloads(f"--host=dl:{path}"))

    def test_one_function_for_aligned_blocks_is_enough(self) -> None:
        for one in (MEMALIGN, MEMALIGN.replace("memalign(size_t", "aligned_alloc(size_t")):
            path = self.library("one.so", FOUR + one + USABLE)
            self.assertEqual([ALIGN_PRELOAD, "one.so"], self.preloads(f"--host=dl:{path}"), one)

    SYSV = "-Wl,--hash-style=sysv"

    def test_a_library_with_the_older_hash_table(self) -> None:
        path = self.library("old.so", FAMILY, self.SYSV)
        self.assertEqual([ALIGN_PRELOAD, "old.so"], self.preloads(f"--host=dl:{path}"))
        whole = self.library("whole.so", FAMILY + PVALLOC, self.SYSV)
        libraries = {"LD_PRELOAD": f"{whole}:{self.variable('LD_PRELOAD')}"}
        done = subprocess.run(["/bin/true"], capture_output=True, text=True, check=True,
                              env=command.CLEAN | libraries | {"GPUALLOC_LOG": "info"})
        self.assertIn(f'malloc of "{whole}" comes before gpualloc\'s', done.stderr)

    def test_families_that_cannot_be_completed(self) -> None:
        never = MEMALIGN.replace("__libc_memalign(align, size)", "__libc_malloc(size)")
        strict = MEMALIGN.replace("return", "return size % align ? NULL :")
        for family in (FOUR + USABLE, FOUR + MEMALIGN + ALIGNED + PVALLOC,
                       FOUR + never + ALIGNED + USABLE, FOUR + strict + ALIGNED + USABLE):
            path = self.library("behind.so", family)
            self.assertEqual([PRELOAD], self.preloads(f"--host=dl:{path}"), family)

    def test_blocks_that_are_not_aligned(self) -> None:
        """As by mimalloc 2.0.9."""
        for function in ("memalign", "aligned_alloc"):
            name = f"void *{function}(size_t align, size_t size) {{ return "
            self.assertIn(name, FAMILY)
            wrong = FAMILY.replace(name, name + "align == 64 && size == 64 ? malloc(size) : ")
            path = self.library("wrong.so", wrong + PVALLOC)
            self.assertEqual([ALIGN_PRELOAD, "wrong.so"], self.preloads(f"--host=dl:{path}"),
                             function)

    def test_statistics_and_traces_need_ours(self) -> None:
        host = f"--host=dl:{self.library('whole.so', FAMILY + PVALLOC)}"
        stats, trace = f"{self.folder}/stats.json", f"{self.folder}/trace"
        from_environment = {"GPUALLOC_HOST": "dl:./whole.so"}
        for options, env in (([f"--stats={stats}"], {}), ([f"--trace={trace}"], {}),
                             ([], {"GPUALLOC_STATS": stats}), ([], {"GPUALLOC_TRACE": trace})):
            with self.subTest(options=options, env=env):
                self.assertEqual([PRELOAD], self.preloads(host, *options, env=env))
        self.assertEqual([PRELOAD], self.preloads(host.replace("=dl", "=hazard/dl")))

    def test_program_keeps_its_name(self) -> None:
        """The library is loaded before the C library is initialised."""
        host = f"--host=dl:{self.library('whole.so', FAMILY + PVALLOC)}"
        source = self.make("name.c", "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>\n"
                           "int main(void) { puts(program_invocation_name); "
                           "return puts(program_invocation_short_name) < 0; }", 0o644)
        subprocess.run(["cc", "-o", self.folder / "name", source], check=True)
        for options in ([], [f"--stats={self.folder}/s.json"]):
            answer = self.gpualloc("run", host, *options, "./name")
            self.assertEqual((0, "./name\nname\n", ""), (answer.status, answer.out, answer.err))
        self.assertIn('"program":"name"', (self.folder / "s.json").read_text())

    def test_a_path_that_the_loader_would_change(self) -> None:
        for family in (FAMILY, FAMILY + PVALLOC):
            for name in ("with space.so", "with:colon.so"):
                path = self.library(name, family)
                self.assertEqual([PRELOAD], self.preloads(f'--host=dl:path="{path}"'))
            link = self.folder / "link.so" # dlopen() would replace $LIB, too
            link.unlink(missing_ok=True)
            link.symlink_to(self.library("with$LIB.so", family))
            self.assertEqual([PRELOAD], self.preloads(f"--host=dl:{link}"))

    def test_other_preloads_stay_behind(self) -> None:
        host = f"--host=dl:{self.library('part.so', FAMILY)}"
        self.assertEqual([ALIGN_PRELOAD, "part.so", "libm.so.6", "libdl.so.2"],
                         self.preloads(host, env={"LD_PRELOAD": "libm.so.6:libdl.so.2"}))

    def test_folder_of_preloads(self) -> None:
        """Only a run that needs the library for aligned blocks misses it there."""
        (self.folder / "there").mkdir()
        (self.folder / "there" / PRELOAD).symlink_to(self.variable("LD_PRELOAD"))
        env = {"GPUALLOC_PRELOAD_DIR": str(self.folder / "there")}
        part, whole = self.library("part.so", FAMILY), self.library("whole.so", FAMILY + PVALLOC)
        self.assertEqual(["whole.so"], self.preloads(f"--host=dl:{whole}", env=env))
        self.refused(self.gpualloc("run", f"--host=dl:{part}", "true", env=env), 2, ALIGN_PRELOAD)

    def test_program_without_loader(self) -> None:
        """Static, or one that gains rights: the warning does not depend on the library."""
        archive = subprocess.run(["cc", "-print-file-name=libc.a"], capture_output=True, text=True,
                                 check=True).stdout.strip()
        if not os.path.isabs(archive):
            self.skipTest("no libc.a here")
        (self.folder / "empty.c").write_text("int main(void) { return 7; }\n")
        subprocess.run(["cc", "-static", "-o", self.folder / "static", self.folder / "empty.c"],
                       check=True)
        host = f"--host=dl:{self.library('part.so', FAMILY)}"
        answer = self.gpualloc("run", host, self.folder / "static")
        self.assertEqual(7, answer.status)
        self.assertIn("it is linked statically", answer.err)
        self.refused(self.gpualloc("run", "--strict", host, self.folder / "static"), 2, "static")

    def test_nested_runs(self) -> None:
        path = self.library("whole.so", FAMILY + PVALLOC)
        nested = f"{command.BINARY} run --host={{}} -- /bin/sh -c 'echo $LD_PRELOAD'"
        inner = self.run_shell(nested.format(f"dl:{path}"), "--host=system").out
        self.assertEqual(f"{path}\n", inner)
        other = self.library("other.so", FAMILY + PVALLOC)
        for host, expected in (("system", PRELOAD), (f"dl:{other}", other.name)):
            for env, behind in (({}, []), ({"LD_PRELOAD": "libm.so.6"}, ["libm.so.6"])):
                inner = self.run_shell(nested.format(host), f"--host=dl:{path}", env=env).out
                names = [Path(name).name for name in inner.strip().split(":")]
                self.assertEqual([expected] + behind, names)

    def test_no_library_of_an_outer_run_serves_new(self) -> None:
        """It would if it stayed in LD_PRELOAD: ours does not define the operators of C++."""
        operators = ("void *_Znwm(size_t size) { return __libc_malloc(size); }\n"
                     "void _ZdlPv(void *block) { __libc_free(block); }\n"
                     "void _ZdlPvm(void *block) { __libc_free(block); }\n")
        path = self.library("new.so", FAMILY + PVALLOC + operators)
        source = self.make("new.cpp", "int *volatile block;\nint main() { for (int i = 0; i < "
                           "5000; i++) { block = new int; delete block; } }\n", 0o644)
        subprocess.run(["c++", "-o", self.folder / "new", source], check=True)
        inner = (command.BINARY, "run", "--host=system", "--stats", "--strict", "--", "./new")
        answer = self.gpualloc("run", f"--host=dl:{path}", "--", *inner)
        self.assertEqual(0, answer.status, answer.err)
        self.assertRegex(answer.err, r"allocs +[5-9]\d{3}\b")

    def test_runs_nested_in_one_for_aligned_blocks(self) -> None:
        """The outer pair goes: its operators would serve C++."""
        part, other = self.library("part.so", FAMILY), self.library("other.so", FAMILY)
        outer = f"--host=dl:{part}"
        for inner, expected in (("system", [PRELOAD]), (f"dl:{part}", [ALIGN_PRELOAD, "part.so"]),
                                (f"dl:{other}", [ALIGN_PRELOAD, "other.so"])):
            for env, behind in (({}, []), ({"LD_PRELOAD": "libm.so.6"}, ["libm.so.6"])):
                out = self.run_shell(f"{command.BINARY} run --host={inner} -- "
                                     "/bin/sh -c 'echo $LD_PRELOAD'", outer, env=env).out
                names = [Path(name).name for name in out.strip().split(":")]
                self.assertEqual(expected + behind, names, inner)

    def test_deep_nesting_does_not_lengthen_the_list(self) -> None:
        run = f"{command.BINARY} run --host=dl:{self.library('part.so', FAMILY)} --device=vmm -- "
        once, thrice = (self.run_shell(run * depth + "/bin/sh -c 'echo $LD_PRELOAD'").out
                        for depth in (1, 3))
        self.assertEqual(once, thrice)
        self.assertEqual(3, len(once.split(":")), once)

    def test_more_static_thread_local_storage(self) -> None:
        """For a library that the loader has no space for, as Debian's jemalloc."""
        host = f"--host=dl:{self.library('large.so', LARGE, '-ftls-model=initial-exec')}"
        perturb, more = "glibc.malloc.perturb=0", "glibc.rtld.optional_static_tls=16000"
        self.assertEqual([ALIGN_PRELOAD, "large.so"], self.preloads(host))
        self.assertEqual("unset", self.variable("GLIBC_TUNABLES", host))
        self.assertEqual(perturb,
                         self.variable("GLIBC_TUNABLES", host, env={"GLIBC_TUNABLES": perturb}))
        for env, expected in (({}, more), ({"GLIBC_TUNABLES": perturb}, f"{perturb}:{more}")):
            forwarded = self.run_shell('printf %s "$GLIBC_TUNABLES"', host,
                                       f"--stats={self.folder}/stats", env=env)
            self.assertEqual((0, expected, ""),
                             (forwarded.status, forwarded.out, forwarded.err))
        out = self.gpualloc("env", host, f"--stats={self.folder}/stats").out
        self.assertIn(f"export GLIBC_TUNABLES='{more}';\n", out)
        chosen = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=600"}
        self.refused(self.gpualloc("run", host, "true", env=chosen), 2, "static TLS")
        for own in (more, f"{perturb}:{more}"): # the user's, as we would set it
            env = {"GLIBC_TUNABLES": own}
            self.assertEqual(own, self.variable("GLIBC_TUNABLES", host, env=env))
            self.assertIn(f"export GLIBC_TUNABLES='{own}';\n",
                          self.gpualloc("env", host, env=env).out)

    def test_static_thread_local_storage_of_an_outer_run(self) -> None:
        """What the outer run has added goes with `env --unset`, and nothing else."""
        library = self.library("large.so", LARGE, "-ftls-model=initial-exec")
        perturb, more = "glibc.malloc.perturb=0", "glibc.rtld.optional_static_tls=16000"
        unset = f'eval "$({command.BINARY} env --unset)"; '
        show = 'printf %s "${GLIBC_TUNABLES-unset}"'
        for before, then, expected in (
                ({}, "", more), ({}, unset, "unset"),
                ({"GLIBC_TUNABLES": ""}, "", more),
                ({"GLIBC_TUNABLES": perturb}, unset, perturb),
                ({"GLIBC_TUNABLES": perturb},
                 f"export GLIBC_TUNABLES=$GLIBC_TUNABLES:glibc.malloc.check=0; {unset}",
                 f"{perturb}:{more}:glibc.malloc.check=0")):
            answer = self.run_shell(then + show, f"--host=dl:{library}",
                                    f"--stats={self.folder}/stats", env=before)
            self.assertEqual((0, expected, ""), (answer.status, answer.out, answer.err), then)


class Found(RunTest):
    def test_preload_is_missing(self) -> None:
        answer = self.gpualloc("run", "true", env={"GPUALLOC_PRELOAD_DIR": "nonesuch"})
        self.refused(answer, 2, "GPUALLOC_PRELOAD_DIR", PRELOAD, f'"{self.folder}/nonesuch"')
        lonely = self.folder / "bin" / "gpualloc"
        lonely.parent.mkdir()
        shutil.copy(command.BINARY, lonely)
        done = subprocess.run([lonely, "run", "true"], capture_output=True,
                              env={name: value for name, value in os.environ.items()
                                   if name != "GPUALLOC_PRELOAD_DIR"})
        self.refused(Answer(done), 2, PRELOAD, str(self.folder), "GPUALLOC_PRELOAD_DIR")

    def test_preload_beside_a_moved_command(self) -> None:
        command_path = self.folder / "bin" / "gpualloc"
        command_path.parent.mkdir()
        shutil.copy(command.BINARY, command_path)
        env = {name: value for name, value in os.environ.items() if name != "GPUALLOC_PRELOAD_DIR"}
        library = self.variable("LD_PRELOAD")
        for place in ("lib", "lib64", "malloc"):
            (self.folder / place).mkdir()
            shutil.copy(library, self.folder / place)
            done = subprocess.run([command_path, "run", "/bin/sh", "-c", "echo $LD_PRELOAD"],
                                  capture_output=True, env=env, text=True)
            self.assertEqual(f"{self.folder}/{place}/{PRELOAD}\n", done.stdout)

    def preload_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(self.variable("LD_PRELOAD"), folder)
        return folder

    def test_preload_that_cannot_be_named(self) -> None:
        """A space is allowed where the folder can be searched for libraries: see Spaces."""
        (self.preload_folder("a space") / "libz.so.1").touch()
        names = ["a:colon", "a space;semicolon", "a$LIB", "a $ORIGIN space"]
        for name in names:
            self.preload_folder(name)
        for name in ["a space"] + names:
            answer = self.gpualloc("run", "true", env={"GPUALLOC_PRELOAD_DIR": name})
            self.refused(answer, 2, name, "LD_PRELOAD cannot name it")

    def test_preload_of_another_version(self) -> None:
        library = self.preload_folder("other") / PRELOAD
        content = library.read_bytes()
        note = b"gpualloc\0\0\0\0"
        at = content.index(note) + len(note)
        library.write_bytes(content[:at] + b"9.8.7\0" + content[at + 6:])
        answer = self.gpualloc("run", "true", env={"GPUALLOC_PRELOAD_DIR": "other"})
        version = self.gpualloc("--version").out.split()[1]
        self.refused(answer, 2, str(library), "9.8.7", version)

    def test_preload_that_is_no_library(self) -> None:
        library = self.preload_folder("other") / PRELOAD
        content = library.read_bytes()
        for wrong in (b"", b"text", content[:64], content.replace(b"gpualloc\0\0\0\0", b"x" * 12)):
            library.write_bytes(wrong)
            answer = self.gpualloc("run", "true", env={"GPUALLOC_PRELOAD_DIR": "other"})
            self.refused(answer, 2, str(library), "is no library of gpualloc")
        library.write_bytes(content[:4] + bytes([content[4] ^ 3]) + content[5:])
        answer = self.gpualloc("run", "true", env={"GPUALLOC_PRELOAD_DIR": "other"})
        self.refused(answer, 2, str(library), "another kind of processor")

    def test_preload_that_may_not_be_executed(self) -> None:
        folder = self.folder / "mount"
        folder.mkdir()
        script = (f"mount -t tmpfs -o noexec none {folder} && cp {self.variable('LD_PRELOAD')} "
                  f"{folder} && exec {command.BINARY} run true")
        answer = command.Answer(subprocess.run(
            ["unshare", "-rm", "sh", "-c", script], capture_output=True,
            env=command.CLEAN | {"GPUALLOC_PRELOAD_DIR": str(folder)}))
        if answer.err.startswith(("unshare:", "mount:")):
            self.skipTest(answer.err.strip())
        self.refused(answer, 2, str(folder), "noexec")


@unittest.skipIf(command.SANITIZED, "the preload is not the real one")
class Spaces(RunTest):
    """An installation below a folder with a space: LD_PRELOAD has the names, and LD_LIBRARY_PATH
    the folder."""

    def setUp(self) -> None:
        super().setUp()
        self.home = self.folder / "my programs"
        (self.home / "lib").mkdir(parents=True)
        (self.home / "bin").mkdir()
        shutil.copy(command.BINARY, self.home / "bin")
        for path in self.variable("LD_PRELOAD", "--device=cuda").split(":"):
            shutil.copy(path, self.home / "lib")

    def run_there(self, *args: object, env: dict[str, str] | None = None) -> Answer:
        return Answer(subprocess.run([self.home / "bin/gpualloc", *map(str, args)],
                                     capture_output=True, env=command.CLEAN | (env or {})))

    SHOW = ("/bin/sh", "-c", 'echo "$LD_PRELOAD|$LD_LIBRARY_PATH"')

    def test_variables(self) -> None:
        folder = f"{self.home}/lib"
        for before, after in ((None, ""), ("", ""), ("/x", ":/x"), ("/x:", ":/x:"),
                              (folder, ""), (f"/x:{folder}", ":/x")):
            env = {} if before is None else {"LD_LIBRARY_PATH": before}
            answer = self.run_there("run", "--device=cuda", "--", *self.SHOW, env=env)
            self.assertEqual((0, f"{PRELOAD}:{command.CUDA_PRELOAD}|{folder}{after}\n", ""),
                             (answer.status, answer.out, answer.err))

    def test_takes_over(self) -> None:
        answer = self.run_there("run", "--host=system", "--stats", "--strict", "--",
                                os.path.realpath(sys.executable), "-S", "-c", "pass")
        self.assertEqual(0, answer.status)
        self.assertRegex(answer.err, r"allocs +[1-9]")

    def test_environment_and_back(self) -> None:
        show = self.SHOW[2]
        answer = Answer(subprocess.run(
            ["/bin/sh", "-c", f'eval "$("$0" env)"; {show}; eval "$("$0" env --unset)"; {show}',
             self.home / "bin/gpualloc"], capture_output=True,
            env=command.CLEAN | {"LD_LIBRARY_PATH": "/x"}))
        self.assertEqual(f"{PRELOAD}|{self.home}/lib:/x\n|/x\n", answer.out, answer.err)

    def test_nested(self) -> None:
        answer = self.run_there("run", self.home / "bin/gpualloc", "run", "--", *self.SHOW)
        self.assertEqual(f"{PRELOAD}|{self.home}/lib\n", answer.out, answer.err)


if __name__ == "__main__":
    command.main()
