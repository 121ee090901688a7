#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CUDA programs whose memory is served by each backend: their calls have the driver's results.
Wrong settings cost a line, and change nothing else."""

import json
import os
import shutil
import struct
import subprocess
import unittest
from pathlib import Path

import support
from driver import LIBCUDA_BETWEEN, LIBCUDA_OLD, Case, alone

MIB = 1 << 20
# The arguments of `serving`: the driver or a heap serves blocks without a stream, and whether these
# are the driver's own.
SPECS = {
    "": ["driver"],
    "cuda": ["driver"],
    "async": ["heap", "plain"],
    "vmm": ["heap"],
    "slab/vmm": ["heap"],
    "slab/cuda": ["driver"],
}
# The arguments of `rdma`: specs whose blocks the driver refuses SYNC_MEMOPS.
REFUSED = {"async": ["context"], "vmm": ["context"], "slab/vmm": ["context"]}


def with_options(spec: str, options: str) -> str:
    first, slash, rest = spec.partition("/")
    return first + (":" + options if options else "") + slash + rest


class Serving(Case):
    def under_each(self, name: str, memory: int = 1024 * MIB, specs: tuple[str, ...] = tuple(SPECS),
                   options: str = "", told: list[str] | None = None, program: str = "serving",
                   **variables: str) -> None:
        for spec in specs:
            with self.subTest(f"{name} {spec or 'without'} {options}"):
                self.passes(program, name, *(told or SPECS[spec]),
                            device=with_options(spec, options), STAND_IN_MEMORY=str(memory),
                            **variables)

    def test_without_the_preload(self) -> None:
        for name in ("blocks", "wrong", "pitch", "questions", "streams", "capture", "contexts"):
            self.passes("serving", name, "driver", preload=False)

    def test_blocks(self) -> None:
        self.under_each("blocks")

    def test_wrong_calls(self) -> None:
        self.under_each("wrong")

    def test_padded_rows(self) -> None:
        self.under_each("pitch")

    def test_questions(self) -> None:
        self.under_each("questions")
        self.under_each("information")

    def test_memory_that_ends(self) -> None:
        self.under_each("exhausted", memory=64 * MIB)

    def test_limit(self) -> None:
        served = ("cuda", "async", "vmm", "slab/vmm")
        self.under_each("exhausted", specs=served, options="limit=32M")

    def test_caches_are_given_up_for_the_drivers_own(self) -> None:
        self.under_each("given_up", memory=64 * MIB, specs=("cuda", "async", "vmm"))

    def test_memory_that_the_host_uses(self) -> None:
        for name in ("blocks", "wrong", "sync_free"):
            self.under_each(name, specs=("managed", "pinned"), told=["heap", "plain"])
        self.under_each("exhausted", specs=("managed", "pinned"), told=["heap", "plain"],
                        options="limit=32M")

    def test_streams(self) -> None:
        self.under_each("streams")

    def test_free_waits_or_not(self) -> None:
        self.under_each("sync_free")
        served = ("async", "vmm")
        self.under_each("sync_free", specs=served, options="free=sync")
        self.under_each("event_free", specs=served, options="free=event")
        self.under_each("sync_free", specs=("cuda", "slab/vmm"), options="free=event")
        self.under_each("event_free", specs=("vmm",), options="free=now")
        self.under_each("event_free", specs=served, options="free=order")
        self.under_each("sync_free", specs=("cuda", "slab/vmm"), options="free=order")

    def test_blocks_in_order(self) -> None:
        """The only difference under free=order is that a block is reused at once."""
        for name in ("blocks", "wrong", "pitch", "questions", "information", "streams", "capture",
                     "reset", "contexts", "forked"):
            self.under_each(name, specs=("async", "vmm", "slab/vmm"), options="free=order")
        self.under_each("exhausted", memory=64 * MIB, specs=("vmm",), options="free=order")
        self.under_each("given_up", memory=64 * MIB, specs=("vmm",), options="free=order")
        self.under_each("in_order", specs=("vmm",), options="free=order")
        for name in ("not_in_order", "not_beside"):
            self.under_each(name, specs=("vmm",), options="free=event")

    def test_calls_of_the_driver(self) -> None:
        """For 1000 cuMemAlloc() and 1000 cuMemFree(), at most; docs/internals/cuda-preload.md."""
        for spec, case, alloc, free in (
                ("vmm", "idle", 1000, 2000), ("vmm", "behind", 1000, 2000),
                ("vmm:free=event", "idle", 1510, 120), ("vmm:free=event", "behind", 1600, 210),
                ("vmm:free=order", "idle", 1000, 230), ("vmm:free=order", "behind", 1000, 210)):
            with self.subTest(f"{spec} {case}"):
                self.passes("costs", case, str(alloc), str(free), device=spec)

    def test_work_of_peers_is_waited_for(self) -> None:
        for options in ("", "free=event", "free=order"):
            self.under_each("peers_wait", specs=("vmm", "cuda", "slab/vmm"), options=options,
                            STAND_IN_DEVICES="2")

    def test_captures(self) -> None:
        self.under_each("capture")

    def test_captures_in_a_context_with_several_references(self) -> None:
        for name in ("captures", "refused", "meanwhile", "reused"):
            self.passes("attached", name, "driver", preload=False)
            for device in ("vmm", "slab/vmm"):
                with self.subTest(f"{name} {device}"):
                    self.passes("attached", name, "heap", device=device)

    def test_reset(self) -> None:
        self.under_each("reset")

    def test_contexts_and_devices(self) -> None:
        self.under_each("contexts")
        self.under_each("two_devices", specs=("", "vmm", "slab/vmm", "cuda"), STAND_IN_DEVICES="2")
        self.under_each("both_are_reached", specs=("", "vmm", "slab/vmm", "cuda"),
                        STAND_IN_DEVICES="2")
        for options in ("", "limit=100M"):
            self.under_each("information_of_each", specs=tuple(SPECS)[1:], options=options,
                            STAND_IN_DEVICES="2")
        self.under_each("one_is_reset", specs=("", "vmm", "slab/vmm", "cuda"), STAND_IN_DEVICES="2")
        self.under_each("two_devices", specs=("async",), STAND_IN_DEVICES="2")

    def test_processes(self) -> None:
        self.under_each("forked")

    def test_threads(self) -> None:
        self.under_each("threads", program="crowds")
        self.under_each("crowd", program="crowds", specs=("", "vmm", "async", "slab/vmm"))

    def test_threads_beside(self) -> None:
        """Forks, captures and resets while other threads allocate and free; one block freed by
        several threads at once."""
        served = ("vmm", "async", "cuda", "slab/vmm")
        names = ("forks", "captures", "contest")
        if support.FIRST:  # a child may find a sanitizer's own locks taken; the rest takes long
            served, names = ("vmm", "async"), ("captures", "contest")
        # Memory freed during a capture is returned to the device only afterwards, and that may be
        # long.
        memory = 64 * 1024 * MIB
        for name in names:
            for options in ("", "free=event", "free=order"):
                self.under_each(name, memory, specs=served, options=options, program="crowds")
        for spec in served:
            with self.subTest(spec):
                self.passes("crowds", "resetting", device=spec, quiet=False)

    def test_fork_in_the_first_request(self) -> None:
        outcome = self.passes("crowds", "fork_first", device="vmm", quiet=False)
        self.assertIn("going on with the driver's own allocator", outcome.stderr)

    @unittest.skipUnless(support.FIRST, "there is no sanitizer")
    def test_what_a_sanitizer_sees(self) -> None:
        """A bug that is planted is reported, and in our library: it is not blind there."""
        options = f"log_path={self.folder}/report"
        self.run_cuda("crowds", "misused", device="vmm", ASAN_OPTIONS=options,
                      TSAN_OPTIONS=options)
        reports = "".join(path.read_text() for path in self.folder.glob("report.*"))
        self.assertRegex(reports, "heap-use-after-free|data race")
        self.assertIn("interpose/cuda/served.c", reports)

    def test_driver_that_fails(self) -> None:
        """Each of its calls fails once: blocks keep their contents, and none is lost."""
        specs = ["", "cuda", "async", "vmm", "vmm:free=event,pinned=8M", "vmm:free=order",
                 "slab/vmm", "slab/cuda"]
        for spec in ["vmm:free=event"] if support.FIRST else specs:  # they take long then
            for name in ("once", "often", "onward", "no_memory"):
                with self.subTest(f"{name} {spec}"):
                    outcome = self.passes("faults", name, device=spec, quiet=False)
                    for line in outcome.stderr.splitlines():
                        self.assertIn("going on with the driver's own allocator", line)

    @alone("malloc is the sanitizer's")
    def test_memory_for_records_that_ends(self) -> None:
        """The preload has no memory for a record: the program gets an error, and no block is
        lost."""
        for spec in ("cuda", "async", "vmm", "vmm:free=event,pinned=8M", "slab/vmm"):
            with self.subTest(spec):
                outcome = self.passes("faults", "no_records", device=spec, quiet=False)
                for line in outcome.stderr.splitlines():
                    self.assertIn("going on with the driver's own allocator", line)

    def test_driver_that_shuts_down(self) -> None:
        """Before the preload's own report or after it, and beside threads that continue to free."""
        for name in ("ending", "ending_early", "ending_busy"):
            self.under_each(name, program="crowds")
            self.under_each(name, program="crowds",
                            GPUALLOC_STATS=str(self.folder / "stats.json"))

    def test_sharing_with_processes(self) -> None:
        self.under_each("ipc", specs=("", "cuda", "async"))
        self.under_each("ipc", specs=("vmm", "async"), options="ipc=compat", told=["driver"])
        outcome = self.passes("serving", "ipc", "heap", quiet=False, device="vmm:ipc=none")
        self.assertEqual(outcome.stderr.count("\n"), 1)
        self.assertIn("ipc=compat", outcome.stderr)

    def test_pinned_memory(self) -> None:
        cases = ("kept", "wrong", "questions", "waits", "reset", "reset_alone", "capture", "forked",
                 "threads")
        for spec in ("vmm:pinned=64M", "async:free=event,pinned=64M", "slab:pinned=64M/vmm"):
            for name in cases:
                with self.subTest(f"{name} {spec}"):
                    self.passes("pinned", name, device=spec)
        for name in ("bounded", "refused"):
            self.passes("pinned", name, device="cuda:pinned=8M", STAND_IN_PINNED=str(16 * MIB))
        for spec in ("", "vmm", "vmm:pinned=none", "vmm:pinned=0"):
            self.passes("pinned", "passed", device=spec)

    def test_handles_of_ours(self) -> None:
        """Blocks of heaps over vmm go to other processes; other heaps leave them to the driver."""
        self.under_each("ipc", specs=("cuda", "async", "slab/cuda"), options="ipc=handle",
                        told=["driver"])
        self.under_each("blocks", specs=("vmm", "slab/vmm"), options="ipc=handle")
        for spec in ("vmm", "vmm:ipc=handle", "vmm:ipc=handle,chunk=2M", "slab:ipc=handle/vmm"):
            for name in ("maps", "both", "resets", "many", "stops", "captures", "ends"):
                with self.subTest(f"{name} {spec}"):
                    self.shares(name, spec)
        for spec in ("vmm:ipc=handle", "slab:ipc=handle/vmm"):
            self.shares("refusals", spec, warns=True)
            self.shares("fails", spec, warns=True)
        self.shares("user", "vmm:ipc=handle", warns=True)
        for importer in ("", "cuda", "async", "vmm", "vmm:ipc=compat"):
            self.shares("maps", "vmm:ipc=handle", importer)

    def shares(self, name: str, spec: str, *importer: str, warns: bool = False) -> None:
        outcome = self.passes("sharing", name, *importer, device=spec, quiet=False)
        if not warns and name != "ends":
            self.assertEqual(outcome.stderr, "")


