#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check the built site: each link within it leads to a file and a place in it, and no page loads
anything from elsewhere.

    scripts/site/check.py FOLDER"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"),
          ("source", "src")}


class Page(HTMLParser):
    """The names and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.names.add(value)
            elif value and ((tag, name) in LOADED or (tag, name) == ("a", "href")):
                self.links.append((value, tag != "a"))


def main() -> int:
    root = Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in root.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link, loaded in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    broken.append(f"{path.relative_to(root)} loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append(f"{path.relative_to(root)}: no file {link}")
            elif parts.fragment and target in pages and (
                    unquote(parts.fragment) not in pages[target].names):
                broken.append(f"{path.relative_to(root)}: no place {link}")
    print("\n".join(broken[:50]) or f"{len(pages)} pages, all links lead somewhere")
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
