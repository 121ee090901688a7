#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run one real, unmodified program by itself, then under every host backend, and compare its
output and files, byte for byte. Under jemalloc it runs once more with statistics, which must
show that it and its children were served.

usage: programs.py PROGRAM
"""

import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SKIP = 77
DEADLINE = 120  # seconds for one process
CLEAN = {key: value for key, value in os.environ.items()
         if not key.startswith(("GPUALLOC_", "GIT_", "PYTHON", "PERL", "NODE_"))
         and key not in ("LD_PRELOAD", "MALLOC_PERTURB_", "LD_LIBRARY_PATH")}


class Trouble(Exception):
    """The program failed, hung, or said something else."""


class Missing(Exception):
    """The program is not installed."""


# ---- running under a backend -----------------------------------------------------------------


class Setup(NamedTuple):
    """A backend to run under; none for the run that the others are compared with."""
    name: str
    host: str = ""
    stats: bool = False


class Runner:
    """Starts processes under a setup, in a folder of the test's own."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup = setup
        self.folder = folder
        self.report = folder / "gpualloc-stats.json"
        self.environment = CLEAN | {"LC_ALL": "C", "TZ": "UTC", "HOME": str(folder)}

    def wrap(self, command: list[str]) -> tuple[list[str], dict[str, str]]:
        """The command and environment for it: through `gpualloc run` where that was built."""
        if not self.setup.host:
            return command, self.environment
        gpualloc = os.environ.get("GA_COMMAND")
        if gpualloc:
            stats = [f"--stats={self.report}", "--stats-children"] if self.setup.stats else []
            return ([gpualloc, "run", f"--host={self.setup.host}", *stats, "--", *command],
                    self.environment)
        stats_file = {"GPUALLOC_STATS": str(self.report)} if self.setup.stats else {}
        return command, self.environment | stats_file | {
            "LD_PRELOAD": os.environ["GA_PRELOAD"], "GPUALLOC_HOST": self.setup.host}

    def start(self, *command: str | Path, **options: object) -> subprocess.Popen[bytes]:
        arguments, environment = self.wrap([str(part) for part in command])
        return subprocess.Popen(arguments, env=environment, cwd=self.folder,
                                start_new_session=True, **options)

    def __call__(self, *command: str | Path, stdin: bytes = b"") -> bytes:
        """The command's output, standard error included; it must exit with 0."""
        process = self.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(stdin, timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Trouble(f"{command[0]} hung: killed after {DEADLINE} s") from None
        if process.returncode:
            raise Trouble(f"{command[0]} ended with {process.returncode}:\n"
                          + output[-3000:].decode(errors="replace"))
        return output


def program(*names: str) -> str:
    """The first of these programs that is installed."""
    for name in names:
        if found := shutil.which(name):
            return found
    raise Missing(f"{names[0]} is not installed")


def checksum(path: Path) -> bytes:
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()


# ---- the programs ------------------------------------------------------------------------------


def python3(run: Runner) -> bytes:
    return run(program("/usr/bin/python3", "python3"), HERE / "work.py")


def python3_tests(run: Runner) -> bytes:
    """Its own tests, with the outcome of each. One class repeats another one's, with select() in
    place of poll(), which makes no difference to an allocator."""
    python = program("/usr/bin/python3", "python3")
    if subprocess.run([python, "-c", "import test.test_threading, test.test_ctypes"],
                      env=CLEAN, stderr=subprocess.DEVNULL, check=False).returncode:
        raise Missing(f"{python} has no test modules (libpython3-testsuite)")
    results = run.folder / "results.xml"
    output = run(python, "-m", "test", "--junit-xml", results, "--ignore",
                 "test.test_subprocess.ProcessTestCaseNoPoll.*", "test_threading",
                 "test_subprocess", "test_ctypes")
    cases = ElementTree.parse(results).getroot().iter("testcase")
    lines = sorted(f"{case.get('name')} {case.get('status')} {case.get('result')} "
                   f"{len(case.findall('skipped'))} skipped" for case in cases)
    if len(lines) < 400 or b"Tests result: SUCCESS" not in output:
        raise Trouble(f"{len(lines)} tests were run:\n" + output[-3000:].decode())
    return "\n".join(lines).encode()


def perl(run: Runner) -> bytes:
    return run(program("perl"), HERE / "work.pl")


def source_text() -> str:
    """A C program with much in it for a compiler to do."""
    functions = "".join(f"""
struct s{i} {{ struct s{i} *next; int values[{i % 9 + 1}]; double weight; }};
static double f{i}(struct s{i} *list, int n)
{{
    double sum = 0;
    for (; list; list = list->next)
        for (int i = 0; i < {i % 9 + 1}; i++)
            switch (list->values[i] % {i % 7 + 2}) {{
            case 0: sum += list->weight * n; break;
            case 1: sum -= list->values[i]; break;
            default: sum += n > {i} ? sum / (n - {i}) : {i}.5;
            }}
    return sum;
}}
double g{i}(int n)
{{
    struct s{i} a = {{0, {{{i}}}, n}}, b = {{&a, {{n}}, {i}}};
    return f{i}(&b, n) + f{i}(&a, {i});
}}""" for i in range(100))
    return functions + "\nint main(void) { return (int)g7(3); }\n"


def gcc(run: Runner) -> bytes:
    """Objects and a linked program, from C and from C++."""
    compiler = program("gcc")
    plus = program("g++")
    (run.folder / "big.c").write_text(source_text())
    (run.folder / "words.cc").write_text(
        "#include <map>\n#include <iostream>\n#include <string>\n"
        "std::map<std::string, int> counts;\n"
        "void count() { for (std::string s; std::cin >> s;) counts[s]++; }\n")
    output = run(compiler, "-O2", "-g", "-Wall", "-c", "big.c", "-o", "big.o")
    output += run(plus, "-O2", "-g", "-c", "words.cc", "-o", "words.o")
    output += run(compiler, "big.o", "-o", "big")
    return output + b"".join(checksum(run.folder / name) for name in ("big.o", "words.o", "big"))


def git(run: Runner) -> bytes:
    """A repository made, changed, packed, cloned and checked."""
    command = program("git")
    for role in ("AUTHOR", "COMMITTER"):
        run.environment |= {f"GIT_{role}_NAME": "Tester", f"GIT_{role}_EMAIL": "tester@localhost",
                            f"GIT_{role}_DATE": "2001-02-03T04:05:06Z"}
    run.environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "2",
                        "GIT_CONFIG_KEY_0": "pack.threads", "GIT_CONFIG_VALUE_0": "1",
                        "GIT_CONFIG_KEY_1": "gc.auto", "GIT_CONFIG_VALUE_1": "0"}

    def do(*arguments: str, where: str = "first") -> bytes:
        return run(command, "-C", where, *arguments)

    first = run.folder / "first"
    first.mkdir()
    output = do("init", "--quiet", "--initial-branch=main")
    for number in range(12):
        for name in range(40):
            folder = first / f"folder{name % 5}"
            folder.mkdir(exist_ok=True)
            lines = (f"line {line} of {name} {'changed' * (line % 50 == number)}\n"
                     for line in range(200))
            (folder / f"file{name}").write_text("".join(lines))
        do("add", ".")
        do("commit", "--quiet", "--message", f"Change {number}")
    output += do("log", "--stat", "--patch", "-3") + do("rev-parse", "HEAD")
    output += do("gc", "--quiet") + do("count-objects", "-v") + do("fsck", "--strict")
    output += run(command, "clone", "--quiet", "--no-local", "first", "second")
    output += do("log", "--format=%H %s", where="second") + do("blame", "folder1/file1")
    return output + do("grep", "--count", "changed", where="second")


