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


if __name__ == "__main__":
    unittest.main()
