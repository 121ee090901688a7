#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the blocks of README that build and install the project (```console build), for .ci/run.

  build_samples.py

Each block runs as README has it, in one copy of the tracked files, and behind it the commands that
compile and start README's program. /etc and /usr/local are copies, too, for the installation. The
build of scripts/quickstart is not optimised and lacks `gpualloc rewrite`, its benchmarks are short,
and there is no compiler for CUDA: the phase for device code has one. The last line is
`N passed, N failed, N skipped`."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import samples
from samples import Block

SOURCE = Path(__file__).resolve().parents[2]
# The root of a name space of its own, which writes to memory. /usr/local may have a compiler for
# CUDA, which is hidden with the rest.
SURROUNDINGS = """
mount -t tmpfs none /usr/local
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc
sudo() { "$@"; }
"""
# In scripts/quickstart, for a third of the time.
SHORT = {"--milliseconds 100": "--milliseconds 1 --rounds 1", "--rounds 5": "--rounds 1",
         '/structures.py"': '/structures.py" 0.1',
         "-Dbuildtype=release": "-Dbuildtype=plain -Drewrite=disabled"}


def copy_tracked(out: Path) -> None:
    """The files as they are, committed or not."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=SOURCE, check=True,
                            capture_output=True, text=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        if (SOURCE / name).exists():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, out / name, follow_symlinks=False)


def prepare(out: Path) -> None:
    """The copy, with the software that scripts/setup has got already."""
    copy_tracked(out)
    (out / ".deps").mkdir()
    for part in (SOURCE / ".deps").glob("*"):
        if part.name != "cuda":
            (out / ".deps" / part.name).symlink_to(part.resolve())
    script = out / "scripts/quickstart"
    text = script.read_text(encoding="utf-8")
    for words, fewer in SHORT.items():
        assert words in text, f"scripts/quickstart has no {words}"
        text = text.replace(words, fewer)
    script.write_text(text, encoding="utf-8")


def program(blocks: list[Block]) -> str:
    """The commands that compile and start README's program, and those that write it."""
    [source] = [block for block in blocks if block.names]
    [commands] = [block for block in blocks if "$ cc " in block.text]
    return "\n".join([f"cat >{source.names[0]} <<'END'", source.source() + "END",
                      *(command.text for command in commands.commands())])


def unshare() -> list[str]:
    return ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]


def run(block: Block, then: str, tree: Path, folder: Path) -> bool:
    commands = "\n".join(command.text for command in block.commands())
    print(f"== README.md, line {block.line}\n{commands}", flush=True)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(folder),
                   "LANG": "C.UTF-8", "PIP_NO_INDEX": "1"}
    script = f"{SURROUNDINGS}cd {tree}\n{commands}\n{then}\ngpualloc --version\n"
    overlay = folder / "overlay"
    overlay.mkdir(exist_ok=True)
    done = subprocess.run([*unshare(), "bash", "-exc", script, "bash", overlay], env=environment,
                          stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    return done.returncode == 0


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([*unshare(), "bash", "-ec", SURROUNDINGS, "bash", folder],
                              stdin=subprocess.DEVNULL).returncode == 0


def main() -> int:
    blocks = samples.blocks(SOURCE / "README.md")
    builds = [block for block in blocks if block.language == "console" and "build" in block.words]
    assert builds, "README.md has no block that builds"
    if not can_mount():
        print(f"0 passed, 0 failed, {len(builds)} skipped")
        return 0
    with tempfile.TemporaryDirectory(prefix="gpualloc-build-") as name:
        folder = Path(name).resolve()
        tree = folder / "gpualloc-tree"
        prepare(tree)
        passed = sum(run(block, program(blocks), tree, folder) for block in builds)
    print(f"{passed} passed, {len(builds) - passed} failed, 0 skipped")
    return int(passed != len(builds))


if __name__ == "__main__":
    sys.exit(main())
