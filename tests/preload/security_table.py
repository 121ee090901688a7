# SPDX-License-Identifier: MIT
"""The tables of docs/security.md."""

from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
WORDS = ("ends", "faults", "reported", "harmless", "not seen", "refused", "ends or faults")


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def names_of(heading: str) -> list[str]:
    """`slab/vmm` of "`slab/vmm`", glibc of "glibc 2.36"; several of names with commas between."""
    return [name.split("`")[1] if "`" in name else name.split()[0]
            for name in heading.split(", ")]


def read(first: str) -> dict[str, dict[str, str]]:
    """The table whose first column after the row names is `first`: column to row to cell."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|")
                 and len(cells_of(line)) > 1 and names_of(cells_of(line)[1])[0] == first)
    columns = [names_of(heading) for heading in cells_of(lines[start])[1:]]
    table: dict[str, dict[str, str]] = {name: {} for names in columns for name in names}
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        row, *cells = cells_of(line)
        for names, cell in zip(columns, cells, strict=True):
            if cell not in WORDS:
                raise ValueError(f"{row}, {names}: {cell!r}; expected one of {WORDS}")
            for name in names:
                table[name][row] = cell
    return table
