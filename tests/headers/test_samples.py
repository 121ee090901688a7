# SPDX-License-Identifier: MIT
"""The samples of README.md and the pages below docs/ work with an installed tree, and with the
driver for tests, so that commands for devices run without a GPU. samples.py has the rules."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import samples
from samples import Block, Command
from surroundings import BUILD, CC, NVCC, SOURCE, Case, main, quiet_environment
from test_install import meson_command

LIBCUDA = os.environ["TEST_LIBCUDA"]
# Parts of the build that may be absent, by the text of samples that need them.
ABSENT = {text: f"this build has no {text.removeprefix('gpualloc ')}"
          for text, variable in (("jemalloc", "TEST_JEMALLOC"),
                                 ("gpualloc rewrite", "TEST_REWRITE"))
          if not os.environ[variable]}
PAGES = samples.pages(SOURCE)
README = PAGES[0]
CONFORMANCE = "build/tests/conformance/conformance"
# A page that runs one of these takes for granted that the reader has it.
TOOLS = {"nvcc", "cmake", "docker", "mpirun", "torchrun", "xxd", "zstd"}
GIVEN = {"mine.c": "examples/plugin.c",
         "words.c": "examples/link-malloc/words.c",
         "trees.cu": "examples/kernel-malloc/trees.cu"}
# Files that a page takes for granted, too.
WRITTEN = {"train.py": "print(len([bytearray(1000) for _ in range(1000)]))\n",
           "a.mtx": "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 1.5\n2 1 2\n"}
# A benchmark has one short round, and nvcc no optimisation.
SHORT = """
gpualloc() {
    case $1 in
    bench) command gpualloc "$@" --rounds=1 --milliseconds=5 ;;
    *) command gpualloc "$@" ;;
    esac
}
nvcc() { command nvcc --Ofast-compile=max -Xptxas=--suppress-stack-size-warning "$@"; }
"""
# A command's message about what failed, although its status may be 0.
FAILED = r"(?m)ERROR: ld\.so|going on with|^gpualloc \w+: "
COMPILERS = {"c": (*CC, "-x", "c"), "cpp": ("c++", "-std=c++17", "-x", "c++"),
             "cuda": (NVCC, "-x", "cu", "-std=c++17", "--Ofast-compile=max",
                      "-gencode=arch=compute_90,code=compute_90")}


def install(root: Path) -> Path:
    """Install the build as README says, into root/gpualloc with its libraries in lib."""
    subprocess.run([*meson_command(), "install", "-C", BUILD, "--no-rebuild", "--quiet",
                    "--destdir", root / "image"], check=True, stdout=subprocess.DEVNULL)
    [header] = (root / "image").rglob("gpualloc.h")
    [config] = (root / "image").rglob("gpualloc.pc")
    prefix = root / "gpualloc"
    shutil.copytree(config.parents[1], prefix / "lib", symlinks=True)
    shutil.copytree(header.parents[2], prefix, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(root / "image")
    for config in (prefix / "lib/pkgconfig").iterdir():
        text = re.sub(r"(?m)^prefix=.*", f"prefix={prefix}", config.read_text())
        config.write_text(re.sub(r"(?m)^libdir=.*", "libdir=${prefix}/lib", text))
    package = SOURCE / "python/gpualloc"
    if package.is_dir(): # as in the wheel, which has the tree in the package
        shutil.copytree(package, root / "python/gpualloc")
        for part in prefix.iterdir():
            (root / "python/gpualloc" / part.name).symlink_to(part)
    return prefix


def absent(text: str) -> str:
    """Why this build cannot run a sample; empty if it can."""
    return "; ".join(reason for part, reason in ABSENT.items() if part in text)


class Page:
    """A page whose commands have run, in a folder that has the files that the page names."""

    def __init__(self, path: Path, root: Path, prefix: Path) -> None:
        self.folder = root / path.relative_to(SOURCE).with_suffix("")
        self.folder.mkdir(parents=True)
        self.blocks = samples.blocks(path)
        self.prefix = prefix
        self.environment = quiet_environment() | {"HOME": str(root), "GPUALLOC_CACHE": ""}
        self.installed = {
            "PATH": f"{prefix}/bin:{os.environ['PATH']}",
            "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig",
            "PYTHONPATH": f"{root}/python:{SOURCE}/tests/python/frameworks",
            "LD_LIBRARY_PATH": f"{prefix}/lib:{LIBCUDA}"}
        if path != README: # which sets them itself
            self.environment |= self.installed
        self.provide()
        self.run_commands()

    def provide(self) -> None:
        """The files that pages take for granted, among them the programs of README."""
        for name, source in GIVEN.items():
            shutil.copy(SOURCE / source, self.folder / name)
        for name, text in WRITTEN.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        for block in samples.blocks(README) + self.blocks:
            for name in block.names:
                (self.folder / name).write_text(block.source(), encoding="utf-8")
        if any("mine.so" in block.text for block in self.blocks):
            (self.folder / "build").symlink_to(BUILD)
            subprocess.run([*CC, "-shared", "-fPIC", f"-I{self.prefix}/include",
                            SOURCE / "examples/plugin.c", "-o", self.folder / "mine.so"],
                           check=True)
        program = SOURCE / "tests/headers/samples/program.c"
        subprocess.run([*CC, program, "-o", self.folder / "program", "-ldl"], check=True)
        shutil.copy(self.folder / "program", self.folder / "server")

    def run_commands(self) -> None:
        """Run the page's commands in one shell; of blocks that do not run, those that set its
        variables. The output and the status of command N of block B go to B-N.out and B-N."""
        script = [SHORT]
        for block in self.blocks:
            if block.language != "console":
                continue
            for index, command in enumerate(block.commands()):
                if self.skip(block) and not command.text.startswith("export "):
                    continue
                name = f"{block.line}-{index}"
                (self.folder / f"{name}.sh").write_text(command.text, encoding="utf-8")
                script.append(f'eval "$(cat {name}.sh)" >{name}.out 2>&1; echo $? >{name}\n')
        subprocess.run(["bash", "-c", "".join(script)], cwd=self.folder, env=self.environment,
                       stdin=subprocess.DEVNULL, check=True, timeout=300)

    def skip(self, block: Block) -> str:
        """Why a block is not run on this machine; empty if it is."""
        files = [other.text for other in self.blocks
                 if any(name in block.text for name in other.names)]
        reason = block.reason or absent("".join([block.text, *files]))
        if reason or block.language != "console":
            return reason
        for tool in TOOLS & set(re.findall(r"^\$ (?:\w+=\S* )*(\w+)", block.text, re.MULTILINE)):
            if not shutil.which(tool, path=f"{Path(NVCC).parent}:{os.environ['PATH']}"):
                return f"no {tool}"
        if CONFORMANCE in block.text and not (self.folder / CONFORMANCE).exists():
            return "this build has no conformance suite: no Criterion"
        if "gpualloc-kernel" in block.text and not (
                self.prefix / "lib/libgpualloc-kernel.a").exists():
            return "this build has no libgpualloc-kernel.a"
        return ""

    def outcome(self, block: Block, index: int) -> tuple[int, str]:
        name = self.folder / f"{block.line}-{index}"
        return int(name.read_text()), Path(f"{name}.out").read_text(errors="replace")


class Samples(Case):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-samples-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        cls.prefix = install(cls.root)
        cls.page: tuple[Path, Page] | None = None # tests of a page follow each other

    def open_page(self, path: Path) -> Page:
        if not self.page or self.page[0] != path:
            type(self).page = (path, Page(path, self.root, self.prefix))
        return self.page[1]

    def check(self, path: Path, block: Block) -> None:
        page = self.open_page(path)
        if block.language == "console":
            if page.skip(block):
                self.skipTest(page.skip(block))
            for index, command in enumerate(block.commands()):
                self.check_command(command, *page.outcome(block, index),
                                   compared=samples.UNCOMPARED not in block.words)
        elif block.language == "python":
            self.check_python(page, block)
        else:
            self.check_program(page, block)

    def check_command(self, command: Command, status: int, output: str,
                      compared: bool = True) -> None:
        self.assertEqual(0, status, f"{command.text}\n{output}")
        self.assertTrue(command.prints(output) or not compared,
                        f"{command.text}\nprinted:\n{output}\nthe page shows:\n"
                        + "\n".join(command.shown))
        if not command.shown:
            self.assertNotRegex(output, FAILED, command.text)

    def check_python(self, page: Page, block: Block) -> None:
        compile(block.source(), f"line {block.line}", "exec")
        if page.skip(block):
            self.skipTest(f"compiled alone: {page.skip(block)}")
        self.run_in(page, sys.executable, "-c", block.source())

    def check_program(self, page: Page, block: Block) -> None:
        if block.language == "cuda" and not NVCC:
            self.skipTest("no nvcc")
        source = page.folder / f"block-{block.line}"
        source.write_text(block.source(), encoding="utf-8")
        warnings = () if block.language == "cuda" else ("-Wall", "-Wextra", "-Werror",
                                                        "-Wno-unused")
        compiler = (*COMPILERS[block.language], *warnings)
        flags = self.run_in(page, "pkg-config", "--cflags", "gpualloc").split()
        is_program = bool(re.search(r"^int main\(", block.source(), re.MULTILINE))
        if not is_program:
            self.run_in(page, *compiler, *flags, "-c", source, "-o", f"{source}.o")
            return
        libraries = self.run_in(page, "pkg-config", "--libs", "gpualloc").split()
        none = ("-x", "none") if block.language != "cuda" else ()
        self.run_in(page, *compiler, *flags, source, *none, *libraries, "-o", f"{source}.program")
        if page.skip(block):
            self.skipTest(f"compiled alone: {page.skip(block)}")
        self.run_in(page, f"{source}.program")

    def run_in(self, page: Page, *command: object) -> str:
        done = subprocess.run([str(part) for part in command], cwd=page.folder,
                              env=page.environment | page.installed, capture_output=True,
                              text=True, timeout=120)
        told = f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        self.assertEqual(0, done.returncode, told)
        return done.stdout

    def test_a_program_with_the_path_in_it(self) -> None:
        """README's program starts without LD_LIBRARY_PATH if it is linked as README says."""
        page = self.open_page(README)
        [source] = [block for block in page.blocks if "app.c" in block.names]
        if page.skip(source):
            self.skipTest(page.skip(source))
        link = next(line for line in README.read_text().splitlines() if line.startswith("$ cc "))
        [option] = re.findall(r"`(-Wl,-rpath,[^`]*)`", README.read_text())
        environment = page.environment | page.installed
        del environment["LD_LIBRARY_PATH"]
        subprocess.run(["bash", "-ec", f"{link[2:]} {option}\n./app"], cwd=page.folder,
                       env=environment, check=True)


