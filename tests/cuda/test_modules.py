#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Device code that allocates in kernels, under the preload: served, passed on, and refused with the
reason."""

import json
import os
import unittest
from pathlib import Path

from driver import Case

MODULE = os.environ["GA_MODULE"]
SPEC = os.environ["GA_KERNEL_SPEC"]
UNREAD = ("a module is passed to the driver unread, and keeps CUDA's malloc in kernels if it "
          "allocates: ")
GROWTH = "memory grows between launches only"
REFUSED = "keeps CUDA's malloc in kernels: "


class Served(Case):
    PROGRAM = "modules"

    def served(self, name: str, *said: str, kernel: str = SPEC, **variables: str) -> str:
        """Run a case with GPUALLOC_KERNEL; standard error has all of `said`, and else nothing but
        that the stand-in cannot grow a heap under a kernel."""
        outcome = self.passes(self.PROGRAM, name, "served", quiet=False, GPUALLOC_KERNEL=kernel,
                              **variables)
        lines = [line for line in outcome.stderr.splitlines() if GROWTH not in line]
        self.assertTrue(said or not lines, outcome.stderr)
        for sentence in said:
            self.assertIn(sentence, outcome.stderr)
        return outcome.stderr


class Modules(Served):
    def passed(self, name: str, **variables: str) -> None:
        """Without a heap, the driver gets each image as it is."""
        self.passes("modules", name, "passed", **variables)
        self.passes("modules", name, "passed", GPUALLOC_KERNEL="cuda", **variables)
        self.passes("modules", name, "passed", preload=False, **variables)

    def test_each_way(self) -> None:
        self.served("each_way")
        self.passed("each_way")

    def test_without_malloc(self) -> None:
        self.served("without_malloc")
        self.passed("without_malloc")

    def test_containers(self) -> None:
        self.served("containers")
        self.passed("containers")

    def test_text(self) -> None:
        self.served("text")
        self.passed("text")

    @unittest.skipUnless(os.environ["GA_IMAGES"], "the unit tests, which have them, are not built")
    def test_images_of_nvcc(self) -> None:
        """In each form and compression."""
        self.served("of_nvcc")
        self.passed("of_nvcc")

    def test_ptx_that_the_linker_refuses(self) -> None:
        """The first line of the driver's log."""
        said = self.served("unlinkable", REFUSED + "the driver's linker refuses the PTX: error 999:"
                           " ptxas fatal   : Unresolved\n")
        self.assertEqual(len(said.splitlines()), 1, said)
        self.passed("unlinkable")

    def test_damaged(self) -> None:
        """One warning for all of them."""
        said = self.served("damaged", "passed to the driver unread")
        self.assertEqual(said.count("unread"), 1, said)
        self.assertGreater(self.served("damaged", "unread", GPUALLOC_LOG="info").count("unread"), 7)

    def test_refused_before_any_is_served(self) -> None:
        said = self.served("refused", REFUSED + "cubin for sm_90: expected one that is linked",
                           GPUALLOC_LOG="info")
        self.assertIn("an earlier module of the program keeps it", said)

    def test_the_driver_refuses_the_patch(self) -> None:
        self.served("unloadable", REFUSED + "the driver answers 999",
                    "must not free each other's blocks")
        self.passed("unloadable")

    def test_the_driver_has_no_variable(self) -> None:
        self.served("unfillable", REFUSED + "cuModuleGetGlobal_v2: ",
                    "must not free each other's blocks")

    def test_other_contexts(self) -> None:
        self.served("elsewhere")

    def test_a_second_device(self) -> None:
        self.served("devices", STAND_IN_DEVICES="2")

    def test_mixed(self) -> None:
        """After a module that cannot be served, others are."""
        said = self.served("mixed", REFUSED + "cubin for sm_90: expected one that is linked",
                           "must not free each other's blocks", GPUALLOC_KERNEL_MIXED="allow")
        self.assertEqual(said.count(REFUSED), 1, said)

    def test_during_a_capture(self) -> None:
        self.served("capturing")
        self.passed("capturing")

    def test_reset(self) -> None:
        self.served("reset")
        self.passed("reset")

    def test_a_library_after_a_reset(self) -> None:
        self.served("library_after_reset")
        self.passed("library_after_reset")

    def test_another_context_after_a_reset(self) -> None:
        said = self.served("reset_beside", "kernels of 1 other contexts lose their blocks",
                           "kernels of 2 other contexts lose their blocks")
        self.assertEqual(said.count("lose their blocks"), 2, said)

    def test_a_reference_that_bypassed_us(self) -> None:
        self.served("unknown_holder", STAND_IN_DEVICES="2")

    def test_unload(self) -> None:
        self.served("unload")

    def test_the_driver_refuses_to_unload(self) -> None:
        said = self.served("refused_unload", "kernels of 2 other contexts lose their blocks")
        self.assertEqual(said.count("lose their blocks"), 1, said)
        self.served("refused_unload_without_context")

    def test_many_threads(self) -> None:
        self.served("crowd")

    def test_code_that_the_program_keeps(self) -> None:
        self.served("preserved")
        self.passed("preserved")

    def test_files(self) -> None:
        self.served("fifo", UNREAD + "expected a regular file\n")
        self.served("short_file", UNREAD)

    def test_a_heap_that_cannot_be(self) -> None:
        said = self.passes("modules", "each_way", "passed", quiet=False,
                           GPUALLOC_KERNEL="slab:unit=x/cuda").stderr
        self.assertIn(REFUSED, said)
        self.assertIn("GPUALLOC_KERNEL: slab: unit: expected", said)

    def test_a_newer_architecture(self) -> None:
        """The preload's own PTX is compiled, with the registers that it may use."""
        newer = {"GPUALLOC_KERNEL": SPEC, "STAND_IN_SM": "130", "GPUALLOC_LOG": "info",
                 "GPUALLOC_CACHE": str(self.folder / "cache")}
        outcome = self.passes("ptx", quiet=False, STAND_IN_MODULE=MODULE, **newer)
        self.assertEqual(outcome.stdout, "links 2\noption 0=32\n")
        self.assertIn("is served by", outcome.stderr)
        outcome = self.passes("ptx", quiet=False, STAND_IN_MODULE=MODULE, **newer)
        self.assertEqual(outcome.stdout, "links 0\n")

    def test_a_newer_architecture_whose_code_has_constants(self) -> None:
        outcome = self.run_cuda("ptx", GPUALLOC_KERNEL=SPEC, STAND_IN_SM="130")
        self.assertEqual(outcome.status, 1)
        self.assertIn(REFUSED + "sm_130: expected code of gpualloc without constants",
                      outcome.stderr)

    def test_an_older_architecture(self) -> None:
        outcome = self.run_cuda("ptx", GPUALLOC_KERNEL=SPEC, STAND_IN_SM="70")
        self.assertIn(REFUSED + "fat binary: expected code for sm_70", outcome.stderr)

    def test_strict(self) -> None:
        outcome = self.run_cuda("modules", "refused", "served", GPUALLOC_KERNEL=SPEC,
                                GPUALLOC_STRICT="1")
        self.assertEqual(outcome.status, 2)
        self.assertIn("relocatable", outcome.stderr)

    def test_statistics(self) -> None:
        path = self.folder / "stats.json"
        self.served("each_way", GPUALLOC_STATS=str(path))
        self.served("without_malloc", GPUALLOC_STATS=str(path))
        self.passes("module_rules", "unread_later", "served", quiet=False, GPUALLOC_KERNEL=SPEC,
                    GPUALLOC_STATS=str(path))
        reports = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]
        modules = [report["modules"] for report in reports if "modules" in report]
        self.assertEqual(modules, [{"served": 6, "passed": 0, "refused": 0, "unread": 0},
                                   {"served": 0, "passed": 5, "refused": 0, "unread": 0},
                                   {"served": 2, "passed": 0, "refused": 0, "unread": 1}])


