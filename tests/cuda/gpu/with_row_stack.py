#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run a Python program with numpy.row_stack defined: newer versions of NumPy no longer have that
function, and numba-cuda uses it.

  with_row_stack.py PROGRAM [ARGUMENT...]
"""

import runpy
import sys

try:
    import numpy
    numpy.row_stack = numpy.vstack
except ImportError:
    pass
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
