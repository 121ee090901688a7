#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc compare`: programs that take time and memory by the spec that they run on. Set
GPUALLOC_BIN to the command."""

import json
import re
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import command
from command import CLEAN, SETTINGS, Answer, CommandTest
from test_reach import small_program

BASE, AGAIN = "no preload", "no preload, again"
# Takes memory, in MiB, and seconds, each by an expression of the host's spec.
WASTEFUL = """
import os, time
host = os.environ.get("GPUALLOC_HOST")
part = b"x" * ({memory} << 20)
time.sleep({time})
"""


class CompareTest(CommandTest):
    def compare(self, *args: object, **more: object) -> Answer:
        return self.gpualloc("compare", *args, **more)

    def compared(self, *args: object, **more: object) -> Answer:
        answer = self.compare(*args, **more)
        self.assertEqual((0, ""), (answer.status, answer.err))
        return answer

    def shell(self, script: str, *options: object, **more: object) -> Answer:
        return self.compare(*options, "--", "/bin/sh", "-c", script, **more)

    def python(self, memory: str, seconds: str, *options: object) -> tuple[str, dict]:
        """The table, and by row and metric the line of JSON."""
        file = self.folder / "figures.json"
        answer = self.compared("--rounds=3", f"--json={file}", *options, "--", sys.executable,
                               "-c", WASTEFUL.format(memory=memory, time=seconds))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return answer.out, {(line["spec"], line["metric"]): line for line in lines}


class Figures(CompareTest):
    def test_a_faster_spec(self) -> None:
        table, lines = self.python("1", "0 if host == 'system' else 1.5", "--host=system")
        line = lines["system", "wall"]
        self.assertLess(line["ratio"], 0.9)
        self.assertFalse(line["noise"])
        self.assertAlmostEqual(line["ratio"], line["value"] / lines[BASE, "wall"]["value"],
                               delta=0.3)
        self.assertRegex(table, rf"(?m)^Fastest: system \({line['ratio']:.3f} of the time\)$")
        self.assertLess(lines[BASE, "cpu"]["value"], lines[BASE, "wall"]["value"])

    def test_a_slower_spec(self) -> None:
        table, lines = self.python("1", "2 if host == 'system' else 0", "--host=system")
        self.assertGreater(lines["system", "wall"]["ratio"], 1.1)
        self.assertIn("Fastest: no spec; none is better than no preload", table)

    def test_a_smaller_spec(self) -> None:
        table, lines = self.python("0 if host == 'system' else 64", "0", "--host=system",
                                   "--host=slab/system")
        small, equal = lines["system", "peak_rss"], lines["slab/system", "peak_rss"]
        self.assertLess(small["value"], lines[BASE, "peak_rss"]["value"] - 60)
        self.assertFalse(small["noise"])
        self.assertGreater(equal["ratio"], 0.9)
        self.assertRegex(table, r"(?m)^Least memory: system \(0\.\d\d\d of the peak\)$")

    def test_equal_runs_have_a_ratio_of_one(self) -> None:
        _, lines = self.python("64", "0", "--host=slab/system", "--host=slab/system")
        for spec in (BASE, AGAIN):
            self.assertFalse(lines[spec, "wall"]["noise"])
        self.assertEqual(1, lines[BASE, "wall"]["ratio"])
        self.assertAlmostEqual(1, lines[AGAIN, "peak_rss"]["ratio"], delta=0.1)

    def test_few_rounds_prove_nothing(self) -> None:
        answer = self.compared("--rounds=2", "--host=system", "--", sys.executable, "-c",
                               WASTEFUL.format(memory="0 if host else 64", time="0"))
        self.assertRegex(answer.out, r"(?m)^system .*~$")
        self.assertIn("Too few rounds", answer.out)
        self.assertNotIn("Least memory", answer.out)

    def test_table(self) -> None:
        answer = self.compared("--rounds=3", "--", "true")
        lines = answer.out.splitlines()
        self.assertEqual(len(lines), sum(len(line) <= 80 for line in lines), answer.out)
        self.assertTrue(all(line == line.rstrip() for line in lines), answer.out)
        self.assertTrue(answer.out.startswith("true: 3 rounds, in turns."), answer.out)
        rows = [re.split("  +", line)[0] for line in lines if "±" in line and "range" not in line]
        self.assertEqual([BASE, AGAIN, "system"], rows[:3])
        self.assertEqual("slab/system", rows[-1])
        self.assertIn(f'"{BASE}" ran twice in each round', answer.out)

    def test_json(self) -> None:
        file = self.folder / "figures.json"
        self.compared("--rounds=1", "--host=system", f"--json={file}", "--", "/bin/true")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual({"bench", "place", "spec", "device", "driver", "threads", "size",
                          "metric", "unit", "value", "spread", "baseline", "ratio", "date",
                          "commit", "rounds", "noise"}, set(lines[0]))
        self.assertEqual([(spec, metric) for spec in (BASE, AGAIN, "system")
                          for metric in ("wall", "cpu", "peak_rss")],
                         [(line["spec"], line["metric"]) for line in lines])
        self.assertEqual({("true", "host", BASE, 1)},
                         {(line["bench"], line["place"], line["baseline"], line["rounds"])
                          for line in lines})

    def test_a_short_program_has_little_memory(self) -> None:
        """The peak is the program's, and not that of the process that it was forked from."""
        file = self.folder / "figures.json"
        self.compared("--rounds=1", "--host=system", f"--json={file}", "--", "/bin/true")
        peak = json.loads(file.read_text().splitlines()[2])
        self.assertEqual("peak_rss", peak["metric"])
        self.assertLess(peak["value"], 40 if command.SANITIZED else 4)