class Contexts(Served):
    """Contexts that come and go, and other threads."""

    PROGRAM = "module_contexts"
    LOST = "kernels of 1 other contexts lose their blocks"

    def test_the_primary_context_goes_while_a_thread_loads(self) -> None:
        self.served("reset_and_load", self.LOST)
        self.served("release_and_load", self.LOST)

    def test_the_primary_context_goes_while_a_thread_launches(self) -> None:
        self.served("reset_and_launch", self.LOST)

    def test_devices_do_not_wait_for_each_other(self) -> None:
        self.served("each_device_alone", STAND_IN_DEVICES="2")

    def test_other_contexts_wait_for_a_launch(self) -> None:
        self.served("lazily", STAND_IN_DEVICES="2")
        self.served("each_launch")

    def test_a_heap_that_cannot_be_at_a_launch(self) -> None:
        """A library is loaded without a context, so its heap opens later."""
        for strict, status in ("0", 1), ("1", 2):
            outcome = self.run_cuda("module_contexts", "without_context", "served",
                                    GPUALLOC_KERNEL="slab:unit=x/cuda", GPUALLOC_STRICT=strict,
                                    STAND_IN_DEVICES="2")
            self.assertEqual(outcome.status, status, outcome.stderr)
            self.assertEqual(outcome.stderr.count("get NULL from malloc: GPUALLOC_KERNEL: slab"), 1)

    def test_without_a_context(self) -> None:
        self.served("without_context", STAND_IN_DEVICES="2")

    def test_where_ptx_is_linked(self) -> None:
        self.served("linked_in_place")
        self.served("linked_without_context", STAND_IN_DEVICES="2")

    def test_a_launch_in_a_capture(self) -> None:
        self.served("launched_in_capture")

    def test_a_thread_loads_while_another_fills(self) -> None:
        self.served("loaded_while_filling")

    def test_a_thread_unloads_while_another_fills(self) -> None:
        self.served("unloaded_while_filling")

    def test_a_thread_unloads_while_another_links(self) -> None:
        self.served("unloaded_while_linking", STAND_IN_SM="130", STAND_IN_MODULE=MODULE)

    def test_the_driver_shuts_down(self) -> None:
        """Quietly: kernels no longer run."""
        self.served("shuts_down")

    def test_fork(self) -> None:
        self.served("forked", self.LOST)

    def test_contexts_that_end_by_early_functions(self) -> None:
        self.served("early_functions")
        self.served("attached", self.LOST)

    def test_contexts_that_end_unseen(self) -> None:
        """Green contexts, and those that end by a call without a hook: nothing is lost."""
        self.served("ended")
        self.served("ended", GPUALLOC_STRICT="1")

    def test_launches_in_green_contexts(self) -> None:
        self.served("green")


