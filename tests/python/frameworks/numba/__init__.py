# SPDX-License-Identifier: MIT
"""A stand-in for Numba."""