class Environment(CompareTest):
    def values(self, name: str, *options: object, **more: object) -> list[str]:
        """The variable in each run, the first round's after the run that fills the caches."""
        self.assertEqual(0, self.shell(f'echo "${{{name}-unset}}" >>log', "--rounds=1", *options,
                                       **more).status)
        return (self.folder / "log").read_text().splitlines()

    def test_each_row_has_its_spec(self) -> None:
        self.assertEqual(["unset"] * 3 + ["system", "slab/system"],
                         self.values("GPUALLOC_HOST", "--host=system", "--host", "slab/system"))

    def test_places(self) -> None:
        self.assertEqual(["unset"] * 3 + ["vmm", "unset"],
                         self.values("GPUALLOC_DEVICE", "--device=vmm", "--kernel=slab/vmm"))

    def test_preload(self) -> None:
        values = self.values("LD_PRELOAD", "--host=system")
        self.assertEqual(["unset"] * 3, values[:3])
        self.assertIn(command.PRELOAD, values[3])

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_within_a_run(self) -> None:
        """The base has no preload there either."""
        answer = self.gpualloc("run", "--host=system", "--", command.BINARY, "compare",
                               "--rounds=1", "--host=slab/system", "--", "/bin/sh", "-c",
                               'echo "${GPUALLOC_HOST-unset} ${LD_PRELOAD-unset}" >>log')
        self.assertEqual((0, ""), (answer.status, answer.err))
        values = (self.folder / "log").read_text().splitlines()
        self.assertEqual(["unset unset"] * 3, values[:3])
        self.assertRegex(values[3], rf"^slab/system \S*{command.PRELOAD}$")

    def test_a_program_that_cannot_have_its_heap_fails(self) -> None:
        self.assertEqual(["unset"] * 3 + ["1"], self.values("GPUALLOC_STRICT", "--host=system"))

    @unittest.skipIf(command.SANITIZED, "dl: refuses a process with a sanitizer")
    def test_space_for_libraries(self) -> None:
        """A library needs more thread-local storage: only rows of `dl` may see that."""
        values = self.values("GLIBC_TUNABLES", "--host=system", "--host=dl:libc.so.6")
        self.assertEqual(["unset"] * 4, values[:4])

    def test_no_input(self) -> None:
        answer = self.shell("cat", "--rounds=1", "--host=system", stdin=subprocess.PIPE,
                            timeout=60)
        self.assertEqual((0, ""), (answer.status, answer.err))


