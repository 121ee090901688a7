# SPDX-License-Identifier: MIT
"""`python3 -m gpualloc ...` is the command `gpualloc ...` of this package."""

import os
import sys

from . import command

try:
    if not os.access(command, os.X_OK):  # `python3 -m zipfile` unpacks without permissions
        os.chmod(command, 0o755)
    os.execv(command, ["gpualloc", *sys.argv[1:]])
except OSError as error:
    sys.exit(f"gpualloc: cannot execute {command}: {error.strerror}")
