# SPDX-License-Identifier: MIT
import abc
import collections

from .cudadrv import driver as _driver

MemoryInfo = collections.namedtuple("MemoryInfo", "free total")


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
    dummy = chosen(context=None)
    if dummy.interface_version != 1:
        raise RuntimeError("EMM Plugin interface has version %d" % dummy.interface_version)
    _driver.memory_manager = chosen


def current_context():
    return _driver.driver.get_device(0).get_primary_context()


def device_array(size):
    return current_context().memory_manager.memalloc(size)