class Refusals(CompareTest):
    def test_bad_usage(self) -> None:
        for args, status, parts in (
                ([], 2, ("expected a PROGRAM",)),
                (["--rounds=0", "--", "true"], 2, ("--rounds", '"0"')),
                (["--rounds=many", "--", "true"], 2, ("--rounds", '"many"')),
                (["--rounds=10001", "--", "true"], 2, ("--rounds", "10000")),
                (["--host=sistem", "--", "true"], 2, ("--host", '"sistem"', "known: system")),
                (["--device=a:", "--", "true"], 2, ("--device",)),
                (["--", "nonesuch"], 127, ('"nonesuch"', "No such file")),
                (["--", "/dev/null"], 126, ('"/dev/null"', "denied")),
                ([*["--host=system"] * 33, "--", "true"], 2, ("at most 32 specs",)),
                (["--json=/nonesuch/x", "--host=system", "--", "true"], 1, ("/nonesuch/x",))):
            self.refused(self.compare(*args), status, *parts)

    def test_out_of_reach(self) -> None:
        content = small_program()
        if content is None:
            self.skipTest("no static program for this processor")
        path = self.folder / "static"
        path.write_bytes(content)
        path.chmod(0o755)
        self.refused(self.compare("--", path), 2, "LD_PRELOAD does not reach it", "statically")

    def test_a_program_that_fails(self) -> None:
        answer = self.shell("echo why >&2; exit 3", "--host=system")
        self.assertEqual((1, ""), (answer.status, answer.out))
        self.assertEqual(['why', f'gpualloc compare: "sh" failed under "{BASE}": exit status 3'],
                         answer.err.splitlines())

    def test_a_program_that_fails_on_a_spec(self) -> None:
        answer = self.shell('[ "$GPUALLOC_HOST" != system ] || kill -9 $$', "--host=slab/system",
                            "--host=system")
        self.refused(answer, 1, 'under "system": signal 9')

    def test_other_output(self) -> None:
        script = 'echo "$GPUALLOC_HOST"'
        self.refused(self.shell(script, "--host=system"), 1, 'something else under "system"',
                     "--any-output")
        answer = self.shell(script, "--host=system", "--any-output", "--rounds=1")
        self.assertEqual((0, ""), (answer.status, answer.err))

    def test_long_output_that_differs_at_its_end(self) -> None:
        script = 'head -c 1000000 /dev/zero; echo "$GPUALLOC_HOST"'
        self.refused(self.shell(script, "--host=system"), 1, 'something else under "system"')

    def test_output_that_always_differs(self) -> None:
        self.refused(self.shell("echo $$", "--host=system"), 1, "does not print the same",
                     "--any-output")


class Interrupted(CompareTest):
    def interrupted(self, script: str, runs: int, *signals: int) -> Answer:
        """Send the signals once the script has run so often; it writes its ids to "pids"."""
        pids = self.folder / "pids"
        pids.touch()
        process = subprocess.Popen(
            [command.BINARY, "compare", "--rounds=10000", "--host=system", "--", "/bin/sh", "-c",
             script], env=CLEAN | SETTINGS, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 100
        while pids.read_text().count("\n") < runs and time.monotonic() < deadline:
            time.sleep(0.05)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.5)
        out, err = process.communicate(timeout=60)
        done = Answer(subprocess.CompletedProcess("", process.returncode, out, err))
        for pid in pids.read_text().split():
            self.assertFalse(Path(f"/proc/{pid}").exists(), pid)
        return done

    def test_prints_what_was_measured(self) -> None:
        answer = self.interrupted("echo $$ >>pids; exec sleep 0.1", 8, signal.SIGINT)
        self.assertEqual(128 + signal.SIGINT, answer.status, answer.err)
        rounds = re.search(r"interrupted after (\d+) of 10000 rounds", answer.err)
        self.assertIsNotNone(rounds, answer.err)
        self.assertGreaterEqual(int(rounds.group(1)), 2)
        self.assertTrue(answer.out.startswith(f"sh: {rounds.group(1)} rounds"), answer.out)

    def test_in_the_first_run(self) -> None:
        answer = self.interrupted("echo $$ >>pids; exec sleep 100", 1, signal.SIGTERM)
        self.refused(answer, 128 + signal.SIGTERM, "interrupted after 0 of 10000 rounds")

    def test_a_program_that_goes_on(self) -> None:
        """The second signal kills it."""
        answer = self.interrupted("trap '' TERM; echo $$ >>pids; while :; do sleep 0.1; done", 1,
                                  signal.SIGINT, signal.SIGINT)
        self.refused(answer, 128 + signal.SIGINT, "interrupted after 0")


if __name__ == "__main__":
    command.main()
