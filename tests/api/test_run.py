#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc run`: statuses, the environment, refusals, and the files that it makes. Set
GPUALLOC_BIN to the command."""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import unittest
from pathlib import Path

import command
from command import PRELOAD, RunTest

TRACE_HEADER_BYTES = 40
PLAIN_PATH = {"PATH": "/usr/bin:/bin"}  # a folder that may not be searched makes a 127 a 126


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
    def test_libraries_of_another_installation_go(self) -> None:
        path = self.variable("LD_PRELOAD")
        other = shutil.copy(path, self.folder)
        for before, after in ((other, ""), (f"{other}:libm.so.6", ":libm.so.6"),
                              (f"libm.so.6 {other}", ":libm.so.6"),
                              (f"libm.so.6:{other}:libdl.so.2", ":libm.so.6:libdl.so.2")):
            self.assertEqual(path + after, self.variable("LD_PRELOAD", env={"LD_PRELOAD": before}))

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
        for name in ("DEVICE", "KERNEL", "STATS", "STATS_PID", "TRACE", "TRACE_STACKS", "LOG",
                     "STRICT"):
            self.assertEqual("unset", self.variable("GPUALLOC_" + name))
        for name in ("GPUALLOC_DEVICE", "GPUALLOC_KERNEL"):
            for spec in ("of-the-program:x=1", "trace:file=x/of-the-program"):
                self.assertEqual(spec, self.variable(name, env={name: spec}))

    def test_what_is_given(self) -> None:
        for option, name, value in (("--device=cuda:heap=1M", "DEVICE", "cuda:heap=1M"),
                                    ("--device=slab:free=event/vmm:limit=1G", "DEVICE",
                                     "slab:free=event/vmm:limit=1G"),
                                    ("--kernel=slab/vmm:limit=1G", "KERNEL", "slab/vmm:limit=1G"),
                                    ("--stats", "STATS", "1"), ("--strict", "STRICT", "1"),
                                    ("--stats-children", "STATS", "1"),
                                    ("--log=debug", "LOG", "debug"),
                                    ("--stats=s", "STATS", f"{self.folder}/s"),
                                    ("--stats=1", "STATS", f"{self.folder}/1"),
                                    ("--trace=t", "TRACE", f"{self.folder}/t"),
                                    ("--trace=/dev/shm/%p", "TRACE", "/dev/shm/%p")):
            out = self.run_shell(f'printf %s "$GPUALLOC_{name}"; rm -f /dev/shm/$$*', option).out
            self.assertEqual(value, out)

    def test_settings_of_another_jemalloc(self) -> None:
        """One line says that they are not read."""
        names = [b["name"] for b in json.loads(self.gpualloc("list", "--json").out)["backends"]]
        if "jemalloc" not in names:
            self.skipTest("built without jemalloc")
        env = {"MALLOC_CONF": "narenas:1"}
        for host, own, lines in (("jemalloc", None, 1), ("hazard/jemalloc", None, 1),
                                 ("jemalloc", "narenas:1", 0), ("system", None, 0)):
            more = {"GA_JE_MALLOC_CONF": own} if own else {}
            answer = self.run_shell("exit 0", f"--host={host}", env=env | more)
            self.assertEqual((0, lines), (answer.status, answer.err.count("GA_JE_MALLOC_CONF is")))

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
                           ("trace:file=f/nonesuch", "nonesuch"),
                           ("trace:file=f/cuda", "host"), ("trace:file=f/system:x=1", '"x"'),
                           ("fail:nth=x", '"x"'),
                           ('dl:path="x', "closing"), ("/" * 10000, "spec")):
            self.refused(self.gpualloc("run", "--host", spec, "true"), 2, "--host: ", part)
            if spec:
                self.refused(self.gpualloc("run", "true", env={"GPUALLOC_HOST": spec}), 2,
                             "GPUALLOC_HOST: ", part)
        self.assertEqual([], self.files())

    def test_specs_of_devices(self) -> None:
        for place, spec, *parts in (
                ("device", "a b", "column 2"), ("kernel", "/", "column 1"),
                ("device", "vmm:", "column 5"), ("device", "vmm:x=1", '"x"', "limit"),
                ("device", "slab/hardened", "hardened", "host, not device"),
                ("device", "system", "host, not device"),
                ("device", "slab:pinned=1M/vmm:x=1", '"x"', "limit"),
                ("device", "vmm:ipc=file", "ipc", '"file"', "none"),
                ("device", "vmm:limit=much", "limit", '"much"', "a size"),
                ("device", "vmm:pinned=much", "pinned", '"much"', "a size"),
                ("device", "cuda:free=now", "free", '"now"', "sync"),
                ("device", "slab/vmm:free=event", "free", '"event"', "wait"),
                ("device", "vmm:ipc=none,ipc=none", "ipc", "twice"),
                ("kernel", "vmm", "vmm", "device, not kernel"),
                ("kernel", "slab:free=event/vmm", '"free"', "capacity")):
            variable = "GPUALLOC_" + place.upper()
            self.refused(self.gpualloc("run", f"--{place}={spec}", "true"), 2, f"--{place}: ",
                         *parts)
            self.refused(self.gpualloc("run", "true", env={variable: spec}), 2, f"{variable}: ",
                         *parts)
        for place in ("device", "kernel"):
            for strict in ([], ["--strict"]):
                self.refused(self.gpualloc("run", f"--{place}=nonesuch", *strict, "true"), 2,
                             f"--{place}: ", '"nonesuch"', "known: ")
            self.refused(self.gpualloc("run", f"--{place}=", "true"), 2, "the name of a backend")

    def test_options_of_the_preload(self) -> None:
        for spec in ("vmm:free=event,limit=1G,pinned=1M,ipc=none", "vmm:free=now",
                     "async:free=order", "slab:limit=none/vmm",
                     "slab:free=sync,ipc=handle/vmm:cache=1G"):
            self.assertEqual(spec, self.variable("GPUALLOC_DEVICE", f"--device={spec}"))

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
        self.make("script", "#!/nonesuch/sh -x\n", 0o755)
        self.make("nested", f"#! {self.folder}/script\n", 0o755)
        self.make("closed", f"#!{trace}\n", 0o755)
        source = self.make("main.c", "int main(void) { return 0; }\n", 0o644)
        subprocess.run(["cc", "-Wl,--dynamic-linker=/nonesuch/ld.so", "-o",
                        self.folder / "program", source], check=True)
        for program, status in (("nonesuch-program", 127), ("./script", 127), ("./nested", 127),
                                ("./program", 127), ("./closed", 126)):
            answer = self.gpualloc("run", "--trace", trace, program, env=PLAIN_PATH)
            self.refused(answer, status, program)
            self.assertEqual(b"GATRACE\0 and more", trace.read_bytes(), program)

    def test_interpreters_that_run(self) -> None:
        """In quotes, which the kernel leaves, without a line's end, and behind another script."""
        quoted = self.folder / "a'b\"c"
        quoted.symlink_to("/bin/sh")
        self.make("end", "#!/bin/true", 0o755)
        self.make("quoted", f"#!{quoted}\nexit 0\n", 0o755)
        self.make("long", f"#!{self.folder}/{'x' * 300}\nexit 0\n", 0o755) # then sh runs it
        self.make("none", "#!\nexit 0\n", 0o755)
        self.make("nested", f"#! {self.folder}/quoted x\n", 0o755)
        for program in ("end", "quoted", "long", "none", "nested"):
            answer = self.gpualloc("run", "--strict", f"./{program}")
            self.assertEqual((0, ""), (answer.status, answer.err), program)


