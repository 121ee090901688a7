#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the manifest of the Debian packages whose programs bench/rewrite/reach.py counts.

    bench/rewrite/corpus.py FOLDER [--mpi FOLDER]

FOLDER holds the sources of mpich, openmpi, hpcc and netpipe as `apt-get source` unpacks them; a
package that is missing has no row. Writes FOLDER/manifest, and FOLDER/generated/mpitestconf.h in
place of the header that the configuration of MPICH's tests makes. --mpi is the folder of mpi.h,
by default that of libmpich-dev. MPICH's tests are those programs that call malloc() or calloc();
each is counted with its framework (util/mtest.c), but without the reader of options
(util/mtest_common.c)."""

import argparse
import pathlib
import re
import shlex

ALLOCATES = re.compile(r"(?<!\w)(malloc|calloc)\s*\(")
MAIN = re.compile(r"\bmain *\(")
LENIENT = "-Wno-implicit-function-declaration"
CONFIGURED = ("FLOAT__COMPLEX DOUBLE__COMPLEX LONG_DOUBLE__COMPLEX LONG_DOUBLE LONG_LONG _BOOL "
              "MPI_IO MPI_SPAWN MPI_WIN_CREATE GETRUSAGE STRDUP USLEEP DLFCN_H INTTYPES_H "
              "PTHREAD_H STDARG_H STDINT_H STDLIB_H STRINGS_H STRING_H SYS_RESOURCE_H SYS_STAT_H "
              "SYS_TIME_H SYS_TYPES_H UNISTD_H")


def source(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    """The folder NAME-VERSION."""
    found = sorted(one for one in folder.glob(f"{name}-[0-9]*") if one.is_dir())
    return found[-1] if found else None


def text(path: pathlib.Path) -> str:
    return path.read_text(errors="replace")


def programs(folder: pathlib.Path) -> list[tuple[str, list, list[str]]]:
    """Row of the table, files and flags of each program."""
    found = []
    if mpich := source(folder, "mpich"):
        examples = mpich / "examples"
        for one in [*sorted(examples.glob("*.c")), *sorted(examples.glob("developers/*.c"))]:
            found.append(("mpich examples", [one], [LENIENT]))
        tests = mpich / "test/mpi"
        framework = [tests / "util/mtest.c", tests / "util/mtest_single.c"]
        flags = ["-Igenerated", LENIENT, *(f"-I{(tests / one).relative_to(folder)}"
                                           for one in ("include", "dtpools/include"))]
        for one in sorted(tests.rglob("*.c")):
            if one.parent.name != "util" and ALLOCATES.search(text(one)) and MAIN.search(text(one)):
                found.append(("mpich tests", [one, *framework], flags))
    if openmpi := source(folder, "openmpi"):
        for one in ("hello_c", "ring_c", "connectivity_c", "spc_example"):
            found.append(("openmpi examples", [openmpi / f"examples/{one}.c"], []))
    if hpcc := source(folder, "hpcc"):
        files = [one for one in sorted(hpcc.rglob("*.c"))
                 if one.parent.name != "timer" and one.name != "pmatgeninc.c"]
        found.append(("hpcc", files, [f"-I{hpcc.name}/include", f"-I{hpcc.name}/hpl/include"]))
    if netpipe := source(folder, "netpipe"):
        files = [netpipe / "src/netpipe.c", netpipe / "src/mpi.c"]
        found.append(("netpipe", files, ["-DMPI", f"-I{netpipe.name}/src"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mpi", default="/usr/include/x86_64-linux-gnu/mpich")
    of = parser.parse_args()
    lines = [f"{part}: {shlex.join(str(one.relative_to(of.folder)) for one in files)} -- "
             f"{shlex.join([f'-I{of.mpi}', *flags])}" for part, files, flags in programs(of.folder)]
    if not lines:
        parser.error(f"{of.folder}: expected folders as of apt-get source, like mpich-4.0.2")
    generated = of.folder / "generated"
    generated.mkdir(exist_ok=True)
    (generated / "mpitestconf.h").write_text(
        "#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX\n#define POINTERINT_t long\n" +
        "#define SIZEOF_VOID_P 8\n" +
        "".join(f"#define HAVE_{name} 1\n" for name in CONFIGURED.split()))
    (of.folder / "manifest").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
