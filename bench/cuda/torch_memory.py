#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's memory, served in several ways: its own cache and that cache's settings, cudaMalloc
without a cache, and the preload for CUDA programs.

  torch_memory.py LIBGPUALLOC-CUDA.SO [--rounds N] [--fill PERCENT] [--only WORD] [--json FILE]

Each variant runs in two processes: one measures rate and step for N rounds, the other drift, once.
The metrics:

  rate   tensors of mixed sizes are allocated and freed, about 200 live: calls a second
  alloc  rate without PyTorch's own work, which is measured in the same process with tensors of 0
         bytes: allocations and frees of a tensor's memory a second
  step   training steps of a transformer: ms a step
  drift  live tensors fill PERCENT of the card while their sizes drift from 2 MiB up to 1 GiB: ms
         for each new one (which is written), and whether memory ran out

The table has the median over rounds, the least and the most, and the ratio to PyTorch's own cache.
Exit status 77 without PyTorch or a GPU."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

WAYS = {  # name: environment; PRELOAD stands for the library
    "own cache": {},
    "expandable segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "cudaMalloc, no cache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    "vmm, no cache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "LD_PRELOAD": "PRELOAD",
                      "GPUALLOC_DEVICE": "vmm"},
    "vmm:free=event, no cache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "LD_PRELOAD": "PRELOAD",
                                 "GPUALLOC_DEVICE": "vmm:free=event"},
    "vmm:free=order, no cache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "LD_PRELOAD": "PRELOAD",
                                 "GPUALLOC_DEVICE": "vmm:free=order"},
    "vmm, own cache": {"LD_PRELOAD": "PRELOAD", "GPUALLOC_DEVICE": "vmm"},
}
BASE = "own cache"
WAITS = ("cudaMalloc, no cache",)  # these take minutes to fill the card piece by piece
UNITS = {"rate": "calls/s", "alloc": "calls/s", "step": "ms", "drift": "ms"}
SPEED = ("rate", "alloc", "step")
PATIENCE = 120  # seconds for a process
MIB = 1 << 20


# ---- in a process of its own: measurements --------------------------------------------------

def rate(torch, seconds: float = 1.5, empty: bool = False) -> float:
    """Sizes as in training: most below 1 MiB, some of tens."""
    choose = random.Random(1)
    sizes = [0 if empty else int(2 ** choose.uniform(9, 25)) for _ in range(4096)]
    live = [None] * 200
    calls = 0
    torch.cuda.synchronize()
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        for _ in range(100):
            live[choose.randrange(len(live))] = torch.empty(sizes[calls % len(sizes)],
                                                            dtype=torch.uint8, device="cuda")
            calls += 1
    return calls / (time.perf_counter() - began)


