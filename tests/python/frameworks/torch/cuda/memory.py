# SPDX-License-Identifier: MIT
"""Its functions call each other by the names in this module, as those of PyTorch do."""

import contextlib
import ctypes
import sys

__all__ = ["memory_allocated", "max_memory_allocated", "memory_reserved", "memory_stats",
           "memory_stats_as_nested_dict", "memory_snapshot", "reset_peak_memory_stats",
           "reset_accumulated_memory_stats", "MemPool", "use_mem_pool"]
current = None


class Inner:
    def __init__(self, plugin):
        self.plugin, self.functions = plugin, {}

    def __getattr__(self, setter):
        if not setter.startswith("set_"):
            raise AttributeError(setter)
        return lambda address: self.functions.update({setter: ctypes.CFUNCTYPE(None)(address)})


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, release):
        library = ctypes.CDLL(path)
        words = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, *words)((malloc, library))
        self.release = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *words)((release, library))
        self.inner = Inner(self)

    def allocator(self):
        return self.inner


def change_current_allocator(allocator):
    global current
    if sys.modules["torch"].cuda.initialized:
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator


class MemPool:
    def __init__(self, allocator):
        self.plugin = allocator.plugin


@contextlib.contextmanager
def use_mem_pool(pool):
    global current
    before, current = current, pool.plugin
    try:
        yield
    finally:
        current = before


def memory_stats_as_nested_dict(device=None):
    raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")


memory_snapshot = reset_peak_memory_stats = memory_stats_as_nested_dict
reset_accumulated_memory_stats = memory_stats_as_nested_dict


def memory_stats(device=None):
    flat = {}

    def add(prefix, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    add("", memory_stats_as_nested_dict(device))
    return flat


def memory_allocated(device=None):
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None):
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None):
    return memory_stats(device).get("reserved_bytes.all.current", 0)
