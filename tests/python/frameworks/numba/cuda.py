# SPDX-License-Identifier: MIT
import abc
import collections
import ctypes
import types

MemoryInfo = collections.namedtuple("MemoryInfo", "free total")
manager = None


class MemoryPointer:
    def __init__(self, context, pointer, size, finalizer):
        self.pointer, self.size, self.finalizer = pointer, size, finalizer

    def __del__(self):
        self.finalizer()


def _construct(self, *, context):
    self.context = context


# A subclass must define all of these, or it makes no object.
BaseCUDAMemoryManager = abc.ABCMeta("BaseCUDAMemoryManager", (), {"__init__": _construct, **{
    name: abc.abstractmethod(lambda self: None)
    for name in ("memalloc", "memhostalloc", "mempin", "initialize", "get_ipc_handle",
                 "get_memory_info", "reset", "defer_cleanup", "interface_version")}})


class HostOnlyCUDAMemoryManager(BaseCUDAMemoryManager):
    """All of these but the ones for device memory."""

    memhostalloc = mempin = reset = defer_cleanup = None


def set_memory_manager(chosen):
    global manager
    dummy = chosen(context=None)
    if dummy.interface_version != 1:
        raise RuntimeError("EMM Plugin interface has version %d" % dummy.interface_version)
    make_context()
    manager = chosen(context=types.SimpleNamespace(device=types.SimpleNamespace(id=0)))


def make_context():
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert not driver.cuInit(0)
    assert not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not driver.cuCtxPushCurrent_v2(context)


def device_array(size):
    return manager.memalloc(size)
