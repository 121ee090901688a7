#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc run`: statuses, the environment, refusals, and the files that it makes. Set
GPUALLOC_BIN to the command."""

import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import unittest
from pathlib import Path

import command
from command import ALIGN_PRELOAD, PRELOAD, Answer, CommandTest

TRACE_HEADER_BYTES = 40
PLAIN_PATH = {"PATH": "/usr/bin:/bin"}  # a folder that may not be searched makes a 127 a 126


class RunTest(CommandTest):
    def run_shell(self, script: str, *options: object, **more: object) -> Answer:
        return self.gpualloc("run", *options, "--", "/bin/sh", "-c", script, **more)

    def variable(self, name: str, *options: object, env: dict[str, str] | None = None) -> str:
        answer = self.run_shell(f'printf %s "${{{name}-unset}}"', *options, env=env)
        self.assertEqual((0, ""), (answer.status, answer.err))
        return answer.out

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def make(self, name: str, content: str | bytes, mode: int) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path


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


@unittest.skipIf(command.SANITIZED, "the library would come before the sanitizer's")
class DirectLibrary(RunTest):
    """The library of dl: is preloaded itself where nothing is lost."""

    def library(self, name: str, source: str, *options: str) -> Path:
        (self.folder / "family.c").write_text(
            "#include <stddef.h>\nextern void *__libc_malloc(size_t), *__libc_calloc(size_t, "
            "size_t), *__libc_realloc(void *, size_t), __libc_free(void *), "
            "*__libc_memalign(size_t, size_t);\n" + source)
        path = self.folder / name
        subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", *options, "-o", path,
                        self.folder / "family.c"], check=True)
        return path

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

    def test_part_of_the_family(self) -> None:
        """The C library's pvalloc would return blocks that this library's free does not know."""
        path = self.library("part.so", FAMILY)
        self.assertEqual([ALIGN_PRELOAD, "part.so"], self.preloads(f"--host=dl:{path}"))

    def test_one_function_for_aligned_blocks_is_enough(self) -> None:
        for one in (MEMALIGN, MEMALIGN.replace("memalign(size_t", "aligned_alloc(size_t")):
            path = self.library("one.so", FOUR + one + USABLE)
            self.assertEqual([ALIGN_PRELOAD, "one.so"], self.preloads(f"--host=dl:{path}"), one)

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
        for options, env in (([f"--stats={stats}"], {}), ([f"--trace={trace}"], {}),
                             ([], {"GPUALLOC_STATS": stats}), ([], {"GPUALLOC_TRACE": trace})):
            with self.subTest(options=options, env=env):
                self.assertEqual([PRELOAD], self.preloads(host, *options, env=env))
        self.assertEqual([PRELOAD], self.preloads(host.replace("=dl", "=hazard/dl")))

    def test_a_path_that_the_loader_would_split(self) -> None:
        for family in (FAMILY, FAMILY + PVALLOC):
            for name in ("with space.so", "with:colon.so"):
                path = self.library(name, family)
                self.assertEqual([PRELOAD], self.preloads(f'--host=dl:path="{path}"'))

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
        inner = self.run_shell(nested.format("system"), f"--host=dl:{path}").out
        first, second = inner.strip().split(":")
        self.assertEqual((PRELOAD, str(path)), (Path(first).name, second))

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
        part = "static __thread char large[1 << 13];\n" + FAMILY.replace("{ return __libc_malloc",
                                                                       "{ large[0]++; return "
                                                                       "__libc_malloc")
        host = f"--host=dl:{self.library('large.so', part, '-ftls-model=initial-exec')}"
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
        chosen = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=600"}
        self.refused(self.gpualloc("run", host, "true", env=chosen), 2, "static TLS")


class Status(RunTest):
    def test_kept(self) -> None:
        for status in (0, 1, 2, 77, 126, 127, 255):
            answer = self.run_shell(f"exit {status}")
            self.assertEqual((status, "", ""), (answer.status, answer.out, answer.err))

    def test_killed(self) -> None:
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            self.assertEqual(-number, self.run_shell(f"kill -{int(number)} $$").status)

    def test_same_process(self) -> None:
        with subprocess.Popen([command.BINARY, "run", "--", "/bin/sh", "-c", "echo $$"],
                              stdout=subprocess.PIPE, env=os.environ | command.SETTINGS) as process:
            self.assertEqual(process.pid, int(process.communicate()[0]))

    def test_not_found(self) -> None:
        for name in ("nonesuch-program", "./nonesuch", "/nonesuch/program", ""):
            answer = self.gpualloc("run", "--", name, env=PLAIN_PATH)
            self.refused(answer, 127, f'"{name}"', "No such file")
        script = self.make("script", "#!/nonesuch/shell\n", 0o755)
        self.refused(self.gpualloc("run", script), 127, str(script), "No such file")

    def test_cannot_run(self) -> None:
        data = self.make("data", "text", 0o644)
        for path in (data, "./data", self.folder, f"{data}/x"):
            self.refused(self.gpualloc("run", path), 126, str(path))

    def test_search(self) -> None:
        """As execvp(3): files that cannot be run are skipped, and an empty entry is the current
        folder."""
        (self.folder / "one").mkdir()
        (self.folder / "two").mkdir()
        self.make("one/tool", "#!/bin/sh\necho one\n", 0o644)
        env = {"PATH": f"{self.folder}/nonesuch:{self.folder}/one"}
        self.refused(self.gpualloc("run", "tool", env=env), 126, "Permission denied")
        self.make("two/tool", "#!/bin/sh\necho two\n", 0o755)
        self.assertEqual("two\n", self.gpualloc(
            "run", "tool", env={"PATH": f"{self.folder}/one:{self.folder}/two"}).out)
        self.make("here", "#!/bin/sh\necho here\n", 0o755)
        self.assertEqual("here\n", self.gpualloc("run", "here", env={"PATH": ""}).out)
        self.assertEqual("here\n", self.gpualloc("run", "here", env={"PATH": "/nonesuch:"}).out)

    def test_script_without_interpreter(self) -> None:
        path = self.make("bare", "echo bare\n", 0o755)
        self.assertEqual("bare\n", self.gpualloc("run", path).out)


class Environment(RunTest):
    def test_preload(self) -> None:
        path = self.variable("LD_PRELOAD")
        self.assertTrue(os.path.isabs(path) and path.endswith("/" + PRELOAD), path)
        self.assertTrue(os.path.exists(path))

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_other_preloads_stay(self) -> None:
        path = self.variable("LD_PRELOAD")
        for others in ("libm.so.6", "libm.so.6 libdl.so.2:"):
            self.assertEqual(f"{path}:{others}",
                             self.variable("LD_PRELOAD", env={"LD_PRELOAD": others}))

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_run_within_run(self) -> None:
        answer = self.gpualloc("run", "--host=system", command.BINARY, "run", "--stats", "/bin/sh",
                               "-c", 'echo "$LD_PRELOAD $GPUALLOC_HOST $GPUALLOC_STATS"')
        preload, host, stats = answer.out.split()
        self.assertEqual((1, "system", "1"), (preload.count(PRELOAD), host, stats))

    def test_host(self) -> None:
        names = [b["name"] for b in json.loads(self.gpualloc("list", "--json").out)["backends"]]
        default = "jemalloc" if "jemalloc" in names else "system"
        self.assertEqual(default, self.variable("GPUALLOC_HOST"))
        self.assertEqual(default, self.variable("GPUALLOC_HOST", env={"GPUALLOC_HOST": ""}))
        self.assertEqual("system", self.variable("GPUALLOC_HOST", env={"GPUALLOC_HOST": "system"}))
        self.assertEqual("fail:nth=0", self.variable("GPUALLOC_HOST", "--host=fail:nth=0",
                                                     env={"GPUALLOC_HOST": "system"}))

    def test_what_is_not_given_stays(self) -> None:
        for name in ("DEVICE", "KERNEL", "STATS", "STATS_PID", "TRACE", "LOG", "STRICT"):
            self.assertEqual("unset", self.variable("GPUALLOC_" + name))
        self.assertEqual("own", self.variable("GPUALLOC_DEVICE", env={"GPUALLOC_DEVICE": "own"}))

    def test_what_is_given(self) -> None:
        for option, name, value in (("--device=cuda:heap=1M", "DEVICE", "cuda:heap=1M"),
                                    ("--device=of-the-program", "DEVICE", "of-the-program"),
                                    ("--kernel=a/b:c=d", "KERNEL", "a/b:c=d"),
                                    ("--stats", "STATS", "1"), ("--strict", "STRICT", "1"),
                                    ("--stats-children", "STATS", "1"),
                                    ("--log=debug", "LOG", "debug"),
                                    ("--stats=s", "STATS", f"{self.folder}/s"),
                                    ("--stats=1", "STATS", f"{self.folder}/1"),
                                    ("--trace=t", "TRACE", f"{self.folder}/t"),
                                    ("--trace=/dev/shm/%p", "TRACE", "/dev/shm/%p")):
            out = self.run_shell(f'printf %s "$GPUALLOC_{name}"; rm -f /dev/shm/$$*', option).out
            self.assertEqual(value, out)

    def test_preloads(self) -> None:
        """The preload for CUDA programs only if a spec for them is set."""
        names = [Path(path).name for path in self.variable("LD_PRELOAD").split(":")]
        self.assertEqual([PRELOAD], names)
        for options, env in ((["--device=vmm"], {}), ([], {"GPUALLOC_DEVICE": "vmm"}),
                             (["--kernel=slab/vmm"], {}), ([], {"GPUALLOC_KERNEL": "slab/vmm"})):
            paths = self.variable("LD_PRELOAD", *options, env=env).split(":")
            self.assertEqual([PRELOAD, command.CUDA_PRELOAD], [Path(path).name for path in paths])

    def test_program_keeps_its_arguments(self) -> None:
        for args in (["printf", "%s,", "--stats", "-x", "--"], ["--", "printf", "%s,", "--stats",
                                                                "-x", "--"]):
            answer = self.gpualloc("run", "--log", "error", *args)
            self.assertEqual((0, "--stats,-x,--,"), (answer.status, answer.out), answer.err)


class Refused(RunTest):
    def test_usage(self) -> None:
        for args, part in (([], "PROGRAM"), (["--"], "PROGRAM"), (["--stats"], "PROGRAM"),
                           (["--host"], "requires an argument"), (["--bad", "true"], "--bad"),
                           (["--log=loud", "true"], '"loud"'), (["--stats=", "true"], "--stats"),
                           (["--trace=", "true"], "--trace"),
                           (["--stats", "f", "--", "true"], "--stats=f"),
                           (["--stats=f", "--trace=f", "true"], "two files"),
                           (["--trace=" + "x" * 5000, "true"], "path")):
            self.refused(self.gpualloc("run", *args), 2, part)

    def test_specs(self) -> None:
        for spec, part in (("nonesuch", "unknown backend"), ("", "the name of a backend"),
                           ("system:x=1", '"x"'), ("system/", "the end"),
                           ("system/null", "takes no parent"), ("dl:/nonesuch.so", "/nonesuch.so"),
                           ("dl", "path"), ("trace/system", "file"), ("cuda", "host"),
                           ("trace:file=f/nonesuch", "nonesuch"), ("fail:nth=x", '"x"'),
                           ('dl:path="x', "closing"), ("/" * 10000, "spec")):
            self.refused(self.gpualloc("run", "--host", spec, "true"), 2, "--host: ", part)
            if spec:
                self.refused(self.gpualloc("run", "true", env={"GPUALLOC_HOST": spec}), 2,
                             "GPUALLOC_HOST: ", part)
        self.refused(self.gpualloc("run", "--device=a b", "true"), 2, "--device: ", "column 2")
        self.refused(self.gpualloc("run", "true", env={"GPUALLOC_DEVICE": "a b"}), 2,
                     "GPUALLOC_DEVICE: ", "column 2")
        self.refused(self.gpualloc("run", "--kernel=/", "true"), 2, "--kernel: ", "column 1")
        self.assertEqual([], self.files())

    def test_libraries_that_must_not_be_loaded(self) -> None:
        for library, part in ((os.environ["GPUALLOC_ENDS_PROCESS"],
                               "ends the process with status 3"),
                              (os.environ["GPUALLOC_OWN_MALLOC"], "gpualloc's own malloc")):
            self.refused(self.gpualloc("run", "--host", "dl:" + library, "true"), 2, "--host: ",
                         library, part)

    @unittest.skipIf(command.SANITIZED, "the library would come before the sanitizer's")
    def test_libraries_that_must_be_preloaded_too(self) -> None:
        """The message is a command line that works."""
        (self.folder / "large.c").write_text(
            "#include <stddef.h>\n"
            "static __thread char large[1 << 16];\n"
            "extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);\n"
            "extern void *__libc_realloc(void *, size_t), __libc_free(void *);\n"
            "void *malloc(size_t size) { large[0]++; return __libc_malloc(size); }\n"
            "void *calloc(size_t n, size_t size) { return __libc_calloc(n, size); }\n"
            "void *realloc(void *old, size_t size) { return __libc_realloc(old, size); }\n"
            "void free(void *block) { __libc_free(block); }\n")
        library = self.folder / "large.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-ftls-model=initial-exec", "-fno-builtin", "-o",
                        library, self.folder / "large.c"], check=True)
        answer = self.gpualloc("run", f"--host=dl:{library}", "true")
        hint = f"LD_PRELOAD={library}"
        self.refused(answer, 2, "static TLS", f"; begin the command line with {hint}")
        answer = self.gpualloc("run", f"--host=dl:{library}", "true",
                               env={"LD_PRELOAD": str(library)})
        self.assertEqual((0, ""), (answer.status, answer.err))

    def test_libraries_that_are_no_files(self) -> None:
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder / "pipe", self.folder, "/dev/zero"):
            answer = self.gpualloc("run", f"--host=dl:{path}", "true", timeout=30)
            self.refused(answer, 2, str(path), "is no regular file")

    def test_control_characters_are_not_shown(self) -> None:
        self.refused(self.gpualloc("run", "--", "\033[31m\nx"), 127, '"?[31m?x"')

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
        for place in ("lib", "lib64", "malloc"):
            (self.folder / place).mkdir()
            (self.folder / place / PRELOAD).touch()
            done = subprocess.run([command_path, "run", "/bin/sh", "-c", "echo $LD_PRELOAD"],
                                  capture_output=True, env=env, text=True)
            self.assertEqual(f"{self.folder}/{place}/{PRELOAD}\n", done.stdout)

    def test_preload_that_cannot_be_named(self) -> None:
        for name in ("a space", "a:colon"):
            (self.folder / name).mkdir()
            (self.folder / name / PRELOAD).touch()
            answer = self.gpualloc("run", "true", env={"GPUALLOC_PRELOAD_DIR": name})
            self.refused(answer, 2, name, "space or a colon")

    def test_files(self) -> None:
        thesis = self.make("thesis", "years of work", 0o644)
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for path, part in ((thesis, "is no trace"), (pipe, "is no trace"),
                           ("/dev/null", "is no trace"), (self.folder, "Is a directory"),
                           ("/nonesuch/t", "No such file")):
            self.refused(self.gpualloc("run", "--trace", path, "true"), 2, "--trace: ", part)
        for path in ("/nonesuch/s", self.folder):
            self.refused(self.gpualloc("run", f"--stats={path}", "true"), 2, "--stats: ", str(path))
        self.assertEqual("years of work", thesis.read_text())
        self.assertEqual(["pipe", "thesis"], self.files())

    def test_nothing_is_lost_for_a_program_that_is_missing(self) -> None:
        trace = self.make("old.trace", b"GATRACE\0 and more", 0o644)
        answer = self.gpualloc("run", "--trace", trace, "nonesuch-program", env=PLAIN_PATH)
        self.assertEqual(127, answer.status)
        self.assertEqual(b"GATRACE\0 and more", trace.read_bytes())


@unittest.skipIf(command.SANITIZED, "the preload is not the real one")
class Output(RunTest):
    """Of a python3 without site packages: a program that allocates, and starts no others."""

    PROGRAM = (os.path.realpath(sys.executable), "-S", "-c",
               "print(len([[] for _ in range(1000)]))")

    def test_stats_on_standard_error(self) -> None:
        answer = self.gpualloc("run", "--host=system", "--stats", "--", *self.PROGRAM)
        self.assertEqual((0, "1000\n"), (answer.status, answer.out))
        self.assertIn("system", answer.err)
        self.assertIn("allocs", answer.err)

    def test_stats_in_files(self) -> None:
        for _ in range(2):
            self.gpualloc("run", "--host=system", "--stats=s.json", "--", *self.PROGRAM)
            self.gpualloc("run", "--host=system", "--stats=s.txt", "--", *self.PROGRAM)
        lines = (self.folder / "s.json").read_text().splitlines()
        self.assertEqual(["system"] * 2, [json.loads(line)["spec"] for line in lines])
        self.assertEqual(2, (self.folder / "s.txt").read_text().count("\nallocs "))

    def test_files_are_where_the_command_was(self) -> None:
        self.run_shell("cd /; exit 0", "--stats=s.json", "--trace=t")
        self.assertEqual(["s.json", "t"], self.files())

    def test_stats_into_a_pipe(self) -> None:
        os.mkfifo(self.folder / "pipe")
        reader = subprocess.Popen(["cat", self.folder / "pipe"], stdout=subprocess.PIPE)
        self.addCleanup(reader.kill)
        self.assertEqual(0, self.gpualloc("run", "--stats=pipe", "--", *self.PROGRAM).status)
        self.assertIn(b"allocs", reader.communicate(timeout=30)[0])

    def reporters(self, *options: str, script: str) -> list[str]:
        """The programs that report when bash runs the script, in which $PYTHON is python3 without
        site packages."""
        stats = self.folder / "s.json"
        stats.unlink(missing_ok=True)
        answer = self.gpualloc("run", "--host=system", "--stats=s.json", *options, "--", "bash",
                               "-c", script, env={"PYTHON": f"{self.PROGRAM[0]} -S"})
        self.assertEqual((0, ""), (answer.status, answer.err))
        lines = stats.read_text().splitlines() if stats.exists() else []
        return [json.loads(line)["program"].rstrip("0123456789.") for line in lines]

    def test_stats_of_the_named_program_alone(self) -> None:
        script = "$PYTHON -c 'pass'; $PYTHON -c 'pass'; (:); exit 0"
        self.assertEqual(["bash"], self.reporters(script=script))
        self.assertEqual(["python"] * 2 + ["bash"] * 2,
                         self.reporters("--stats-children", script=script))

    def test_stats_of_the_program_that_a_wrapper_becomes(self) -> None:
        """As of pyenv: a script that asks other programs, and ends in exec."""
        script = "v=$($PYTHON -c 'print(1)'); exec bash -c 'exec $PYTHON -c \"print($v)\"'"
        self.assertEqual(["python"], self.reporters(script=script))

    def test_stats_of_forked_children(self) -> None:
        script = ("exec $PYTHON -c 'import os, sys; child = os.fork(); "
                  "child and os.waitpid(child, 0); sys.exit(0)'")
        self.assertEqual(["python"], self.reporters(script=script))
        self.assertEqual(["python"] * 2, self.reporters("--stats-children", script=script))

    def test_stats_of_children_on_standard_error(self) -> None:
        script = f"{self.PROGRAM[0]} -S -c pass; exit 0"
        for options, tables in ((["--stats"], 1), (["--stats-children"], 2),
                                (["--stats-children", "--stats"], 2)):
            answer = self.gpualloc("run", "--host=system", *options, "--", "bash", "-c", script)
            self.assertEqual(tables, answer.err.count("gpualloc: statistics of "), answer.err)

    def test_stats_of_a_run_within_a_run(self) -> None:
        """Each run reports its own program. A run without --stats adds no program to report."""
        program = f"{command.BINARY} run --host=system %s -- $PYTHON -c pass; exit 0"
        self.assertEqual(["python", "bash"], self.reporters(script=program % "--stats=s.json"))
        self.assertEqual(["bash"], self.reporters(script=program % ""))

    def test_trace_agrees_with_stats(self) -> None:
        self.gpualloc("run", "--stats=s.json", "--trace=t", "--", *self.PROGRAM,
                      env={"PYTHONMALLOC": "malloc"})
        stats = json.loads((self.folder / "s.json").read_text())
        text = self.gpualloc("trace", "--json", "t").out
        records = [json.loads(line) for line in text.splitlines()]
        made = [r for r in records if r["operation"] in ("alloc", "zeroed")]
        self.assertGreater(stats["allocs"], 1000)
        self.assertGreaterEqual(len(made), stats["allocs"])
        self.assertLess(len(made), stats["allocs"] + 100, "what follows the report is little")
        self.assertEqual([], [r for r in records if r["place"] != "host"])

    def test_old_trace_is_replaced(self) -> None:
        for _ in range(2):
            self.assertEqual(0, self.gpualloc("run", "--trace=t", "--", *self.PROGRAM).status)
            self.assertEqual(["t"], self.files())
        self.make("t", "", 0o644)
        self.gpualloc("run", "--trace=t", "--", *self.PROGRAM)
        self.assertEqual(["t"], self.files())
        self.assertGreater((self.folder / "t").stat().st_size, TRACE_HEADER_BYTES)

    def test_files_that_are_none(self) -> None:
        answer = self.gpualloc("run", "--stats=-", "--", *self.PROGRAM)
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertIn("gpualloc: statistics of ", answer.out)
        for path in ("-", "/dev/null", "/tmp", "/dev/stdout"):
            self.refused(self.run_shell("exit 0", f"--trace={path}"), 2, "--trace", path)
        self.assertEqual([], self.files())

    def test_trace_with_the_process_id(self) -> None:
        answer = self.run_shell("echo $$", "--trace=t.%p")
        self.assertEqual([f"t.{answer.out.strip()}"], self.files())

    def test_trial_leaves_no_trace(self) -> None:
        """The spec is tried out, but neither by beginning its trace nor the environment's."""
        self.assertEqual(0, self.run_shell("exit 0", "--host=trace:file=t/system").status)
        self.assertEqual(["t"], self.files())
        os.remove(self.folder / "t")
        env = {"GPUALLOC_TRACE": f"{self.folder}/u", "GPUALLOC_STATS": f"{self.folder}/s.json"}
        self.assertEqual(0, self.gpualloc("run", *self.PROGRAM, env=env).status)
        self.assertEqual(["s.json", "u"], self.files())
        self.assertEqual(1, len((self.folder / "s.json").read_text().splitlines()))


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
        source = self.make("print.c", '#include <stdio.h>\n#include <stdlib.h>\nint main(void)'
                           '{ puts(getenv("LD_PRELOAD") ? "preloaded" : "alone"); return 0; }',
                           0o644)
        subprocess.run([compiler, str(source), "-o", str(self.folder / "print")], check=True)
        answer = self.gpualloc("run", self.folder / "print")
        self.assertEqual((0, "alone\n"), (answer.status, answer.out), answer.err)
        self.assertIn("made for musl", answer.err)

    def test_other_processor(self) -> None:
        content = small_program() or b"\x7fELF\x02\x01\x01" + bytes(57)
        path = self.make("foreign", content[:18] + b"\x08\0" + content[20:], 0o755)
        answer = self.gpualloc("run", path)
        self.assertNotEqual(0, answer.status)
        self.assertIn("another kind of processor", answer.err.splitlines()[0])

    def test_gains_rights(self) -> None:
        if os.getuid() == 0:
            path = self.make("true", Path("/bin/true").read_bytes(), 0o755)
            os.chown(path, 65534, 65534)
            path.chmod(0o4755)
            self.folder.chmod(0o755)
            self.check(path, "gains rights", 0)
            path.chmod(0o755)
        else:
            su = shutil.which("su")
            if not su or not os.stat(su).st_mode & stat.S_ISUID:
                self.skipTest("no setuid program here")
            self.assertIn("gains rights", self.gpualloc("run", su, "--version").err)

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

    def test_pipe_as_interpreter_is_not_waited_for(self) -> None:
        os.mkfifo(self.folder / "pipe")
        script = self.make("script", f"#!{self.folder}/pipe\n", 0o755)
        self.refused(self.gpualloc("run", script, timeout=30), 126, "Permission denied")


if __name__ == "__main__":
    command.main()
