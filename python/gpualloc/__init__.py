# SPDX-License-Identifier: MIT
"""Device memory of PyTorch, CuPy, Numba and RMM from an allocator of your choice.

    import gpualloc, cupy
    gpualloc.enable("vmm")

A program that should not change is started with `gpualloc run --device=vmm -- python3 ...`, or with
the environment that env() returns. docs/guide/python.md says which way suits which program.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Optional, Union

from . import _library
from ._library import Block, Error, Stats

__all__ = ["Block", "Error", "Stats", "command", "enable", "env", "limit", "prefix", "snapshot",
           "stats"]

prefix: str = _library.PREFIX
"""The folder with bin, lib and include: for PKG_CONFIG_PATH and CMAKE_PREFIX_PATH."""

command: str = os.path.join(prefix, "bin", "gpualloc")
"""The path of the command."""


def __getattr__(name: str) -> str:
    if name == "__version__":  # asking for it loads the library
        return _library.version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_lock = threading.Lock()


def _renew_lock() -> None:
    """In the child of a fork, whose parent may have held it in another thread."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
_spec = ""  # of all heaps; "": none yet
_enabled: dict[tuple[str, int], None] = {}  # frameworks; RMM on each device, others on all: 0


def enable(spec: str, *frameworks: str, device: int = 0) -> tuple[str, ...]:
    """Serve the device memory of frameworks from heaps of this spec, one for each device.

    `frameworks`: "torch", "cupy", "numba" or "rmm"; without any, those of them that are imported.
    `device`: the device that RMM is served on; call enable() for each. Call it before the first
    array is on a device, for PyTorch before CUDA is initialized, and for Numba before it has a
    context. CUDA is not started: the first request on a device opens its heap, and fails if the
    device cannot be used. Returns the names of all frameworks that are served.

    Error: the spec is bad, a heap is open with another one, or a framework cannot change its
    allocator.
    """
    from . import _frameworks

    global _spec
    with _lock:
        chosen = frameworks or _frameworks.imported()
        _frameworks.check(chosen)
        _check_device(device)
        if _spec and _spec != spec:
            raise Error(f'the heaps are open with the spec "{_spec}"; expected the same, got '
                        f'"{spec}"')
        if not _spec:
            _library.choose(spec)
        try:
            for name in chosen:
                key = (name, device if name == "rmm" else 0)
                if key not in _enabled:
                    _frameworks.enable(name, device)
                    _spec = spec
                    _enabled[key] = None
        finally:
            if not _spec:  # no framework has it
                _library.choose(None)
        return tuple(dict.fromkeys(name for name, _ in _enabled))


def limit(size: Optional[int], device: int = 0) -> None:
    """Bound the bytes that the frameworks of enable() may have on a device; None: no bound.

    A request above it fails as if the device were full. Error: enable() was not called.
    """
    if size is not None and not 0 <= size < _library.NO_LIMIT:
        raise Error(f"expected a size from 0 to {_library.NO_LIMIT - 1} bytes, or None, got {size}")
    _library.limit(_heap_of(device), _library.NO_LIMIT if size is None else size)


def stats(device: int = 0) -> Stats:
    """The statistics of a device's heap, since enable(): docs/reference/stats.md has the keys.
    Zeros before the first request on the device.

    Error: enable() was not called.
    """
    return _library.stats(_heap_of(device))


def snapshot(device: int = 0) -> list[Block]:
    """The live blocks of a device's heap, by address; none before its first request.

    Error: enable() was not called, or the backend keeps no list of its blocks (`vmm` and `slab`
    do).
    """
    return _library.snapshot(_heap_of(device))


def env(spec: Optional[str] = None, *, host: Optional[str] = None, kernel: Optional[str] = None,
        stats: Union[str, bool] = False,
        environ: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """The variables to set for a program that is started by others, such as Ray, mpirun, torchrun
    or a batch system: `gpualloc run` sets them for a program that it starts.

    `spec`: for device memory; `host`: for malloc; `kernel`: for malloc in kernels; `stats`: a file
    for the statistics, or True for standard error. `environ`: the environment to add to, default
    os.environ; other libraries in its LD_PRELOAD stay.

    Error: a spec is bad, or the preload cannot be used.
    """
    import subprocess

    arguments = [_executable(), "env"]
    for option, value in (("device", spec), ("host", host), ("kernel", kernel)):
        if value is not None:
            arguments.append(f"--{option}={value}")
    if stats:
        arguments.append("--stats" if stats is True else f"--stats={stats}")
    try:
        told = subprocess.run(arguments, env=None if environ is None else dict(environ),
                              check=False, stdin=subprocess.DEVNULL, capture_output=True,
                              encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise Error(f"cannot execute {command}: {error.strerror}") from None
    if told.returncode:
        raise Error(told.stderr.strip() or f"gpualloc env: exit status {told.returncode}")
    return _variables(told.stdout)


def _executable() -> str:
    """The command, with the permission that it lacks if `python3 -m zipfile` unpacked it."""
    try:
        if not os.access(command, os.X_OK):
            os.chmod(command, 0o755)
    except OSError as error:
        raise Error(f"cannot execute {command}: {error.strerror}") from None
    return command


def _variables(commands: str) -> dict[str, str]:
    """From `export NAME='value';`, in which a value may have several lines, and `unset NAME;`. The
    callers of env() add variables and cannot remove one, so this is empty: the library takes that
    for a variable that is not there."""
    import shlex

    words = shlex.split(commands)
    found = {}
    for before, word in zip(words, words[1:]):
        name, _, value = word[:-1].partition("=")  # without the semicolon
        if before in ("export", "unset"):
            found[name] = value
    return found


def _heap_of(device: int) -> int:
    if not _enabled:
        raise Error("no framework is enabled: call gpualloc.enable() first")
    _check_device(device)
    return device


def _check_device(device: int) -> None:
    if not isinstance(device, int):
        raise TypeError(f"expected the number of a device, got {device!r}")
    if not 0 <= device < 2**31:  # ctypes would cut it to an int
        raise Error(f"no CUDA device {device}", "DEVICE")