def sqlite3(run: Runner) -> bytes:
    output = run(program("sqlite3"), "work.db", stdin=(HERE / "work.sql").read_bytes())
    return output + checksum(run.folder / "work.db")


class Redis:
    """A server at a socket in the folder, and a client outside the test."""

    def __init__(self, run: Runner) -> None:
        self.client = program("redis-cli")
        self.socket = run.folder / "redis.sock"
        self.process = run.start(
            program("redis-server"), "--port", "0", "--unixsocket", self.socket, "--save", "",
            "--enable-debug-command", "yes", "--lazyfree-lazy-user-del", "yes",
            "--dbfilename", "dump.rdb", "--dir", run.folder, "--logfile", run.folder / "redis.log")
        self.log = run.folder / "redis.log"

    def ask(self, *arguments: str, stdin: bytes = b"") -> bytes:
        answer = subprocess.run([self.client, "-s", self.socket, *arguments], input=stdin,
                                capture_output=True, timeout=DEADLINE, env=CLEAN, check=False)
        if answer.returncode or answer.stdout.startswith(b"ERR"):
            raise Trouble(f"redis-cli {arguments}: {answer.stdout!r} {answer.stderr!r}\n"
                          + self.log.read_text())
        return answer.stdout

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        for _ in range(600):
            if self.process.poll() is not None:
                raise Trouble(f"redis-server ended with {self.process.returncode}:\n"
                              + (self.log.read_text() if self.log.exists() else ""))
            if done():
                return
            time.sleep(0.05)
        raise Trouble(f"redis-server: no {what} within 30 s")

    def __enter__(self) -> "Redis":
        self.wait_until(self.socket.exists, "socket")
        self.wait_until(lambda: b"PONG" in self.ask("ping"), "answer")
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the server, politely first."""
        subprocess.run([self.client, "-s", self.socket, "shutdown", "nosave"], env=CLEAN,
                       capture_output=True, timeout=DEADLINE, check=False)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise Trouble("redis-server did not end") from None


def redis_commands() -> bytes:
    commands = []
    for i in range(20_000):
        commands.append(f"SET key:{i} {'v' * (i % 300 + 1)}")
        commands.append(f"HSET hash:{i % 100} field:{i} {i}")
        commands.append(f"ZADD set:{i % 50} {i} member:{i}")
        if i % 3 == 0:
            commands.append(f"APPEND key:{i // 2} more")
        if i % 7 == 0:
            commands.append(f"DEL key:{i // 3}")
    return "\r\n".join(commands).encode() + b"\r\n"


def redis(run: Runner) -> bytes:
    """Load, benchmark, save in a forked child, and load the saved file into a second server."""
    benchmark = program("redis-benchmark")
    with Redis(run) as server:
        output = server.ask("--pipe", stdin=redis_commands()).splitlines()[-1] + b"\n"
        result = run_plain([benchmark, "-s", str(server.socket), "-n", "10000", "-c", "20", "-P",
                            "4", "-q", "-t", "set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100"])
        output += f"{result.count(b'requests per second')} benchmarks\n".encode()
        output += server.ask("llen", "mylist") + server.ask("get", "counter:__rand_int__")
        digest = server.ask("debug", "digest")
        output += server.ask("dbsize") + digest
        server.ask("bgsave")
        server.wait_until(lambda: b"rdb_bgsave_in_progress:0" in server.ask("info", "persistence"),
                          "end of bgsave")
        if b"rdb_last_bgsave_status:ok" not in server.ask("info", "persistence"):
            raise Trouble("the forked child did not save:\n" + server.log.read_text())
    with Redis(run) as server:
        if server.ask("debug", "digest") != digest:
            raise Trouble("what the second server loaded is not what the first one saved")
    return output


def run_plain(command: list[str]) -> bytes:
    return subprocess.run(command, env=CLEAN, check=True, capture_output=True,
                          timeout=DEADLINE).stdout


def node(run: Runner) -> bytes:
    return run(program("node", "nodejs"), HERE / "work.js")


def cplusplus(run: Runner) -> bytes:
    return run(os.environ["GA_FORMS_OF_NEW"])


class Tested(NamedTuple):
    work: Callable[[Runner], bytes]
    served: str             # the name of a process that the statistics must show
    patient: bool = False   # spends its time waiting: runs under all backends at once


PROGRAMS = {
    "python3": Tested(python3, "python3"),
    "python3-tests": Tested(python3_tests, "python3", patient=True),
    "perl": Tested(perl, "perl"),
    "gcc": Tested(gcc, "cc1"),
    "git": Tested(git, "git"),
    "sqlite3": Tested(sqlite3, "sqlite3"),
    "redis": Tested(redis, "redis-server"),
    "node": Tested(node, "node"),
    "c++": Tested(cplusplus, "forms_of_new"),
}


# ---- comparing -----------------------------------------------------------------------------------


def library(name: str) -> str:
    folders = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
    return next((path for folder in folders for path in glob.glob(f"{folder}/{name}")), "")


def setups() -> tuple[list[Setup], list[str]]:
    """The setups to compare, and a sentence for each that this machine has not."""
    found = [Setup("system", "system"), Setup("slab", "slab/system"), Setup("vmm", "vmm"),
             Setup("hazard", "hazard/system"), Setup("hardened", "hardened")]
    lacking = []
    if os.environ.get("GA_JEMALLOC"):
        found += [Setup("jemalloc", "jemalloc"), Setup("jemalloc, stats", "jemalloc", stats=True),
                  Setup("slab over jemalloc", "slab/jemalloc")]
    else:
        lacking.append("jemalloc: not in this build")
    for name, file in (("mimalloc", "libmimalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")):
        if path := library(file):
            found.append(Setup(name, "dl:" + path))
        else:
            lacking.append(f"{name}: {file} is not installed")
    return found, lacking


def check_served(report: Path, name: str) -> None:
    """The statistics show the program, served by jemalloc and not idle."""
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    allocs = [line["allocs"] for line in lines
              if line["program"].startswith(name) and line["spec"].startswith("jemalloc")]
    if not allocs or max(allocs) < 1000:
        raise Trouble(f"the statistics do not show that {name} was served: {lines[:5]}")


def attempt(tested: Tested, setup: Setup, folder: Path) -> bytes | Trouble:
    """The program's results under this setup, or the trouble."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run = Runner(setup, folder)
    try:
        output = tested.work(run)
        if setup.stats:
            check_served(run.report, tested.served)
        return output
    except Trouble as trouble:
        return trouble