class Marks(unittest.TestCase):
    """The marks of blocks, and commands in the text."""

    def test_languages_and_reasons(self) -> None:
        self.assertEqual([], [f"{path.relative_to(SOURCE)}: {fault}" for path in PAGES
                              for block in samples.blocks(path) for fault in block.faults()])

    def test_commands_in_the_text(self) -> None:
        """The subcommands and options of `gpualloc ...` exist."""
        command = BUILD / "interpose/cli/gpualloc"
        help_of: dict[str, str] = {}
        spans = [(path, span) for path in PAGES
                 for span in samples.inline_commands(path, "gpualloc ")]
        self.assertGreater(len(spans), 10)
        for path, span in spans:
            ours = span.split(" -- ")[0]
            words = ours.split()
            if words[1] == "rewrite" and absent(span):
                continue
            with self.subTest(page=path.name, span=span):
                if words[1].startswith("--"):
                    words.insert(1, "")
                if words[1] not in help_of:
                    done = subprocess.run([command, *filter(None, [words[1]]), "--help"],
                                          capture_output=True, text=True)
                    self.assertEqual(0, done.returncode, done.stderr)
                    help_of[words[1]] = done.stdout
                for option in re.findall(r"--[\w-]+", ours):
                    self.assertIn(option, help_of[words[1]])

    def test_scripts(self) -> None:
        """Those that pages name are there, and have the options, in blocks that do not run, too."""
        spans = [(path, span) for path in PAGES
                 for span in samples.inline_commands(path, "scripts/")]
        spans += [(path, command.text) for path in PAGES for block in samples.blocks(path)
                  if block.language == "console" for command in block.commands()
                  if command.text.startswith("scripts/")]
        self.assertGreater(len(spans), 10)
        for path, span in spans:
            script, *words = span.split()
            with self.subTest(page=path.name, span=span):
                text = (SOURCE / script).read_text(encoding="utf-8")
                for option in (word for word in words if word.startswith("-")):
                    self.assertIn(option, text)