class Rules(Served):
    """Code that cannot be read or served."""

    PROGRAM = "module_rules"
    KEEPS = "; other modules have gpualloc's: they must not free each other's blocks\n"

    def not_served(self, name: str, reason: str) -> None:
        """The code is unread, and no other code is served."""
        outcome = self.passes(self.PROGRAM, name, "passed", quiet=False, GPUALLOC_KERNEL=SPEC)
        self.assertEqual(outcome.stderr, f"gpualloc: {UNREAD}{reason}\n"
                         f"gpualloc: a module {REFUSED}an earlier module of the program keeps it\n")
        outcome = self.run_cuda(self.PROGRAM, name, "passed", GPUALLOC_KERNEL=SPEC,
                                GPUALLOC_STRICT="1")
        self.assertEqual(outcome.status, 2, outcome.stderr)

    def test_code_that_cannot_be_read(self) -> None:
        noise = "expected PTX, ELF or a fat binary, got the bytes 42 43 c0 de"
        outcome = self.passes(self.PROGRAM, "unread_first", "passed", quiet=False,
                              GPUALLOC_KERNEL=SPEC)
        self.assertIn(noise + "\n", outcome.stderr)
        self.assertIn(REFUSED + "an earlier module of the program keeps it\n", outcome.stderr)
        self.served("unread_first", noise + self.KEEPS, GPUALLOC_KERNEL_MIXED="allow")
        self.not_served("of_another_kind",
                        "fat binary: expected code for sm_90, got none among 1 entries")
        self.served("unread_later", noise + self.KEEPS)
        outcome = self.run_cuda(self.PROGRAM, "unread_later", GPUALLOC_KERNEL=SPEC,
                                GPUALLOC_STRICT="1")
        self.assertEqual(outcome.status, 2, outcome.stderr)

    def test_code_for_other_devices(self) -> None:
        """Whatever it does, it does not run here."""
        self.served("for_other_devices")

    def test_files_that_cannot_be_read(self) -> None:
        self.not_served("unreadable", "the file cannot be read: Input/output error")
        self.not_served("large", "expected a file of 1 to 1073741824 bytes, got 1073741825")
        self.served("interrupted")
        self.served("missing")

    def test_nothing_is_left(self) -> None:
        for name in ("nothing_is_left", "nothing_is_left_of_a_copy"):
            self.served(name, REFUSED)
        self.served("heap_in_use", REFUSED)

    def test_options_that_are_missing(self) -> None:
        self.served("null_options")

    def test_no_memory_to_link(self) -> None:
        self.served("no_memory_to_link", REFUSED + "the driver's linker refuses the PTX: error 2",
                    STAND_IN_SM="130", STAND_IN_MODULE=MODULE, GPUALLOC_KERNEL_MIXED="allow")

    def test_the_driver_keeps_a_context(self) -> None:
        self.served("refused_reset")
        self.served("refused_release")