class NetworkCards(Case):
    def each(self, name: str, *specs: str, says: str = r"\A\Z", **options: str) -> None:
        """Run a case of `rdma` under each spec, which are all of them where none is named."""
        for spec in specs or SPECS:
            with self.subTest(f"{name} {spec or 'without'}"):
                outcome = self.passes("rdma", name, *REFUSED.get(spec, []), device=spec,
                                      quiet=False,
                                      **options)
                self.assertRegex(outcome.stderr, says)

    def test_without_the_preload(self) -> None:
        for name in ("answers", "wrong", "numbers", "flags", "elsewhere", "resets", "pages",
                     "no_pages"):
            self.passes("rdma", name, preload=False)
        self.passes("rdma", "no_cards", preload=False, STAND_IN_NO_RDMA="1")

    def test_answers(self) -> None:
        self.each("answers")
        self.each("wrong")
        self.each("neighbours", "vmm", "slab/vmm", "slab/cuda")
        self.each("numbers", "", "cuda", "vmm", "slab/vmm", "slab/cuda")  # a pool's are the
                                                                          # driver's

    def test_contexts(self) -> None:
        for name in ("flags", "elsewhere", "resets", "forked"):
            self.each(name)
        for name in ("earlier", "captured", "fails"):
            self.each(name, *REFUSED)
        self.each("two_devices", "", "vmm", "slab/vmm", "cuda", STAND_IN_DEVICES="2")

    def test_cards_and_threads(self) -> None:
        self.each("threads", *REFUSED)

    def test_descriptors(self) -> None:
        self.each("pages")
        self.each("pages", "vmm:chunk=2M")  # blocks of several chunks
        self.each("no_pages", "", "cuda", "async")
        pages = r"\Agpualloc: cuMemGetHandleForAddressRange: expected whole pages .*\n\Z"
        self.each("no_pages", "vmm", "slab/vmm", says=pages)

    def test_memory_that_cards_do_not_reach(self) -> None:
        """SYNC_MEMOPS is still possible; a request for a descriptor fails with the reason."""
        why = (r"\Agpualloc: cuMemGetHandleForAddressRange: "
               r"network cards do not reach a block .*\n\Z")
        for spec, cards in (("vmm:rdma=off", {}), ("vmm", {"STAND_IN_NO_RDMA": "1"}),
                            ("slab/vmm:rdma=off", {})):
            with self.subTest(f"{spec} {cards}"):
                self.passes("rdma", "answers", "context", "unreached", device=spec, **cards)
                outcome = self.passes("rdma", "no_cards", device=spec, quiet=False, **cards)
                self.assertRegex(outcome.stderr, why)
        outcome = self.passes("serving", "blocks", "driver", device="vmm:rdma=on", quiet=False,
                              STAND_IN_NO_RDMA="1")
        self.assertRegex(outcome.stderr,
                         r"\Agpualloc: .*network cards.* driver's own allocator\n\Z")

    def test_old_driver(self) -> None:
        self.each("old_driver", "vmm", driver=LIBCUDA_BETWEEN,
                  says=r"\Agpualloc: cuPointerSetAttribute: .* CUDA 12.1 or later\n\Z")