def transformer(torch):
    """Forward, backward and optimizer of a model of 6 layers, for batches of changing length."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(8192, 768),
                          nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
                          nn.Linear(768, 8192)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(number: int) -> None:
        tokens = torch.randint(8192, (16, 384 + 64 * (number % 3)), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(tokens)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def step_time(torch, warm: int = 9, steps: int = 45) -> float:
    step = transformer(torch)
    for i in range(warm):
        step(i)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for i in range(steps):
        step(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps * 1e3


def held_by(torch) -> str:
    """Bytes of the card in PyTorch's cache: in tensors, and in blocks that it cannot free because
    they share an allocation of cudaMalloc with a tensor."""
    stats = torch.cuda.memory_stats()
    cut = stats.get("inactive_split_bytes.all.current", 0) // MIB
    return f"{torch.cuda.memory_allocated() // MIB} MiB in tensors, " \
           f"{torch.cuda.memory_reserved() // MIB} from cudaMalloc, " \
           f"{torch.cuda.mem_get_info()[0] // MIB} left there, {cut} cut off beside tensors"


def drift(torch, percent: float, comings: int = 1500) -> tuple[float, str]:
    """Live bytes rise to the mark; then each new tensor replaces random others."""
    choose = random.Random(2)
    free, total = torch.cuda.mem_get_info()
    mark = min(total * percent / 100, free - 512 * MIB)
    live, held, times = [], 0, []
    for i in range(comings):
        size = int(2 * MIB * 512 ** min(1.0, i / comings * choose.uniform(0.8, 1.2)))
        size = size // 512 * 512
        while i < comings // 3 and held + size * 8 < mark:  # the card fills early, with small ones
            live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            held += size
        while held + size > mark:
            place = choose.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            held -= live.pop().numel()
        torch.cuda.synchronize()
        began = time.perf_counter()
        try:
            live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            return statistics.mean(times or [0]), \
                f"out of memory at {size // MIB} MiB, number {i} of {comings}: {held_by(torch)}"
        live[-1].fill_(i % 251)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
        held += size
    return statistics.mean(times), ""


def measure(what: str, rounds: int, percent: float) -> None:
    """Print a line of JSON for each metric."""
    import torch
    torch.zeros(1, device="cuda")
    if what == "drift":
        value, fault = drift(torch, percent)
        print(json.dumps({"metric": "drift", "values": [value], "fault": fault}))
        return
    values = {metric: [] for metric in SPEED}
    for _ in range(rounds):
        values["rate"].append(rate(torch))
        memory = 1 / values["rate"][-1] - 1 / rate(torch, empty=True)
        values["alloc"].append(1 / max(memory, 1e-8))
        values["step"].append(step_time(torch))
    for name in SPEED:
        print(json.dumps({"metric": name, "values": values[name], "fault": ""}), flush=True)


# ---- outside: a process for each way --------------------------------------------------------

def run(options: argparse.Namespace, way: str, what: str) -> list[dict]:
    """The lines that the process has printed, and the reason if it ended early."""
    preloaded = "LD_PRELOAD" in WAYS[way]
    extra = {key: options.library if value == "PRELOAD" else value
             for key, value in WAYS[way].items()}
    command = [sys.executable, __file__, options.library, "--measure", what,
               "--rounds", str(options.rounds), "--fill", str(options.fill)]
    with subprocess.Popen(command, env={**os.environ, **extra}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as child:
        try:
            out, said = child.communicate(timeout=PATIENCE)
            fault = f"status {child.returncode}: {said.strip()[-300:]}" if child.returncode else ""
        except subprocess.TimeoutExpired:
            child.kill()
            out, said = child.communicate()
            fault = f"longer than {PATIENCE} s"
    if said and preloaded:
        print(f"{way}: {said.strip()[-1000:]}", file=sys.stderr)
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    wanted = ["drift"] if what == "drift" else SPEED
    missing = [metric for metric in wanted if metric not in {line["metric"] for line in found}]
    return found + [{"metric": metric, "values": [], "fault": fault} for metric in missing]


def show(metric: str, results: dict[str, dict]) -> None:
    print(f"\n{metric} ({UNITS[metric]})"
          f"\n{'':26} {'median':>10} {'least':>10} {'most':>10} {'ratio':>7}")
    base = results.get(BASE, {}).get("values")
    for way, line in results.items():
        values = line["values"]
        if not values:
            print(f"{way:26} {line['fault']}")
            continue
        median = statistics.median(values)
        ratio = f"{median / statistics.median(base):7.2f}" if base else ""
        print(f"{way:26} {median:10.4g} {min(values):10.4g} {max(values):10.4g} {ratio}"
              f" {line['fault']}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="path of libgpualloc-cuda.so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fill", type=float, default=95, help="percent of the card, for drift")
    parser.add_argument("--only", default="", help="ways whose name has this in it, and the base")
    parser.add_argument("--json", help="file for one line of JSON a measurement")
    parser.add_argument("--measure", choices=("speed", "drift"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.measure:
        measure(options.measure, options.rounds, options.fill)
        return 0
    try:
        import torch
    except ImportError:
        return 77
    if not torch.cuda.is_available():
        return 77
    card = torch.cuda.get_device_name()
    print(f"{card}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
          f"{options.rounds} rounds")
    ways = [way for way in WAYS if way == BASE or options.only in way]
    results: dict[str, dict[str, dict]] = {metric: {} for metric in UNITS}
    for way in ways:
        lines = run(options, way, "speed")
        if way not in WAITS:
            lines += run(options, way, "drift")
        for line in lines:
            results[line["metric"]][way] = line
            if options.json:
                with open(options.json, "a", encoding="utf-8") as out:
                    out.write(json.dumps({"bench": "torch", "spec": way, "device": card, **line})
                              + "\n")
    for metric, found in results.items():
        show(metric, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
