# SPDX-License-Identifier: MIT
"""Each framework's way to another allocator."""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any, Callable

from . import _library
from ._library import Error

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_kept: list[Any] = []  # frameworks do not keep all that they are given


def imported() -> tuple[str, ...]:
    """The frameworks that the program has imported; Numba and PyTorch, if they use CUDA."""
    found = tuple(name for name in _ENABLE
                  if ("numba.cuda" if name == "numba" else name) in sys.modules
                  and (name != "torch" or _has_cuda(sys.modules[name])))
    if not found and "jax" in sys.modules:
        return ("jax",)
    return found


def check(names: tuple[str, ...]) -> None:
    """Raise an Error unless all of them can be served."""
    if "jax" in names:
        raise Error("JAX takes no allocator from a program: start it by \"gpualloc run "
                    "--device=SPEC\", or with the variables of gpualloc.env()")
    known = ", ".join(_ENABLE)
    if not names:
        raise Error(f"expected one of these to be imported: {known}")
    for name in names:
        if name not in _ENABLE:
            raise Error(f'unknown framework "{name}"; known: {known}')


def enable(name: str, device: int) -> None:
    try:
        _ENABLE[name](importlib.import_module(name), device)
    except (AttributeError, ImportError) as error:
        raise Error(f"{name} cannot be served: {error}") from error


# ---- PyTorch -------------------------------------------------------------------------------------


def _has_cuda(torch: Any) -> bool:
    """False for the builds for the CPU and for ROCm."""
    return getattr(getattr(torch, "version", None), "cuda", None) is not None


def _torch(torch: Any, device: int) -> None:
    if not _has_cuda(torch):
        raise Error("torch cannot be served: this build of PyTorch has no CUDA")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.LIBRARY, "ga_torch_alloc",
                                                         "ga_torch_free")
    inner = allocator.allocator()
    for setter, function in (("set_init_fn", "ga_torch_init"),
                             ("set_reset_fn", "ga_torch_reset"),
                             ("set_memory_fraction_fn", "ga_torch_memory_fraction"),
                             ("set_base_alloc_fn", "ga_torch_base_alloc"),
                             ("set_record_stream_fn", "ga_torch_record_stream")):
        getattr(inner, setter)(_library.address(function))
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise Error(f"PyTorch: {error}; call gpualloc.enable() before CUDA is "
                    "initialized") from None
    _kept.append(allocator)
    _replace(torch, memory_stats_as_nested_dict=_torch_stats(torch),
             memory_snapshot=_torch_snapshot(torch),
             reset_peak_memory_stats=_refuse("reset_peak_memory_stats: a heap keeps its peak"),
             reset_accumulated_memory_stats=_refuse(
                 "reset_accumulated_memory_stats: a heap keeps its counts"))


def _replace(torch: Any, **functions: Callable[..., Any]) -> None:
    """Replace functions that PyTorch does not implement for other allocators. The others of
    torch.cuda, such as memory_allocated() and memory_summary(), call these."""
    for name, function in functions.items():
        function.__name__ = name
        for module in (torch.cuda.memory, torch.cuda):
            setattr(module, name, function)


def _refuse(reason: str) -> Callable[..., None]:
    def refused(device: Any = None) -> None:
        raise Error(reason)
    return refused


def _index(torch: Any, device: Any) -> int:
    if device is None:
        return int(torch.cuda.current_device())
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return int(torch.cuda.current_device() if index is None else index)


def _torch_stats(torch: Any) -> Callable[..., dict[str, Any]]:
    """PyTorch's table from a heap's statistics; 0, as PyTorch has it, for what a heap does not
    count."""
    def memory_stats(device: Any = None) -> dict[str, Any]:
        if not torch.cuda.is_initialized():
            return {}
        heap = _library.stats(_index(torch, device))
        blocks = (heap["live_blocks"], 0, heap["allocs"], heap["frees"])
        live, granted = heap["live_bytes"], heap["granted_bytes"]
        size = (live, heap["peak_bytes"], granted, max(granted - live, 0))
        none = (0, 0, 0, 0)
        rows = {"allocation": blocks, "active": blocks, "allocated_bytes": size,
                "active_bytes": size, "requested_bytes": (0, 0, heap["requested_bytes"], 0),
                "reserved_bytes": (heap["held_bytes"], 0, 0, 0),
                "segment": (0, 0, heap["growths"], 0),
                "inactive_split": none, "inactive_split_bytes": none}
        table: dict[str, Any] = {
            name: {"all": _row(row), "large_pool": _row(none), "small_pool": _row(none)}
            for name, row in rows.items()}
        return {**table, "oversize_allocations": _row(none), "oversize_segments": _row(none),
                "num_ooms": heap["failures"], "num_alloc_retries": 0, "num_sync_all_streams": 0,
                "num_device_alloc": heap["growths"], "num_device_free": 0, "max_split_size": -1}
    return memory_stats


