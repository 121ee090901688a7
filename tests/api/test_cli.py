#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command as its users meet it: help, list and check; test_run.py and test_trace.py have the
rest. Set GPUALLOC_BIN to the command."""

import contextlib
import fcntl
import gzip
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import unittest

import command
from command import COMMANDS, PRESENT, REPO, Answer, CommandTest, options_in_help

MAN = REPO / "docs" / "man"


class Help(CommandTest):
    def test_version(self) -> None:
        for args in (["--version"], ["-V"], ["list", "--version"], ["run", "-V"]):
            answer = self.gpualloc(*args)
            self.assertEqual((0, ""), (answer.status, answer.err))
            self.assertRegex(answer.out, r"^gpualloc \d+\.\d+\.\d+\n$")

    def test_ways_to_ask(self) -> None:
        first = self.gpualloc("--help")
        self.assertEqual((0, ""), (first.status, first.err))
        for args in (["-h"], ["-?"], ["help"]):
            self.assertEqual(first.out, self.gpualloc(*args).out)

    def test_names_every_command(self) -> None:
        text = self.gpualloc("--help").out
        for name in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {name} +\S")
        self.assertIn("Examples:", text)

    def test_nothing_said(self) -> None:
        answer = self.gpualloc()
        self.assertEqual((2, ""), (answer.status, answer.out))
        self.assertEqual(self.gpualloc("--help").out, answer.err)

    def test_of_each_command(self) -> None:
        for name in PRESENT:
            text = self.gpualloc(name, "--help").out
            self.assertTrue(text.startswith(f"Usage: gpualloc {name} "), text)
            self.assertEqual(text, self.gpualloc("help", name).out)
            self.assertEqual(text, self.gpualloc(name, "-h").out)
            self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)

    def test_unknown_command(self) -> None:
        for slip, meant in (("lsit", "list"), ("ru", "run"), ("trce", "trace"),
                            ("chekc", "check"), ("benches", "bench"), ("HELP", None),
                            ("x" * 10000, None), ("", None), ("--", None)):
            answer = self.gpualloc(slip)
            if slip == "--":
                self.assertEqual(2, answer.status)
                continue
            expected = f'did you mean "{meant}"?' if meant else "known: run, env, compare, bench"
            self.refused(answer, 2, "unknown command", slip, expected)
            self.refused(self.gpualloc("help", slip), 2, "unknown command", expected)

    def test_control_characters_are_not_shown(self) -> None:
        self.refused(self.gpualloc("\033[31m\nx"), 2, '"?[31m?x"')
        self.refused(self.gpualloc("list", "--hook\ns"), 2, '"--hook?s"; did you mean')

    def test_unknown_option(self) -> None:
        for args in ([], *([name] for name in PRESENT)):
            self.refused(self.gpualloc(*args, "--nonesuch"), 2, "'--nonesuch'")

    def test_misspelt_option(self) -> None:
        for before, slip, behind, meant in (
                ("run", "--hots=slab", "true", "host"), ("run --log=warn", "--satts", "", "stats"),
                ("run", "--stats-childern", "true", "stats-children"), ("", "--hlep", "", "help"),
                ("bench", "--spce=slab", "", "spec"), ("bench same-size", "--josn", "x", "json"),
                ("list", "--hoks", "", "hooks"), ("env", "--unsett", "", "unset"),
                ("compare", "--ruonds", "3 -- true", "rounds"), ("trace x", "--jsn", "", "json"),
                ("replay", "--spek=slab", "x", "spec"), ("check", "--jsom", "", "json"),
                ("bench coalesce", "--rnus", "3", "runs"), ("help", "--usgae", "", "usage")):
            answer = self.gpualloc(*before.split(), slip, *behind.split())
            self.refused(answer, 2, f'unknown option "{slip}"; did you mean "--{meant}"?')
            self.assertEqual(1, answer.err.count("\n"), answer.err)

    def test_options_that_are_not_misspelt(self) -> None:
        """Unlike any, abbreviated, behind "--", the program's, or the value of another one."""
        for words in (["run", "--bad", "true"], ["run", "--ho=nonesuch", "true"],
                      ["run", "--host", "--hots", "true"], ["trace", "--", "--jsn"],
                      ["run", "--host=nonesuch", "true", "--hots"],
                      ["run", "--" + "x" * 10000, "true"]):
            answer = self.gpualloc(*words)
            self.assertIn(answer.status, (1, 2))
            self.assertNotIn("did you mean", answer.err)

    def test_full_disk(self) -> None:
        for args in (["list"], ["list", "--json"], ["--help"], ["--version"]):
            with open("/dev/full", "wb") as full:
                answer = self.gpualloc(*args, stdout=full)
            self.refused(answer, 1, "standard output", "No space left")