def attempts(tested: Tested, found: list[Setup]) -> list[bytes | Trouble]:
    """One after the other in one folder, whose path gets into some outputs; or all at once."""
    with tempfile.TemporaryDirectory(prefix="gpualloc-") as root:
        if not tested.patient:
            return [attempt(tested, setup, Path(root, "work")) for setup in found]
        with ThreadPoolExecutor(len(found)) as pool:
            return list(pool.map(
                lambda pair: attempt(tested, pair[1], Path(root, f"work{pair[0]}")),
                enumerate(found)))


def difference(expected: bytes, got: bytes | Trouble) -> str:
    """The differences; nothing if there are none."""
    if isinstance(got, Trouble) or got == expected:
        return str(got) if got != expected else ""
    pairs = zip(expected.splitlines(), got.splitlines())
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            return f"line {number}: {left[:200]!r} by itself, {right[:200]!r} here"
    return f"{len(expected)} bytes by itself, {len(got)} here"


def main(name: str) -> int:
    found, lacking = setups()
    try:
        expected, *results = attempts(PROGRAMS[name], [Setup("none"), *found])
    except Missing as missing:
        print(f"skipped: {missing}")
        return SKIP
    if isinstance(expected, Trouble):
        print(f"{name} by itself: {expected}")
        return 1
    failed = 0
    for setup, result in zip(found, results):
        trouble = difference(expected, result)
        failed += bool(trouble)
        print(f"{name} under {setup.name}: {trouble or 'the same'}")
    for sentence in lacking:
        print(f"{name} skipped under {sentence}")
    print(f"{len(found) - failed} passed, {failed} failed, {len(lacking)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
        print(f"usage: programs.py {'|'.join(PROGRAMS)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
