#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cache of compiled PTX: what it serves, and everything that it must not serve, with the
reason in the log. The program finds its code patched in each case."""

import concurrent.futures
import os
import shutil
import stat
import subprocess
import time
import unittest
from pathlib import Path

from driver import LIBCUDA, Case

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
UNUSED = " is not used: "
UNSEEN = "unseen"  # the file that counts what was written since the last scan
UNITS = 257  # its size, when a scan is due: 256 units of 64 KiB, and one


class PtxCache(Case):
    def setUp(self) -> None:
        super().setUp()
        self.cache = self.folder / "cache"

    def load(self, *arguments: str, **more: object) -> tuple[int, str]:
        """The number of compilations, and the log."""
        variables = {"GPUALLOC_CACHE": str(self.cache), "GPUALLOC_KERNEL": "slab/vmm",
                     "GPUALLOC_LOG": "info"}
        outcome = self.passes("ptx", *arguments, quiet=False, **(variables | more))
        first = outcome.stdout.splitlines()[0]
        return int(first.removeprefix("links ")), outcome.stderr

    def compiles(self, *arguments: str, why: str = "", **more: object) -> None:
        links, said = self.load(*arguments, **more)
        self.assertEqual(links, 1, said)
        self.assertIn("compiled in ", said)
        self.assertIn(UNUSED + why if why else "", said)
        if not why:
            self.assertNotIn(UNUSED, said)

    def hits(self, *arguments: str, **more: object) -> None:
        links, said = self.load(*arguments, **more)
        self.assertEqual(links, 0, said)
        self.assertIn("compiled before: read in ", said)
        self.assertNotIn(UNUSED, said)

    def files(self) -> list[Path]:
        return sorted(path for path in self.cache.iterdir() if path.name != UNSEEN)

    def entry(self) -> Path:
        """The one file."""
        [path] = self.files()
        return path

    # ---- what is served -----------------------------------------------------------------------

    def test_a_hit(self) -> None:
        self.compiles()
        self.hits()
        self.assertEqual(stat.S_IMODE(self.cache.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(self.entry().stat().st_mode), 0o600)

    def test_all_that_the_result_depends_on(self) -> None:
        self.compiles("a")
        self.compiles("b")
        self.compiles("a", "7=1")  # CU_JIT_OPTIMIZATION_LEVEL
        self.compiles("a", "7=2")
        self.compiles("a", "0=7")  # CU_JIT_MAX_REGISTERS
        self.compiles("a", STAND_IN_SM="91")
        self.compiles("a", "in", "-O1  ")  # in a fat binary, with options
        self.compiles("a", "in", "-O2  ")
        self.compiles("b", "in", "-O2  ")
        self.assertEqual(len(self.files()), 9)
        for arguments in (("a",), ("b",), ("a", "7=1"), ("a", "7=2"), ("a", "0=7"),
                          ("a", "in", "-O1  "), ("a", "in", "-O2  "), ("b", "in", "-O2  ")):
            self.hits(*arguments)
        self.assertEqual(len(self.files()), 9)

    def test_another_driver(self) -> None:
        self.compiles()
        driver = shutil.copytree(LIBCUDA, self.folder / "driver", symlinks=True)
        library = (driver / "libcuda.so.1").resolve()
        self.hits(driver=str(driver))  # the same file
        os.utime(library, ns=(0, library.stat().st_mtime_ns + 1))
        self.compiles(driver=str(driver))
        self.hits()

    def test_options_of_logs_do_not_matter(self) -> None:
        self.compiles()
        self.hits("", "12=1")  # CU_JIT_LOG_VERBOSE

    def test_options_that_are_addresses(self) -> None:
        for _ in range(2):  # CU_JIT_GLOBAL_SYMBOL_COUNT
            self.compiles("", "19=0", why="an option whose value may be an address")
        self.assertFalse(self.cache.exists())

    def test_another_key_of_that_name(self) -> None:
        self.compiles("a")
        first = self.entry()
        self.compiles("b")
        [second] = set(self.files()) - {first}
        shutil.copy(first, second)
        self.compiles("b", why="it is for other PTX")
        self.hits("b")
        self.hits("a")

    # ---- damage -------------------------------------------------------------------------------

    def test_corrupt(self) -> None:
        self.compiles()
        whole = self.entry().read_bytes()
        for at in (0, 8, 16, 24, 32, 40, 700, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[at] ^= 0x40
            self.entry().write_bytes(damaged)
            self.compiles(why="it is damaged")
            self.assertEqual(self.entry().read_bytes(), whole)
        self.hits()

    def test_truncated_or_longer(self) -> None:
        self.compiles()
        whole = self.entry().read_bytes()
        for content in (b"", whole[:7], whole[:32], whole[:len(whole) // 2], whole[:-1],
                        whole + b"\0", b"\0" * len(whole)):
            self.entry().write_bytes(content)
            self.compiles(why="it is damaged")
            self.hits()

    def test_too_large(self) -> None:
        self.compiles()
        os.truncate(self.entry(), 65 << 20)
        self.compiles(why="it is too large")
        self.hits()

    # ---- other processes ----------------------------------------------------------------------

    def test_concurrent_processes(self) -> None:
        """Some find no folder, some no entry, some one; all are served, and one file stays."""
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            found = list(pool.map(lambda _: self.load(), range(24)))
        self.assertTrue(all(UNUSED not in said for _, said in found), found)
        self.entry()
        self.hits()

    def test_concurrent_writers_and_vandals(self) -> None:
        self.compiles()
        name = self.entry()

        def damage() -> None:
            for i in range(60):
                try:
                    os.truncate(name, i * 20)
                    name.unlink()
                except FileNotFoundError:
                    pass
                time.sleep(0.005)

        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            vandal = pool.submit(damage)
            list(pool.map(lambda _: self.load(), range(24)))  # each finds its code patched
            vandal.result()
        self.load()
        self.hits()
        self.entry()

    # ---- folders and files that cannot be trusted ----------------------------------------------

    def refuses(self, why: str, **more: object) -> None:
        """Nothing is read or written."""
        before = self.files() if self.cache.is_dir() else []
        self.compiles(why=why, **more)
        self.assertEqual(self.files() if self.cache.is_dir() else [], before)

    def test_a_folder_of_another_user(self) -> None:
        if not IS_ROOT:
            self.refuses("it belongs to another user", GPUALLOC_CACHE="/usr")
            return
        self.compiles()
        os.chown(self.cache, NOBODY, NOBODY)
        self.refuses("it belongs to another user")

    @unittest.skipUnless(IS_ROOT, "only root can make files of another user")
    def test_an_entry_of_another_user(self) -> None:
        self.compiles()
        os.chown(self.entry(), NOBODY, NOBODY)
        self.compiles(why="it belongs to another user")
        self.assertEqual(self.entry().stat().st_uid, 0)
        self.hits()

    def test_others_can_write(self) -> None:
        self.compiles()
        for mode in 0o770, 0o707, 0o1777:
            self.cache.chmod(mode)
            self.refuses("other users can write to it")
        self.cache.chmod(0o755)
        self.hits()
        self.entry().chmod(0o620)
        self.compiles(why="other users can write to it")
        self.assertEqual(stat.S_IMODE(self.entry().stat().st_mode), 0o600)
        self.hits()

    def test_symbolic_links(self) -> None:
        self.compiles()
        entry, target = self.entry(), self.folder / "target"
        entry.rename(target)
        entry.symlink_to(target)
        before = target.read_bytes()
        self.compiles(why="expected no symbolic link")
        self.assertFalse(entry.is_symlink())
        self.assertEqual(target.read_bytes(), before)
        link = self.folder / "link"
        link.symlink_to(self.cache)
        self.refuses("expected no symbolic link", GPUALLOC_CACHE=str(link))
        self.refuses("expected no symbolic link", GPUALLOC_CACHE=f"{link}//")

    def test_other_kinds(self) -> None:
        self.compiles()
        path = self.entry()
        path.unlink()
        os.mkfifo(path, 0o600)
        self.compiles(why="expected a regular file")  # and does not wait for a writer
        self.hits()
        path.unlink()
        path.mkdir()
        self.refuses("expected a regular file")

    # ---- places -------------------------------------------------------------------------------

    def test_default_places(self) -> None:
        home, other = self.folder / "home", self.folder / "other"
        home.mkdir()
        for caches, where in (("", home / ".cache"), ("x", home / ".cache"), (str(other), other)):
            variables = {"GPUALLOC_CACHE": None, "HOME": str(home), "XDG_CACHE_HOME": caches}
            (self.hits if caches == "x" else self.compiles)(**variables)
            self.hits(**variables)
            self.assertEqual(len(list((where / "gpualloc").glob("*.cubin"))), 1)
            self.assertEqual(stat.S_IMODE(where.stat().st_mode), 0o700)
        for path in "", "home":
            self.compiles(GPUALLOC_CACHE=None, HOME=path, XDG_CACHE_HOME=None)

    def test_no_cache(self) -> None:
        for _ in range(2):
            self.compiles(GPUALLOC_CACHE="", HOME=str(self.folder), XDG_CACHE_HOME=str(self.folder))
        self.assertEqual(list(self.folder.iterdir()), [])
        self.compiles(GPUALLOC_CACHE="relative", why="expected a path that begins with /")
        self.compiles(GPUALLOC_CACHE="/proc/self/no/such", why="No such file or directory")

    def test_quiet(self) -> None:
        self.cache.write_text("")
        links, said = self.load(GPUALLOC_LOG="warn")
        self.assertEqual((links, "PTX" in said), (1, False), said)

    # ---- disks --------------------------------------------------------------------------------

    def test_read_only(self) -> None:
        """A folder that the user cannot write to serves, and takes nothing."""
        self.compiles("a")
        self.folder.chmod(0o755)
        self.cache.chmod(0o500)
        self.addCleanup(self.cache.chmod, 0o700)
        more = {}
        if IS_ROOT:  # those that a mode does not stop
            for path in (self.cache, *self.files()):
                os.chown(path, NOBODY, NOBODY)
            more = {"process": {"user": NOBODY, "group": NOBODY, "extra_groups": []}}
        try:
            self.hits("a", **more)
        except PermissionError:
            self.skipTest("another user cannot run the programs")
        self.compiles("b", why="Permission denied", **more)
        self.assertEqual(len(self.files()), 1)

    def test_a_limit_on_files(self) -> None:
        """Nothing of the file stays, and no signal ends the program."""
        text = "x" * 4000
        links, said = self.load(text, "limited")
        self.assertEqual(links, 2)
        self.assertIn(UNUSED + "File too large", said)
        self.entry()  # the other PTX
        self.compiles(text)
        self.hits(text)

    @unittest.skipUnless(IS_ROOT, "only root can mount")
    def test_a_full_disk(self) -> None:
        self.cache.mkdir(0o700)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=0700", "none",
                                  str(self.cache)], capture_output=True, check=False)
        if mounted.returncode:
            self.skipTest("mount: " + mounted.stderr.decode())
        self.addCleanup(subprocess.run, ["umount", str(self.cache)], check=True)
        self.cache.joinpath("other").write_bytes(bytes(8192))
        self.compiles(why="No space left on device")
        self.assertEqual([path.name for path in self.files()], ["other"])

    def test_the_bound(self) -> None:
        """The least recently used entries go first, and old temporary files, but nothing else."""
        self.compiles("a")
        used = self.entry()
        for i in range(10):
            path = self.cache / f"{i:016x}.cubin"
            path.touch(0o600)
            os.truncate(path, 60 << 20)
            os.utime(path, (1000 + i, 1000 + i))
        os.utime(used, (999, 999))
        foreign = self.cache / "foreign.cubin"
        foreign.touch()
        os.truncate(foreign, 1 << 30)
        os.utime(foreign, (1, 1))
        new, old = (self.cache / f"{i:016x}-1-1.tmp" for i in range(2))
        for path in new, old:
            path.touch()
        os.utime(old, (time.time() - 3700,) * 2)
        self.hits("a")  # so that it is the newest
        os.truncate(self.cache / UNSEEN, UNITS)
        self.compiles("b")
        names = {path.name for path in self.files()}
        kept = {f"{i:016x}.cubin" for i in range(6, 10)}
        self.assertLessEqual(kept | {used.name, foreign.name, new.name}, names)
        self.assertEqual(len(names), len(kept) + 4)
        self.hits("a")
        self.hits("b")

    def crowd(self) -> int:
        """Add files beyond the bound; their number."""
        for i in range(10):
            path = self.cache / f"{i:016x}.cubin"
            path.touch(0o600)
            os.truncate(path, 60 << 20)
            os.utime(path, (1000 + i, 1000 + i))
        return 10

    def counted(self) -> int:
        return (self.cache / UNSEEN).stat().st_size

    def test_scans_are_rare(self) -> None:
        """A writer looks at each file only when enough was written since the last look."""
        self.compiles("a")
        self.assertEqual(self.counted(), 1)
        crowd = self.crowd()
        for i in range(4):
            self.compiles(f"few {i}")
            self.assertEqual((len(self.files()), self.counted()), (crowd + 2 + i, 2 + i))
        os.truncate(self.cache / UNSEEN, UNITS - 1)
        self.compiles("one less")
        self.assertEqual((len(self.files()), self.counted()), (crowd + 6, UNITS))
        self.compiles("due")
        self.assertEqual((len(self.files()), self.counted()), (4 + 7, 1))

    def test_scans_without_a_count(self) -> None:
        """Each writer looks: the file is missing, or none that it can write to."""
        self.compiles("a")
        target = self.folder / "target"
        target.touch()

        def missing(path: Path) -> None:
            path.unlink()

        def link(path: Path) -> None:
            path.unlink()
            path.symlink_to(target)

        def fifo(path: Path) -> None:
            path.unlink()
            os.mkfifo(path, 0o600)

        for replace in missing, link, fifo:
            self.crowd()
            replace(self.cache / UNSEEN)
            self.compiles(replace.__name__)
            self.assertLess(len(self.files()), 10)
        self.assertEqual(target.stat().st_size, 0)


if __name__ == "__main__":
    unittest.main()