class Settings(Case):
    WRONG = [
        ("bogus", "unknown backend"),
        ("vmm:nosuch=1", "nosuch"),
        ("vmm:limit=0", "limit: expected a size"),
        ("cuda:limit=0", "limit: expected a size"),
        ("vmm:limit=1", "limit: expected"),
        ("cuda:limit=much", "limit: expected a size"),
        ("vmm:ipc=some", "ipc: expected auto, none, compat or handle"),
        ("cuda:free=later", "free: expected sync, event or order"),
        ("cuda:pinned=much", "pinned: expected a size"),
        ("cuda:pinned", "pinned: expected a size"),
        ("vmm:free=later", "free"),
        ("vmm:rdma=yes", "rdma"),
        ("jemalloc", "jemalloc"),
        ("vmm:", "column"),
        ("vmm/ipc=compat", "column"),
    ]

    def test_wrong_specs(self) -> None:
        for spec, part in self.WRONG:
            with self.subTest(spec):
                outcome = self.passes("serving", "blocks", "driver", quiet=False, device=spec)
                self.assertEqual(outcome.stderr.count("\n"), 1, outcome.stderr)
                self.assertTrue(outcome.stderr.startswith("gpualloc: GPUALLOC_DEVICE: "),
                                outcome.stderr)
                self.assertIn(part, outcome.stderr)
                self.assertIn("; going on with the driver's own allocator", outcome.stderr)

    def test_strict(self) -> None:
        for spec, part in self.WRONG:
            with self.subTest(spec):
                outcome = self.run_cuda("serving", "blocks", "driver", device=spec,
                                        GPUALLOC_STRICT="1")
                self.assertEqual((outcome.status, outcome.stdout), (2, ""))
                self.assertIn(part, outcome.stderr)

    def test_options_in_any_order_and_quoted(self) -> None:
        for spec in ("vmm:ipc=none,free=sync,limit=1G", "vmm:chunk=32M,free=sync,cache=auto",
                     'vmm:limit="512M",reserve=1G', "vmm:free=wait"):
            self.passes("serving", "blocks", "heap", device=spec)

    @alone("python3 leaks")
    def test_old_driver(self) -> None:
        """A driver without pools serves no program of the preload; its other functions still
        work."""
        code = ("import ctypes\n"
                "d = ctypes.CDLL('libcuda.so.1')\n"
                "c, p = ctypes.c_void_p(), ctypes.c_uint64()\n"
                "d.cuInit(0), d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\n"
                "d.cuCtxPushCurrent_v2(c)\n"
                "print(d.cuMemAlloc_v2(ctypes.byref(p), 100), d.cuMemFree_v2(p), p.value != 0)")
        outcome = self.passes("/usr/bin/python3", "-c", code, driver=LIBCUDA_OLD, device="vmm",
                              quiet=False)
        self.assertEqual(outcome.stdout, "0 0 True\n")
        self.assertRegex(outcome.stderr, r"\Agpualloc: GPUALLOC_DEVICE: .* older than .*\n\Z")

    def test_driver_of_between(self) -> None:
        """One for CUDA 11.4 is found by the first cuGetProcAddress(), and serves as any other."""
        for name in ("blocks", "wrong", "questions", "streams", "capture", "reset"):
            for device in ("vmm", "async", "cuda"):
                with self.subTest(f"{name} {device}"):
                    self.passes("serving", name, *SPECS[device], device=device,
                                driver=LIBCUDA_BETWEEN, STAND_IN_MEMORY=str(1024 * MIB))

    def test_no_driver(self) -> None:
        outcome = self.run_cuda("serving", "blocks", "heap", driver="", device="vmm")
        self.assertEqual((outcome.status, outcome.stdout), (1, "no driver\n"))

    @alone("its library has to be there")
    def test_rights_of_another_user(self) -> None:
        """The loader leaves us out of a program that runs with these."""
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest(f"{self.folder} is mounted nosuid")
        if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text():
            self.skipTest("this process has given up new rights")
        program = self.folder / "cat"
        shutil.copy("/bin/cat", program)
        try:
            os.chown(program, 65534, -1)
        except PermissionError:
            self.skipTest("only root can give a program to another user")
        for mode, there in ((0o755, True), (0o4755, False)):
            program.chmod(mode)
            self.folder.chmod(0o755)
            outcome = self.run_cuda(str(program), "/proc/self/maps", device="vmm")
            self.assertEqual(outcome.status, 0, outcome.stderr)
            self.assertEqual("libgpualloc-cuda.so" in outcome.stdout, there)

    def test_spec_is_nobodys_business_without_cuda(self) -> None:
        outcome = support.run("/bin/true", environment={"GPUALLOC_DEVICE": "bogus",
                                                        "GPUALLOC_STRICT": "1"})
        self.assertEqual((outcome.status, outcome.stderr), (0, ""))


