# SPDX-License-Identifier: MIT
import ctypes


class Device:
    def __init__(self, number):
        self.id, self.primary_context = number, None

    def get_primary_context(self):
        self.primary_context = self.primary_context or Context(self)
        return self.primary_context


class Context:
    """It takes the memory manager once."""

    def __init__(self, device):
        library, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        assert not library.cuInit(0)
        assert not library.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device.id)
        assert not library.cuCtxPushCurrent_v2(handle)
        self.device = device
        self.memory_manager = memory_manager and memory_manager(context=self)


class Driver:
    def __init__(self):
        self.devices = {}

    def get_device(self, number):
        return self.devices.setdefault(number, Device(number))

    def list_devices(self):
        return list(self.devices.values())


driver = Driver()
memory_manager = None
