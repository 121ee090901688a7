# SPDX-License-Identifier: MIT
"""A stand-in for RMM."""

import types


class Stream:
    def __cuda_stream__(self):
        return (0, 0)


class CallbackMemoryResource:
    def __init__(self, allocate, deallocate):
        self.allocate, self.deallocate = allocate, deallocate


resources = {}


class DeviceBuffer:
    def __init__(self, size):
        self.size, self.block = size, 0
        self.block = resources[0].allocate(size, Stream())

    def __del__(self):
        if self.block:
            resources[0].deallocate(self.block, self.size, Stream())


mr = types.SimpleNamespace(CallbackMemoryResource=CallbackMemoryResource,
                           set_per_device_resource=resources.__setitem__)
