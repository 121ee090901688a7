#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the symbol map of the preload for CUDA programs: the symbols of the hook tables and the two
look-ups. No versions: an unversioned definition serves references to every version.

  exports.py HOOKS_H NCCL_HOOKS_H MAP
"""

import re
import sys

ROW = re.compile(r"X\([A-Z]+, \w+, \d+, (\w+), ")
NCCL_ROW = re.compile(r"X\((nccl\w+), ")


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        symbols = ROW.findall(file.read())
    with open(sys.argv[2], encoding="utf-8") as file:
        symbols += NCCL_ROW.findall(file.read())
    names = ["dlsym", "dlvsym", *symbols]
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.write("{\nglobal:\n" + "".join(f"    {name};\n" for name in names)
                   + "local:\n    *;\n};\n")


main()