class Constructors(Served):
    """Code that is loaded under the lock of the dynamic linker, and by another thread at once."""

    PROGRAM = "constructors"

    def test_code_that_a_constructor_loads(self) -> None:
        self.served("kernels")
        self.served("kernels", GPUALLOC_PLUGINS=os.environ["GA_PLUGIN"])


class Graphs(Served):
    """Launches while contexts are behind."""

    PROGRAM = "module_graphs"

    def test_the_contexts_of_a_graph(self) -> None:
        for name in ("own_contexts", "children"):
            self.served(name, STAND_IN_DEVICES="2")

    def test_each_function_that_instantiates(self) -> None:
        self.served("each_function", "kernels of 1 other contexts lose", STAND_IN_DEVICES="2")

    def test_graphs_of_unknown_contexts(self) -> None:
        self.served("unknown", "kernels of 2 other contexts lose", STAND_IN_DEVICES="2")

    def test_no_memory_at_a_launch(self) -> None:
        """Two lines: that there is none, and that there is again. Launches go on meanwhile."""
        for name in ("for_code", "for_module", "for_heap", "for_one_context"):
            with self.subTest(name):
                said = self.served(name, "get NULL from malloc until there is memory: ",
                                   "are served: there is memory again", STAND_IN_DEVICES="2")
                self.assertEqual(said.count("get NULL"), 1, said)
                self.assertEqual(said.count("memory again"), 1, said)

    def test_no_memory_if_strict(self) -> None:
        outcome = self.run_cuda(self.PROGRAM, "for_heap", GPUALLOC_KERNEL=SPEC,
                                GPUALLOC_STRICT="1", STAND_IN_DEVICES="2")
        self.assertEqual(outcome.status, 2, outcome.stderr)

    def test_programs_without_malloc(self) -> None:
        self.served("not_read")


if __name__ == "__main__":
    unittest.main()