@unittest.skipIf(command.SANITIZED, "a sanitizer takes its own time to start")
class Cost(RunTest):
    def test_start(self) -> None:
        """Of processor time, which other processes disturb little: below 5 ms."""
        def milliseconds(*args: str) -> float:
            def once() -> float:
                pid = os.posix_spawn(args[0], args, command.CLEAN)
                _, status, used = os.wait4(pid, 0)
                self.assertEqual(0, status)
                return (used.ru_utime + used.ru_stime) * 1000
            return statistics.median(once() for _ in range(21))

        run = milliseconds(command.BINARY, "run", "/bin/true")
        self.assertLess(run - milliseconds("/bin/true"), 5)


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

    def test_trace_of_a_running_program(self) -> None:
        """The blocks that are live now, but for the last 127 records of the thread."""
        program = ("import sys; held = [bytearray(1000003) for _ in range(7)]; "
                   "more = [bytearray(5000) for _ in range(200)]; print(len(held), flush=True); "
                   "sys.stdin.read()")
        with subprocess.Popen([command.BINARY, "run", "--trace=t", "--", self.PROGRAM[0], "-S",
                               "-c", program], cwd=self.folder, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, env=command.CLEAN | command.SETTINGS
                              ) as process:
            assert process.stdin and process.stdout
            self.assertEqual(b"7\n", process.stdout.readline())
            answer = self.gpualloc("trace", "t")
            process.stdin.close()
            self.assertEqual(0, process.wait(timeout=60))
        self.assertEqual((0, ""), (answer.status, answer.err))
        live = re.search(r"never freed +(\d+) bytes", answer.out)
        self.assertGreater(int(live.group(1)), 7 * 1000003)
        after = re.search(r"never freed +(\d+) bytes", self.gpualloc("trace", "t").out)
        self.assertLess(int(after.group(1)), 7 * 1000003)

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


if __name__ == "__main__":
    command.main()