class Command(Case):
    @alone("its library has to come first")
    def test_run(self) -> None:
        """`gpualloc run --device` sets all of it up."""
        path = self.folder / "stats.json"
        program = str(support.PROGRAMS / "serving")
        self.passes(os.environ["GA_COMMAND"], "run", "--device=vmm:limit=500M", f"--stats={path}",
                    "--", program, "blocks", "heap", preload=False)
        self.assertEqual(self.calls(path)["cuMemAlloc_v2"], 600)


class Records(Case):
    RECORD = struct.Struct("<QQQQQIBBBb")  # trace/format.h

    def reports(self, path: Path) -> list[dict]:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def test_statistics(self) -> None:
        path = self.folder / "stats.json"
        self.passes("serving", "blocks", "heap", device="vmm", GPUALLOC_STATS=str(path))
        calls = self.calls(path)
        self.assertEqual((calls["cuMemAlloc_v2"], calls["cuMemFree_v2"]), (600, 601))
        [report] = [line for line in self.reports(path) if "calls" in line]
        self.assertEqual((report["program"], report["place"]), ("serving", "device"))
        [heap] = [line for line in self.reports(path) if "spec" in line]
        self.assertEqual((heap["place"], heap["allocs"], heap["frees"]), ("device", 600, 600))
        self.assertTrue(heap["spec"].startswith("vmm:"))

    def test_a_program_that_clears_its_environment(self) -> None:
        """Before its first CUDA call: its memory is served, counted and traced as set."""
        stats, trace = self.folder / "stats.json", self.folder / "trace"
        self.passes("serving", "blocks", "heap", "cleared", device="vmm",
                    GPUALLOC_STATS=str(stats), GPUALLOC_TRACE=str(trace))
        [heap] = [report for report in self.reports(stats) if "spec" in report]
        self.assertEqual("device", heap["place"])
        self.assertIn("/vmm:", heap["spec"])
        self.assertGreater(trace.stat().st_size, 4096)

    def test_statistics_of_a_child(self) -> None:
        path = self.folder / "stats.json"
        self.passes("serving", "reported", "heap", device="vmm", GPUALLOC_STATS=str(path))
        calls = [report["calls"] for report in self.reports(path) if "calls" in report]
        self.assertEqual([(c["cuMemAlloc_v2"], c.get("cuMemFree_v2")) for c in calls],
                         [(1, None), (10, 10)])

    def traced(self, case: str, **variables: str) -> list[tuple]:
        """The records of a case under vmm."""
        path = self.folder / "trace"
        self.passes("serving", case, "heap", device="vmm", GPUALLOC_TRACE=str(path), **variables)
        data = path.read_bytes()
        start = struct.unpack_from("<8sIII", data)[3]
        whole = (len(data) - start) // self.RECORD.size * self.RECORD.size
        return [record for record in self.RECORD.iter_unpack(data[start:start + whole])
                if record[6]]

    def test_trace(self) -> None:
        records = self.traced("streams")
        self.assertGreater(len(records), 500)
        self.assertEqual({record[8:10] for record in records}, {(1, 0)})  # place, device
        self.assertGreater(len({record[4] for record in records}), 2)  # streams

    def test_call_stacks_in_a_trace(self) -> None:
        """Device memory has the stacks of the program's calls, without the preload's functions."""
        self.traced("streams", GPUALLOC_TRACE_STACKS="8")
        done = subprocess.run([os.environ["GA_COMMAND"], "trace", "--folded=blocks",
                               str(self.folder / "trace")], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        lines = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
        self.assertGreater(sum(int(count) for _, count in lines), 250)
        for stack, _ in lines:
            self.assertRegex(stack, r"(^|;)main;")
            self.assertNotRegex(stack, r"(^|;)ga_|libgpualloc")

    def test_trace_of_two_devices(self) -> None:
        records = self.traced("information_of_each", STAND_IN_DEVICES="2")
        self.assertEqual([record[9] for record in records], [0, 0, 1, 1])  # one block of each is
                                                                           # allocated and freed


if __name__ == "__main__":
    support.main()