class Rules(Case):
    """samples.py reads blocks as it says, and a sample that is wrong is noticed."""

    def one(self, text: str) -> Block:
        [block] = samples.blocks(self.write("page.md", text))
        return block

    def test_output(self) -> None:
        block = self.one("```console\n$ a \\\n  b\nfirst ... x\n...\nlast\n$ c\n```\n")
        first, second = block.commands()
        self.assertEqual(("a \\\n  b", "c"), (first.text, second.text))
        self.assertTrue(first.prints("first 1 x\n2\n3\nlast\n"))
        self.assertFalse(first.prints("first 1 y\n2\nlast\n"))
        self.assertFalse(first.prints("first 1 x\n2\nlast\nmore\n"))
        self.assertTrue(second.prints("anything"))

    def test_a_block_is_completed(self) -> None:
        block = self.one("<!-- sample\nint main(void)\n{\n...\n}\n-->\n"
                         "```c gpu\n#include <stdio.h>\nputs(\"\");\n```\n")
        self.assertEqual("#include <stdio.h>\nint main(void)\n{\nputs(\"\");\n}\n",
                         block.source())
        self.assertEqual((7, samples.REASONS["gpu"]), (block.line, block.reason))

    def test_unknown_words(self) -> None:
        self.assertEqual([], self.one("```console root gpu\n$ a\n```\n").faults())
        for info in ("console gpus", "bash", "C"):
            self.assertEqual(1, len(self.one(f"```{info}\na\n```\n").faults()), info)

    def test_failures(self) -> None:
        for command, output in (("false", ""), ("echo a", "b\n"),
                                ("echo ERROR: ld.so: object cannot be preloaded", ""),
                                ("echo gpualloc: x; echo gpualloc run: refused", ""),
                                ("echo x: going on with the system allocator", "")):
            block = self.one(f"```console\n$ {command}\n{output}```\n")
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            with self.assertRaises(AssertionError):
                Samples.check_command(self, block.commands()[0], done.returncode, done.stdout)


def add_tests() -> None:
    """A test for each block, named by its page and line."""
    for path in PAGES:
        name = "_".join(path.relative_to(SOURCE).with_suffix("").parts).replace("-", "_")
        for block in samples.blocks(path):
            if block.language in samples.TESTED:
                setattr(Samples, f"test_{name}_{block.line:03}_{block.language}",
                        lambda self, path=path, block=block: self.check(path, block))


if __name__ == "__main__":
    add_tests()
    main()
