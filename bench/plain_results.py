# SPDX-License-Identifier: MIT
"""Reads results of benchmarks for a picture. They may come from an untrusted source, and gnuplot
executes text after a quote or on a new line."""

import json
import re


def plain(value: object) -> object:
    """The value, with "?" for each character that could end a gnuplot string or line."""
    if isinstance(value, str):
        return re.sub(r"[\x00-\x1f\x7f'\"`\\]", "?", value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    return value


def read_line(line: str) -> dict:
    """The result that a line of JSON has."""
    return plain(json.loads(line))


def is_plain_path(path: str) -> bool:
    """Whether gnuplot treats the path only as the name of a file."""
    return plain(path) == path and not path.startswith("|")
