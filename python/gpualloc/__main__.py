# SPDX-License-Identifier: MIT
"""`python3 -m gpualloc ...` is the command `gpualloc ...` of this package."""

import os
import sys

from . import Error, _executable

try:
    command = _executable()
    os.execv(command, ["gpualloc", *sys.argv[1:]])
except Error as error:
    sys.exit(f"gpualloc: {error}")
except OSError as error:
    sys.exit(f"gpualloc: cannot execute {command}: {error.strerror}")
