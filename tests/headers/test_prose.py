#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/check-prose finds each kind of violation that is planted."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CHECK = REPO / "scripts" / "check-prose"
FINE = "/* A warp sets the bits of its lanes by one atomic. */\nint a;\n"


def check(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(CHECK), *arguments], capture_output=True, text=True,
                          check=False)


@unittest.skipUnless(shutil.which("git"), "no git")
class Planted(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        subprocess.run(["git", "init", "-q", folder.name], check=True)

    def outcome(self, name: str, text: str) -> tuple[int, str]:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        done = check("--root", str(self.root))
        return done.returncode, done.stdout + done.stderr

    def test_nothing_planted(self) -> None:
        self.assertEqual(0, self.outcome("liballoc/new/a.c", FINE)[0])

    def test_a_long_line(self) -> None:
        for name, text in (("docs/guide.md", "word " * 21), ("scripts/a.py", "# " + "word " * 21),
                           ("liballoc/new/a.c", FINE + "/* " + "word " * 21 + "*/\n")):
            status, said = self.outcome(name, text)
            self.assertEqual(1, status, said)
            self.assertRegex(said, rf"{name}:\d+: \d+ columns")
            (self.root / name).unlink()

    def test_tables_may_be_wide(self) -> None:
        self.assertEqual(0, self.outcome("docs/guide.md", "| " + "word " * 30 + "|\n")[0])

    def test_the_same(self) -> None:
        status, said = self.outcome("liballoc/new/a.c",
                                    FINE + "/* The same, backwards. */\nint b;\n")
        self.assertEqual(1, status, said)
        self.assertIn('liballoc/new/a.c:3: the comment begins with "The same"', said)

    def test_too_many_pronouns(self) -> None:
        status, said = self.outcome(
            "liballoc/new/a.c", FINE + "/* Who finds nothing sleeps. */\n/* What there is. */\n")
        self.assertEqual(1, status, said)
        self.assertIn("liballoc/new/a.c:3: /* Who finds nothing sleeps. */", said)
        self.assertIn("liballoc/new: ", said)

    def test_one_pronoun_is_no_rate(self) -> None:
        self.assertEqual(0, self.outcome("liballoc/new/a.c", "/* What for? */\n")[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
