#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that programs free goes back to the device."""

import unittest

from driver import Case


class GivenBack(Case):
    def test_at_once(self) -> None:
        self.passes("given_back", "at_once", preload=False)
        for spec in ("cuda", "vmm:cache=0", "vmm:cache=0,free=event", "async:release=0"):
            with self.subTest(spec):
                self.passes("given_back", "at_once", device=spec)

    def test_after_a_time(self) -> None:
        for spec in ("vmm", "vmm:free=event", "vmm:cache=1G", "async"):
            option = f"{spec}{',' if ':' in spec else ':'}decay=200"
            for name in ("decays", "keeps_what_is_used"):
                with self.subTest(f"{name} {option}"):
                    self.passes("given_back", name, device=option)
        self.passes("given_back", "decays_when_asked", device="vmm:decay=200")

    def test_at_once_by_time(self) -> None:
        for spec in ("vmm:decay=0", "vmm:decay=0,free=event"):
            with self.subTest(spec):
                self.passes("given_back", "at_once", device=spec)

    def test_by_default_not_so_soon(self) -> None:
        for spec in ("vmm", "async", "vmm:decay=-1", "async:decay=-1"):
            with self.subTest(spec):
                self.passes("given_back", "stays", device=spec)


if __name__ == "__main__":
    unittest.main()