class Manual(CommandTest):
    def options_in_manual(self, page: str) -> set[str]:
        text = (MAN / page).read_text()
        return {"-" + name for name in re.findall(r"\bFl (-[a-z][a-z-]*)", text)}

    def test_same_options_as_help(self) -> None:
        for name in PRESENT:
            if name == "help":
                continue
            listed = options_in_help(self.gpualloc(name, "--help").out)
            self.assertGreaterEqual(listed, {"--help", "--usage", "--version"})
            self.assertEqual(listed, self.options_in_manual(f"gpualloc-{name}.1"), name)
        self.assertEqual(options_in_help(self.gpualloc("--help").out),
                         self.options_in_manual("gpualloc.1"))

    def test_names_every_command(self) -> None:
        text = (MAN / "gpualloc.1").read_text()
        for name in COMMANDS:
            self.assertRegex(text, rf"(?m)^\.It Cm {name}\b")

    def test_markup(self) -> None:
        if not shutil.which("groff"):
            self.skipTest("no groff here")
        for page in sorted(MAN.glob("*.1")):
            done = subprocess.run(["groff", "-mdoc", "-Tutf8", "-ww", page], capture_output=True)
            self.assertEqual((0, b""), (done.returncode, done.stderr), page.name)


class List(CommandTest):
    def listed(self, *args: str) -> list[dict]:
        answer = self.gpualloc("list", "--json", *args)
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertEqual(1, answer.out.count("\n"))
        whole = json.loads(answer.out)
        self.assertEqual({"abi", "backends"}, set(whole))
        self.assertEqual(3, whole["abi"])
        return whole["backends"]

    def check_option(self, option: dict) -> None:
        keys = {"name", "type", "default", "help", "expert"}
        if option["type"] == "enum":
            keys |= {"choices"}
            self.assertIn(option["default"], [None, *option["choices"]])
        elif option["type"] == "size" and "choices" in option:
            keys |= {"choices"}
        self.assertEqual(keys, set(option))
        self.assertIsInstance(option["expert"], bool)
        self.assertIn(option["type"], ("size", "bool", "integer", "enum", "string"))
        self.assertTrue(option["default"] is None or isinstance(option["default"], str))
        self.assertTrue(option["name"] and option["help"])

    def test_json_shape(self) -> None:
        backends = self.listed()
        for backend in backends:
            self.assertEqual({"name", "help", "places", "parent", "options"}, set(backend))
            self.assertLessEqual(set(backend["places"]), {"host", "device", "kernel"})
            self.assertTrue(backend["places"])
            self.assertIn(backend["parent"], ("none", "optional", "required"))
            for option in backend["options"]:
                self.check_option(option)
        self.assertLessEqual({"system", "dl", "trace", "null", "fail"},
                             {backend["name"] for backend in backends})

    def test_says_what_is_so(self) -> None:
        by_name = {backend["name"]: backend for backend in self.listed()}
        self.assertEqual(["host"], by_name["system"]["places"])
        self.assertEqual("none", by_name["system"]["parent"])
        self.assertEqual("required", by_name["trace"]["parent"])
        (path,) = by_name["dl"]["options"]
        self.assertEqual(("path", "string", None), (path["name"], path["type"], path["default"]))

    def groups(self, **more: object) -> dict[str, list[str]]:
        """By place, the names in the list."""
        answer = self.gpualloc("list", **more)
        self.assertEqual(0, answer.status)
        self.assertTrue(all(len(line) <= 80 for line in answer.out.splitlines()), answer.out)
        *groups, _ = answer.out.split("\n\n")
        return {group.split(":")[0].lower(): re.findall(r"(?m)^  (\S+)", group)
                for group in groups}

    def test_by_place(self) -> None:
        groups = self.groups()
        self.assertEqual(["host", "device", "kernel"], list(groups))
        for backend in self.listed():
            name = backend["name"] + ("/" if backend["parent"] == "required" else "")
            for place, names in groups.items():
                self.assertEqual(place in backend["places"] and name not in ("null", "fail/"),
                                 name in names, (place, name))
        self.assertTrue(all(len(names) == len(set(names)) for names in groups.values()))

    def test_by_place_says_where_to_begin(self) -> None:
        text = self.gpualloc("list").out
        known = {backend["name"] for backend in self.listed()}
        begin = re.findall(r"(?m)^[A-Z]+: .* Begin with (\S+)\.$", text)
        self.assertEqual(3, len(begin))
        self.assertLessEqual({name for spec in begin for name in spec.split("/")}, known)
        self.assertIn("docs/guide/choose.md", text)
        self.assertTrue((REPO / "docs/guide/choose.md").is_file())

    def test_a_description_is_one_line(self) -> None:
        doubles = ("null", "fail")
        self.assertEqual({}, {backend["name"]: backend["help"] for backend in self.listed()
                              if len(backend["help"]) > 65 and backend["name"] not in doubles})

    def test_table_has_the_same(self) -> None:
        text = self.gpualloc("list", "--all").out
        for backend in self.listed():
            row = re.search(rf"(?m)^{backend['name']} .*$", text)
            self.assertIsNotNone(row, backend["name"])
            for word in (*backend["places"], backend["parent"], backend["help"]):
                self.assertIn(word, row.group())
            for option in backend["options"]:
                self.assertRegex(text, rf"(?m)^    {option['name']}\b.*{option['type']}")
        options = [line for line in text.splitlines() if line.startswith("    ")]
        self.assertLessEqual(max(map(len, options)), 100)

    def test_expert_options_are_in_the_whole_list_alone(self) -> None:
        (slab,) = self.listed("slab")
        expert = {option["name"] for option in slab["options"] if option["expert"]}
        self.assertEqual({"preset", "addressing", "blocks"}, expert)
        shown, whole = self.gpualloc("list", "slab").out, self.gpualloc("list", "--all", "slab").out
        for option in slab["options"]:
            row = rf"(?m)^    {option['name']}\b"
            self.assertRegex(whole, row)
            (self.assertNotRegex if option["expert"] else self.assertRegex)(shown, row)
        self.assertEqual('3 expert options are not shown; "gpualloc list --all" shows every one.',
                         shown.splitlines()[-1])
        self.assertNotIn("not shown", whole)
        self.assertNotIn("not shown", self.gpualloc("list", "jemalloc", "system").out)

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_an_expert_option_works_in_a_spec(self) -> None:
        answer = self.gpualloc("run", "--host=slab:addressing=table/system", "--stats=s.json",
                               "true")
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertIn("addressing=table", (self.folder / "s.json").read_text())

    def test_named_ones_in_the_order_named(self) -> None:
        self.assertEqual(["trace", "system"],
                         [backend["name"] for backend in self.listed("trace", "system")])
        text = self.gpualloc("list", "null").out
        self.assertIn("\nnull ", text)
        self.assertNotIn("\nsystem ", text)

    def test_unknown_one(self) -> None:
        self.refused(self.gpualloc("list", "sistem"), 2, '"sistem"', "known: system")
        self.refused(self.gpualloc("list", *["system"] * 65), 2, "at most 64")

    def test_hooks(self) -> None:
        answer = self.gpualloc("list", "--hooks")
        self.assertEqual((0, ""), (answer.status, answer.err))
        table = json.loads(self.gpualloc("list", "--hooks", "--json").out)
        for hook in table["hooks"]:
            self.assertRegex(answer.out, rf"(?m)^{hook['symbol']} +{hook['kind']} ")
        symbols = {hook["symbol"] for hook in table["hooks"]}
        self.assertEqual(len(symbols), len(table["hooks"]))
        self.assertIn("ncclMemAlloc", table["nccl"])
        for symbol in table["nccl"]:
            self.assertIn(symbol, answer.out)
        self.assertLessEqual(set(table["runtime"].values()), symbols)
        self.assertIn("cudaMalloc", table["runtime"])
        self.refused(self.gpualloc("list", "--hooks", "system"), 2, "--hooks")
        self.refused(self.gpualloc("list", "--hooks", "--all"), 2, "--hooks")

    def test_plugin_that_is_missing(self) -> None:
        answer = self.gpualloc("list", "--json", env={"GPUALLOC_PLUGINS": "/nonesuch.so"})
        self.assertEqual(0, answer.status)
        self.assertIn("GPUALLOC_PLUGINS", answer.err)
        json.loads(answer.out)