def _row(values: tuple[int, int, int, int]) -> dict[str, int]:
    return dict(zip(("current", "peak", "allocated", "freed"), values))


def _torch_snapshot(torch: Any) -> Callable[..., list[dict[str, Any]]]:
    """Each live block of the current device as a segment of its own."""
    def memory_snapshot(mempool_id: Any = None,
                        include_traces: bool = True) -> list[dict[str, Any]]:
        device = _index(torch, None)
        return [_segment(device, *block) for block in _library.snapshot(device)]
    return memory_snapshot


def _segment(device: int, address: int, size: int) -> dict[str, Any]:
    block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated",
             "frames": []}
    return {"device": device, "address": address, "total_size": size, "allocated_size": size,
            "active_size": size, "requested_size": size, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [block]}


# ---- CuPy ----------------------------------------------------------------------------------------


def _cupy(cupy: Any, device: int) -> None:
    """CuPy's pool stays in front of the heap, so that its statistics and limits hold."""
    # The stream itself, because CuPy destroys one that nothing refers to, and the pool keeps a
    # block for longer.
    blocks: dict[int, tuple[int, Any]] = {}

    def malloc(size: int, device: int) -> int:
        stream = cupy.cuda.get_current_stream()
        block: int | None = _library.library().ga_framework_alloc(size, device, stream.ptr)
        if not block:
            # The pool frees its cache and tries again on this exception alone.
            raise _library.refusal(cupy.cuda.runtime.CUDARuntimeError(_OUT_OF_MEMORY))
        blocks[block] = (size, stream)
        return block

    def free(block: int, device: int) -> None:
        size, stream = blocks.pop(block)
        _library.library().ga_framework_free(block, size, device, stream.ptr)

    allocator = cupy.cuda.PythonFunctionAllocator(malloc, free)
    pool = cupy.cuda.MemoryPool(allocator.malloc)
    cupy.cuda.set_allocator(pool.malloc)
    cupy._default_memory_pool = pool  # cupy.get_default_memory_pool() returns it
    _kept.append(allocator)


# ---- Numba ---------------------------------------------------------------------------------------


def _numba(numba: Any, device: int) -> None:
    from numba import cuda  # type: ignore[import-not-found, unused-ignore]

    driver = importlib.import_module("numba.cuda.cudadrv.driver").driver
    for known in driver.list_devices():
        if known.primary_context is not None:
            raise Error(f"Numba: device {int(known.id)} has a context already; call "
                        "gpualloc.enable() before Numba uses a device")

    class Manager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc, unused-ignore]
        """Device memory of the heap; host memory as Numba does it."""

        interface_version = 1

        def initialize(self) -> None:
            """Numba calls it before each use of a context: there is nothing to set up."""

        def memalloc(self, size: int) -> Any:
            device = self.context.device.id
            block = _library.library().ga_cupy_malloc(None, int(size), device)
            if not block:
                raise _library.refusal(MemoryError(_library.text()))

            def finalizer() -> None:
                _library.library().ga_cupy_free(None, block, device)

            return cuda.MemoryPointer(self.context, ctypes.c_void_p(block), size,
                                      finalizer=finalizer)

        def get_memory_info(self) -> Any:
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            error = ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free),
                                                               ctypes.byref(total))
            if error:
                raise RuntimeError(f"cuMemGetInfo: error {error}")
            return cuda.MemoryInfo(free=free.value, total=total.value)

        def get_ipc_handle(self, memory: Any) -> Any:
            raise NotImplementedError("gpualloc's blocks have no handles of CUDA IPC")

    cuda.set_memory_manager(Manager)


# ---- RMM -----------------------------------------------------------------------------------------


def _rmm(rmm: Any, device: int) -> None:
    def allocate(size: int, stream: Any) -> int:
        block: int | None = _library.library().ga_framework_alloc(size, device, _handle(stream))
        if not block:
            raise _library.refusal(MemoryError(_library.text()))
        return block

    def deallocate(block: int, size: int, stream: Any) -> None:
        _library.library().ga_framework_free(block, size, device, _handle(stream))

    resource = rmm.mr.CallbackMemoryResource(allocate, deallocate)
    rmm.mr.set_per_device_resource(device, resource)
    _kept.append((resource, allocate, deallocate))


def _handle(stream: Any) -> int:
    handle: int = stream.__cuda_stream__()[1]
    return handle


_ENABLE: dict[str, Callable[[Any, int], None]] = {
    "torch": _torch, "cupy": _cupy, "numba": _numba, "rmm": _rmm}
