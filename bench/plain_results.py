# SPDX-License-Identifier: MIT
"""Results of benchmarks, read for a picture. They may come from elsewhere, and gnuplot obeys what
stands behind a quote or on a line of its own."""

import json
import re


def plain(value: object) -> object:
    """The same, with a question mark for what could end a string or a line of gnuplot's."""
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
    """Whether gnuplot takes the path for the name of a file, and no more."""
    return plain(path) == path and not path.startswith("|")
