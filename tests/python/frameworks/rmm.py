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
    """On a device; RMM takes the one that is current."""

    def __init__(self, size, device=0):
        self.size, self.block = size, 0
        self.resource = resources[device]
        self.block = self.resource.allocate(size, Stream())

    def __del__(self):
        if self.block:
            self.resource.deallocate(self.block, self.size, Stream())


mr = types.SimpleNamespace(CallbackMemoryResource=CallbackMemoryResource,
                           set_per_device_resource=resources.__setitem__)
