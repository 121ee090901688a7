#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gpualloc.enable() with the real frameworks on a GPU, from an installed wheel.

  enable.py [torch | cupy | numba | rmm | jax | together | starters | limits]...

Each part has a process of its own, all at once; a part whose framework is not installed is skipped.
The last line is `N passed, N failed, N skipped`.
"""

import os
import subprocess
import sys
import time
from typing import Callable, Iterator

MIB = 1 << 20
SPEC = "vmm"
SECONDS = 240 # for all parts


def expect_error(kind: type[BaseException], words: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), error
        print(f"as expected, {kind.__name__}: {str(error).splitlines()[0][:150]}")
        return
    raise AssertionError(f"no {kind.__name__}")


# ---- PyTorch -------------------------------------------------------------------------------------


def losses() -> list[str]:
    """Of a small network that is trained: the same numbers with any allocator."""
    import torch
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(),
                                torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    found = []
    for step in range(20):
        rows = torch.randn(256 + step, 512, generator=generator).cuda()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(rows), rows.flip(1))
        loss.backward()
        optimizer.step()
        found.append(loss.item().hex())
    return found


def plain() -> None:
    print(*losses())


def losses_without() -> list[str]:
    done = subprocess.run([sys.executable, __file__, "--part", "plain"], check=True,
                          capture_output=True, text=True)
    return done.stdout.split()


def torch_statistics() -> None:
    import gpualloc
    import torch
    live = torch.cuda.memory_allocated()
    assert live == gpualloc.stats()["live_bytes"] > 0, live
    assert torch.cuda.max_memory_allocated() >= live
    assert torch.cuda.memory_reserved() >= live
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == live
    assert torch.cuda.memory_stats()["num_ooms"] >= 0
    assert "Allocated memory" in torch.cuda.memory_summary()
    assert torch.cuda.memory_summary(abbreviated=True)
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    assert torch.cuda.list_gpu_processes()


def torch_snapshot() -> None:
    import gpualloc
    import torch
    tensor = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    mine, = [block for block in gpualloc.snapshot() if block.address == tensor.data_ptr()]
    assert mine.size >= 8 * MIB
    segment, = [segment for segment in torch.cuda.memory_snapshot()
                if segment["address"] == tensor.data_ptr()]
    assert segment["blocks"][0]["state"] == "active_allocated"
    for name in ("reset_peak_memory_stats", "reset_accumulated_memory_stats"):
        expect_error(gpualloc.Error, name, getattr(torch.cuda, name))
    expect_error(RuntimeError, "", torch.cuda.memory._record_memory_history)


def torch_empty_cache() -> None:
    import gpualloc
    import torch
    tensor = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    del tensor
    held = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= held - 512 * MIB, (held, torch.cuda.memory_reserved())
    assert gpualloc.stats()["held_bytes"] == torch.cuda.memory_reserved()


def torch_out_of_memory() -> None:
    import gpualloc
    import torch
    for size in (1 << 42, 2 << 30):
        expect_error(torch.OutOfMemoryError, "",
                     lambda: torch.empty(size, dtype=torch.uint8, device="cuda"))
        gpualloc.limit(1 << 30)
    gpualloc.limit(None)
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)


def run_torch() -> None:
    import gpualloc
    import torch
    assert gpualloc.enable(SPEC) == ("torch",)
    expect_error(gpualloc.Error, 'the spec "vmm"; expected the same, got "async"',
                 lambda: gpualloc.enable("async"))
    expected = losses_without()
    assert losses() == expected, "other losses than without"
    print(f"20 losses as without, the last {float.fromhex(expected[-1]):.6f}")
    torch_statistics()
    torch_snapshot()
    torch_empty_cache()
    torch_out_of_memory()
    assert losses() == expected, "other losses after requests that failed"
    print(f"PyTorch {torch.__version__}")


# ---- CuPy ----------------------------------------------------------------------------------------


def run_cupy() -> None:
    import cupy
    import gpualloc
    assert gpualloc.enable(SPEC) == ("cupy",)
    pool = cupy.get_default_memory_pool()
    a = cupy.arange(MIB, dtype=cupy.float64)
    assert float(a.sum()) == MIB * (MIB - 1) / 2
    assert pool.used_bytes() >= 8 * MIB, pool.used_bytes()
    assert gpualloc.stats()["live_bytes"] >= pool.used_bytes()
    assert any(block.address <= a.data.ptr < block.address + block.size
               for block in gpualloc.snapshot())
    del a
    assert pool.used_bytes() == 0, pool.used_bytes()
    assert pool.free_bytes() == pool.total_bytes() > 0
    pool.free_all_blocks()
    assert (pool.total_bytes(), gpualloc.stats()["live_blocks"]) == (0, 0)
    x = cupy.random.default_rng(1).standard_normal((512, 512))
    assert cupy.allclose(x @ cupy.linalg.inv(x), cupy.eye(512), atol=1e-6)
    pool.set_limit(size=64 * MIB)
    expect_error(cupy.cuda.memory.OutOfMemoryError, "Out of memory",
                 lambda: cupy.empty(128 * MIB, dtype=cupy.uint8))
    pool.set_limit(size=0)
    gpualloc.limit(64 * MIB)
    expect_error(cupy.cuda.memory.OutOfMemoryError, "Out of memory",
                 lambda: cupy.empty(128 * MIB, dtype=cupy.uint8))
    gpualloc.limit(None)
    with cupy.cuda.Stream(non_blocking=True):
        assert int(cupy.ones(MIB, dtype=cupy.int32).sum()) == MIB
    print(f"CuPy {cupy.__version__}")


# ---- Numba ---------------------------------------------------------------------------------------


def run_numba() -> None:
    import numpy
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # numba-cuda uses it
    import gpualloc
    import numba
    from numba import cuda
    assert gpualloc.enable(SPEC) == ("numba",)

    @cuda.jit
    def double(values: object) -> None:
        i = cuda.grid(1)
        if i < values.size:
            values[i] *= 2

    values = cuda.to_device(numpy.arange(MIB, dtype=numpy.int64))
    double[MIB // 256, 256](values)
    assert (values.copy_to_host() == 2 * numpy.arange(MIB)).all()
    assert any(block.address == values.device_ctypes_pointer.value
               for block in gpualloc.snapshot())
    live = gpualloc.stats()["live_bytes"]
    assert live >= 8 * MIB, live
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free < total
    del values
    cuda.current_context().deallocations.clear()
    assert gpualloc.stats()["live_bytes"] <= live - 8 * MIB
    expect_error(MemoryError, "", lambda: cuda.device_array(1 << 39, dtype=numpy.int64))
    print(f"numba {numba.__version__}")


# ---- RMM -----------------------------------------------------------------------------------------


def run_rmm() -> None:
    import gpualloc
    import rmm
    import rmm.statistics
    assert gpualloc.enable(SPEC) == ("rmm",)
    buffer = rmm.DeviceBuffer(size=16 * MIB)
    assert any(block.address == buffer.ptr for block in gpualloc.snapshot())
    del buffer
    assert gpualloc.stats()["live_blocks"] == 0
    below = rmm.mr.get_current_device_resource()
    counting = rmm.mr.StatisticsResourceAdaptor(below)
    rmm.mr.set_current_device_resource(counting)
    one, two = rmm.DeviceBuffer(size=MIB), rmm.DeviceBuffer(size=2 * MIB)
    counts = counting.allocation_counts
    assert (counts.current_bytes, counts.current_count) == (3 * MIB, 2), counts
    assert gpualloc.stats()["live_blocks"] == 2
    del one, two
    pool = rmm.mr.PoolMemoryResource(below, initial_pool_size=64 * MIB)
    rmm.mr.set_current_device_resource(pool)
    data = rmm.DeviceBuffer.to_device(bytes(range(256)) * 4096)
    assert bytes(data.tobytes()) == bytes(range(256)) * 4096
    assert gpualloc.stats()["live_bytes"] >= 64 * MIB
    rmm.mr.set_current_device_resource(below)
    gpualloc.limit(128 * MIB)
    expect_error(MemoryError, "", lambda: rmm.DeviceBuffer(size=1 << 30))
    gpualloc.limit(None)
    print(f"RMM {rmm.__version__}")


# ---- JAX, and programs that others start ---------------------------------------------------------

SUM = ("import jax, jax.numpy as jnp; x = jnp.arange(1 << 20, dtype=jnp.float32) / 7; "
       "print(jax.devices()[0].platform, float((x @ x).astype(float)).hex())")


def told_by(program: list[str], **variables: str) -> str:
    done = subprocess.run(program, capture_output=True, text=True,
                          env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                               **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_jax() -> None:
    import gpualloc
    import jax
    expect_error(gpualloc.Error, "JAX takes no allocator from a program",
                 lambda: gpualloc.enable(SPEC))
    program = [sys.executable, "-c", SUM]
    expected = told_by(program)
    assert expected.startswith("gpu"), expected
    assert told_by([gpualloc.command, "run", "--device", SPEC, "--strict", "--", *program]) \
        == expected
    assert told_by(program, **gpualloc.env(SPEC)) == expected
    print(f"JAX {jax.__version__}: {expected.strip()}, as without")


def run_starters() -> None:
    """PyTorch as it is, by `gpualloc run` and by the variables of env(), as torchrun gets them."""
    import gpualloc
    import torch  # noqa: F401
    program = [sys.executable, __file__, "--part", "plain"]
    expected = losses_without()
    for how in ("run", "env", "torchrun"):
        file = f"/tmp/gpualloc-enable-{os.getpid()}-{how}.json"
        if how == "run":
            told = told_by([gpualloc.command, "run", "--device", SPEC, f"--stats={file}", "--",
                            *program])
        elif how == "env":
            told = told_by(program, **gpualloc.env(SPEC, stats=file))
        else:
            told = told_by([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1",
                            "--standalone", __file__, "--part", "plain"],
                           **gpualloc.env(SPEC, stats=file))
        assert told.split() == expected, f"{how}: other losses than without"
        with open(file, encoding="utf-8") as report:
            assert "vmm" in report.read(), f"{how}: no statistics of the device's heap"
        print(f"{how}: as without, and served")


# ---- several frameworks --------------------------------------------------------------------------


def run_together() -> None:
    import cupy
    import gpualloc
    import torch
    names = gpualloc.enable(SPEC)
    assert set(names) >= {"torch", "cupy"}, names
    a = torch.arange(MIB, device="cuda", dtype=torch.float32)
    b = cupy.from_dlpack(a) + 1
    c = torch.from_dlpack(b)
    assert float(c.sum()) == float((a + 1).sum())
    addresses = {block.address for block in gpualloc.snapshot()}
    assert a.data_ptr() in addresses
    assert any(start <= b.data.ptr for start in addresses)
    print(names, gpualloc.stats())


def run_limits() -> None:
    """A heap that a MemPool has opened keeps its spec, and enable() says so."""
    import cupy
    import gpualloc
    import torch
    from gpualloc import _library
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_library.LIBRARY, "ga_torch_alloc",
                                                         "ga_torch_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        kept = torch.ones(MIB, device="cuda")
    expect_error(gpualloc.Error, 'open with the spec "cuda"; expected the same, got "vmm"',
                 lambda: gpualloc.enable("vmm", "cupy"))
    assert gpualloc.enable("cuda", "cupy") == ("cupy",)
    assert float(cupy.ones(MIB).sum()) == float(kept.sum())
    expect_error(gpualloc.Error, "before CUDA is initialized",
                 lambda: gpualloc.enable("cuda", "torch"))


PARTS = {"torch": run_torch, "cupy": run_cupy, "numba": run_numba, "rmm": run_rmm,
         "jax": run_jax, "starters": run_starters, "together": run_together,
         "limits": run_limits}


def run_part(name: str) -> None:
    try:
        {**PARTS, "plain": plain}[name]()
    except ModuleNotFoundError as error:
        print(error)
        sys.exit(77)


def outcomes(names: list[str]) -> Iterator[tuple[str, int, float]]:
    begun = time.monotonic()
    running = {name: subprocess.Popen([sys.executable, __file__, "--part", name],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for name in names}
    for name, process in running.items():
        try:
            told, _ = process.communicate(timeout=max(1, begun + SECONDS - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            told = f"{process.communicate()[0]}\nnot at its end after {SECONDS} s"
        print(f"== {name}\n{told.strip()}", flush=True)
        yield name, process.returncode, time.monotonic() - begun


def main() -> None:
    names = sys.argv[1:] or list(PARTS)
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for name, status, seconds in outcomes(names):
        verdict = {0: "passed", 77: "skipped"}.get(status, "failed")
        print(f"-- {name}: {verdict} after {seconds:.0f} s")
        count[verdict] += 1
    print(", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    sys.exit(count["failed"] > 0)


if len(sys.argv) == 3 and sys.argv[1] == "--part":
    run_part(sys.argv[2])
else:
    main()