class Check(CommandTest):
    def test_json(self) -> None:
        answer = self.gpualloc("check", "--json")
        self.assertEqual(0, answer.status, answer.err)
        facts = json.loads(answer.out)
        self.assertEqual(self.gpualloc("--version").out.split()[1], facts["gpualloc"])
        self.assertEqual(len(os.sched_getaffinity(0)), facts["processor"]["usable_cores"])

    def test_table(self) -> None:
        answer = self.gpualloc("check")
        self.assertEqual(0, answer.status, answer.err)
        for word in ("membarrier", "huge pages", "CUDA"):
            self.assertIn(word.lower(), answer.out.lower())

    def test_takes_no_words(self) -> None:
        self.assertEqual(2, self.gpualloc("check", "word").status)


class Bench(CommandTest):
    def test_lists_workloads(self) -> None:
        answer = self.gpualloc("bench", "--list")
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertIn("same-size (host)", answer.out)

    def test_bad_usage(self) -> None:
        for args, part in ((["nonesuch"], "nonesuch"), (["--threads", "0"], "--threads"),
                           (["--size", "1,x"], "--size"), (["--place", "moon"], "moon"),
                           (["--milliseconds", "0"], "--milliseconds"),
                           (["--spec", "sistem"], "sistem"), (["--plot", "x.doc"], "x.doc")):
            self.refused(self.gpualloc("bench", *args), 2, part)

    def on_a_terminal(self, columns: int, *args: str) -> list[str]:
        """The lines that the command prints on a terminal of that width."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        answer = self.gpualloc(*args, stdout=theirs)
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
            while part := terminal.read(4096):  # EIO: the last process has ended
                text += part
        self.assertEqual((0, ""), (answer.status, answer.err))
        return text.decode().replace("\r", "").splitlines()

    def test_wide_tables_on_a_terminal(self) -> None:
        """They are printed in parts, with the columns of threads and sizes in each."""
        args = ["bench", "same-size", "--threads", "1,2", "--size", "64", "--quick", "--rounds",
                "1", "--milliseconds", "1", "--spec", "system", "--spec", "slab/system", "--spec",
                "vmm", "--spec", "hazard/system"]
        whole = self.gpualloc(*args).out.splitlines()
        specs = ["system", "slab/system", "vmm", "hazard/system"]
        for lines, parts in ((whole, [specs]), (self.on_a_terminal(200, *args), [specs]),
                             (self.on_a_terminal(80, *args), [specs[:2], specs[2:]]),
                             (self.on_a_terminal(20, *args), [[spec] for spec in specs])):
            heads = [line.split()[2:] for line in lines if line.startswith("  threads")]
            self.assertEqual(parts, heads)
            rows = [line.split() for line in lines if re.match(r" +[12] +64 ", line)]
            self.assertEqual(["1", "2"] * len(parts), [row[0] for row in rows])
            self.assertEqual([len(part) for part in parts for _ in "12"],
                             [" ".join(row).count("%") for row in rows])  # a spread each

    def test_names_of_pictures_are_no_commands(self) -> None:
        script = self.folder / "script"
        stand_in = self.folder / "gnuplot"
        stand_in.write_text(f"#!/bin/sh\nexec cat >{script}\n")
        stand_in.chmod(0o755)
        path = {"PATH": f"{self.folder}:/usr/bin:/bin"}
        quick = ["bench", "same-size", "--threads", "1", "--size", "64", "--quick",
                 "--rounds", "1", "--spec", "system"]
        answer = self.gpualloc(*quick, "--plot", "|touch made;'.svg", env=path)
        self.assertEqual(0, answer.status, answer.err)
        self.assertIn("set output './|touch made;''.svg'\n", script.read_text())
        answer = self.gpualloc(*quick, "--plot", "x\n!touch made\n.svg", env=path)
        self.assertEqual(2, answer.status)
        os.mkfifo(self.folder / "pipe.svg")
        answer = self.gpualloc(*quick, "--plot", "pipe.svg", env=path, timeout=30)
        self.assertEqual((1, ""), (answer.status, answer.out))

    def test_map(self) -> None:
        file = self.folder / "map.json"
        answer = self.gpualloc("bench", "lfht", "hit", "emptied", "--quick", "--keys", "2K",
                               "--threads",
                               "1,2", "--variant", "FHPA,SNF", "--heap", "slab", "--count",
                               "--json",
                               str(file))
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertIn("lfht-hit: lookups of keys that are there; 2K keys, 2 threads", answer.out)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        shape = "chain=4,chunk=5,root=5,batch=10000"
        self.assertEqual({f"FHPA:{shape}/slab", f"SNF:{shape}/slab"},
                         {one["spec"] for one in lines})
        self.assertEqual({"lfht-hit", "lfht-emptied"}, {one["bench"] for one in lines})
        self.assertEqual({1, 2}, {one["threads"] for one in lines})
        path = [one["value"] for one in lines if one["metric"] == "path" and
                one["spec"].startswith("FHPA") and one["bench"] == "lfht-emptied"]
        self.assertEqual([1, 1], path)  # the root alone
        self.assertTrue(all(one["value"] > 0 for one in lines if one["metric"] == "throughput"))

    @unittest.skipUnless(shutil.which("gnuplot"), "no gnuplot here")
    def test_pictures_of_map(self) -> None:
        file, plot = self.folder / "map.json", REPO / "bench" / "lfht" / "plot.py"
        answer = self.gpualloc("bench", "lfht", "emptied", "reinsert", "--quick", "--keys", "1K",
                               "--threads", "1,2", "--variant", "SNF,CNF", "--heap", "slab",
                               "--heap",
                               "system", "--json", str(file))
        self.assertEqual((0, ""), (answer.status, answer.err))
        tuned = self.folder / "tuned.json"
        answer = self.gpualloc("bench", "lfht", "insert", "emptied", "reinsert", "--quick",
                               "--keys",
                               "1K", "--threads", "1,2", "--variant", "FHPA,INLINE", "--heap",
                               "slab",
                               "--heap", "system", "--tuned", "--json", str(tuned))
        self.assertEqual((0, ""), (answer.status, answer.err))
        done = subprocess.run([sys.executable, plot, file, tuned, self.folder / "figures"],
                              capture_output=True, text=True)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        drawn = {picture.name: picture.read_text()
                 for picture in (self.folder / "figures").iterdir()}
        self.assertEqual({f"figure-{name}.svg" for name in
                          ("5.5-FHPA", "5.5-INLINE", "5.6-slab", "5.6-system", "5.10-slab",
                           "5.10-system", "peers-slab", "peers-system")}, set(drawn))
        for name, text in drawn.items():
            if "5.6" in name:
                for part in ("emptied: throughput", "reinsert: throughput", "SNF", "CNF", "INLINE"):
                    self.assertIn(part, text)
            if "peers" in name:
                for part in ("insert: throughput", "FHPA", "INLINE"):
                    self.assertIn(part, text)
        answer = subprocess.run([sys.executable, plot, os.devnull, self.folder],
                                capture_output=True,
                                text=True)
        self.assertEqual(1, answer.returncode)

    def test_texts_of_results_are_no_commands(self) -> None:
        script = self.folder / "script"
        stand_in = self.folder / "gnuplot"
        stand_in.write_text(f"#!/bin/sh\nexec cat >{script}\n")
        stand_in.chmod(0o755)
        results = self.folder / "results.json"
        results.write_text("".join(json.dumps({
            "bench": "vector-growth", "metric": "resize", "device": "x'\n!touch made\n",
            "spec": "y`id`'",
            "size": 2 << size, "value": 1, "spread": 0}) + "\n" for size in range(20, 24)))
        plot = REPO / "bench" / "arena" / "plot.py"
        for picture, status in (("picture.svg", 0), ("|touch made", 2), ("a\nb.svg", 2)):
            done = subprocess.run([sys.executable, plot, results, picture], cwd=self.folder,
                                  env={"PATH": f"{self.folder}:/usr/bin:/bin"}, capture_output=True,
                                  check=False)
            self.assertEqual(status, done.returncode, done.stderr)
        self.assertIn("doubling, x??!touch made?'", script.read_text())
        self.assertIn("title 'y?id??'", script.read_text())

    def test_bad_usage_of_map(self) -> None:
        for args, part in ((["nonesuch"], "nonesuch"), (["--variant", "FHPB"], "FHPB"),
                           (["--chunk", "9"], "--chunk"), (["--chain", "0"], "--chain"),
                           (["--heap", "sistem"], "sistem"), (["--keys", "2T"], "--keys"),
                           (["--quick", "--peers", "tbb"], "tbb"),
                           (["--quick", "--json", "/nonesuch/x"], "/nonesuch/x")):
            status = 1 if "--json" in args else 2
            self.refused(self.gpualloc("bench", "lfht", *args), status, part)


class BenchSpgemm(CommandTest):
    def bench(self, *args: str, env: dict[str, str] | None = None) -> Answer:
        return self.gpualloc("bench", "spgemm", *args, env=env or {})

    def test_products(self) -> None:
        matrix, file = self.folder / "bidiagonal.mtx", self.folder / "spgemm.json"
        matrix.write_text("%%MatrixMarket matrix coordinate real general\n4 4 7\n"
                          "1 1 1\n1 2 2\n2 2 3\n2 3 4\n3 3 5\n3 4 6\n4 4 7\n")
        answer = self.bench("atmosmodl", "--file", str(matrix), "--scale", "0.001", "--rounds", "3",
                            "--threads", "2", "--check", "--json", str(file))
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertIn("bidiagonal: 4 rows, 7 entries, 12 multiplications", answer.out)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        methods = {name: [one["method"] for one in lines if one["matrix"] == name]
                   for name in ("atmosmodl", "bidiagonal")}
        self.assertEqual(methods["atmosmodl"], methods["bidiagonal"])
        self.assertEqual(["precise", "upper", "growing"], methods["atmosmodl"][:3])
        for one in lines:
            self.assertEqual(("spgemm", "host", "time", "precise", one["matrix"] == "bidiagonal"),
                             tuple(one[key] for key in ("bench", "place", "metric", "baseline",
                                                        "exact")))
            self.assertAlmostEqual(one["gflops"],
                                   2 * one["multiplications"] / one["value"] / 1e6,
                                   delta=1e-4 * one["gflops"])
            self.assertTrue(0 < one["mapped_efficiency"] <= 1 and 0 < one["efficiency"] <= 1)
        self.assertEqual({(4, 7, 12, 9)}, {(one["rows"], one["size"], one["multiplications"],
                                            one["entries"]) for one in lines
                                           if one["matrix"] == "bidiagonal"})

    def test_other_values_and_order(self) -> None:
        file = self.folder / "spgemm.json"
        answer = self.bench("rmat", "--quick", "--scale", "0.001", "--float", "--unsorted",
                            "--check", "--json", str(file))
        self.assertEqual((0, ""), (answer.status, answer.err))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual({("float32", False, False, 1)},
                         {(one["type"], one["sorted"], one["exact"], one["rounds"])
                          for one in lines})

    def test_lists_matrices(self) -> None:
        answer = self.bench("--list")
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertEqual(22, len(answer.out.splitlines()) - 1)

    def test_bad_usage(self) -> None:
        for args, part in ((["nonesuch"], "nonesuch"), (["--scale", "9"], "1e-06 to 8"),
                           (["--scale", "1x"], "1x"), (["--rounds", "0"], "1 to 1000"),
                           (["--threads", "1025"], "1 to 1024"),
                           (["--cusparse", "x.so"], "--device"),
                           (["--device", "--threads", "2"], "--threads 2")):
            self.refused(self.bench(*args), 2, part)

    def test_failures(self) -> None:
        wide = self.folder / "wide.mtx"
        wide.write_text("%%MatrixMarket matrix coordinate real general\n1 2 1\n1 1 1\n")
        for args, part in ((["--file", "none.mtx"], "none.mtx"),
                           (["--quick", "--json", "/nonesuch/x"], "/nonesuch/x"),
                           (["--device"], "no CUDA driver")):
            self.refused(self.bench(*args, env={"GPUALLOC_CUDA_DRIVER": "/nonesuch"}), 1, part)
        answer = self.bench("--file", str(wide))
        self.assertEqual(1, answer.status)
        self.assertIn("1 x 2: expected as many columns as rows", answer.err)


class BenchCoalesce(CommandTest):
    """The programs need a GPU: they are replaced by one that prints lines of a log, selected by
    its argument."""

    PARTS = ["floats", "small", "shapes", "anatomy", "reduce", "broadcast", "alltoall"]
    LOG = REPO / "bench" / "results" / "nvidia-h200" / "coalesce-20261122.jsonl.gz"

    def logged(self, part: str) -> list[str]:
        with gzip.open(self.LOG, "rt") as lines:
            return [line for line in lines if f'"coalesce-{part}' in line][:8]

    def stand_in(self, name: str, body: str) -> dict[str, str]:
        """Make that the program `name`; the environment in which it is found."""
        for part in ("small", "reduce"):
            (self.folder / part).write_text("".join(self.logged(part)))
        program = self.folder / name
        program.write_text(f"#!/bin/sh\necho \"$@\" >>arguments\n{body}\n")
        program.chmod(0o755)
        return {"GPUALLOC_BENCH_DIR": str(self.folder)}

    def coalesce(self, *args: str, env: dict[str, str] | None = None) -> command.Answer:
        return self.gpualloc("bench", "coalesce", *args, env=env or {})

    def test_lists_parts(self) -> None:
        answer = self.coalesce("--list")
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertEqual(self.PARTS,
                         [line.split()[0] for line in answer.out.splitlines()])

    def test_bad_usage(self) -> None:
        for args, part in ((["nonesuch"], "nonesuch"), (["--runs", "0"], "--runs"),
                           (["--runs", "1001"], "1001"), (["--runs", "1,2"], "1,2")):
            self.refused(self.coalesce(*args), 2, part)
        self.refused(self.coalesce("--json", "/nonesuch/x"), 1, "/nonesuch/x")

    def test_no_programs(self) -> None:
        answer = self.coalesce("floats", env={"GPUALLOC_BENCH_DIR": "nonesuch"})
        self.refused(answer, 1, "GPUALLOC_BENCH_DIR", "bench-coalesce-unit", "nonesuch")

    def test_programs_beside_a_moved_command(self) -> None:
        command_path = self.folder / "bin" / "gpualloc"
        command_path.parent.mkdir()
        shutil.copy(command.BINARY, command_path)
        env = {name: value for name, value in os.environ.items() if name != "GPUALLOC_BENCH_DIR"}
        for there in (False, True):
            if there:
                self.stand_in("bench-coalesce-mpi", "cat reduce")
                shutil.move(self.folder / "bench-coalesce-mpi", command_path.parent)
            done = subprocess.run([command_path, "bench", "coalesce", "reduce"], env=env,
                                  capture_output=True, cwd=self.folder, check=False)
            self.assertEqual(0 if there else 1, done.returncode, done.stderr)
            self.assertEqual(not there, b"bench-coalesce-mpi" in done.stderr)

    def test_table_and_lines(self) -> None:
        env = self.stand_in("bench-coalesce-unit", "cat small; echo a word on the side")
        self.stand_in("bench-coalesce-mpi", "cat reduce")
        file = self.folder / "new.json"
        answer = self.coalesce("reduce", "small", "--runs", "3", "--json", str(file), env=env)
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertEqual("--only small --runs 3\n--only reduce --runs 3\n",
                         (self.folder / "arguments").read_text())
        lines = self.logged("small") + self.logged("reduce")
        self.assertEqual("".join(lines), file.read_text())
        rows = answer.out.splitlines()
        self.assertIn("a word on the side", rows)
        rows.remove("a word on the side")
        self.assertEqual(len(lines), len(rows))
        for row, line in zip(rows, map(json.loads, lines)):
            for key in ("bench", "way", "metric", "unit"):
                self.assertIn(f" {line[key]} ", f" {row} ")
            self.assertIn(f"{line['value']:.4g} ({line['p5']:.4g} to {line['p95']:.4g})", row)

    def test_all_parts(self) -> None:
        env = self.stand_in("bench-coalesce-unit", "exit 0")
        self.stand_in("bench-coalesce-mpi", "exit 0")
        self.assertEqual(0, self.coalesce(env=env).status)
        told = (self.folder / "arguments").read_text().splitlines()
        self.assertEqual(self.PARTS,
                         [line.split()[1] for line in told])

    def test_programs_that_fail(self) -> None:
        for body, part in (("echo skipped; exit 77", "no GPU"), ("exit 3", "status 3"),
                           ("kill -9 $$", "signal 9"),
                           ("sed 's/\"failed\": 0/\"failed\": 5/;q' small", "5 threads")):
            env = self.stand_in("bench-coalesce-unit", body)
            answer = self.coalesce("small", env=env)
            self.assertEqual(1, answer.status)
            self.assertIn(part, answer.err)
            self.assertEqual(1, len(answer.err.splitlines()))


if __name__ == "__main__":
    command.main()
