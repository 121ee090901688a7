#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model of a sharded slab hash on 1 to 1,024 GPUs, from measured times.

    bench/slabhash/model.py [--requests LOG2] [--build] [--network GB/S] [--message US] [--limits]
                            [--markdown]
    bench/slabhash/model.py --check

Prints the times of a search of 2^LOG2 keys of each GPU (default 27), in ms; --build: of insertions.
--network: bytes a second from a GPU to other hosts (50). --message: time that a message costs
beside its bytes, in microseconds (2). --limits prints sizes that follow from constants of the code
instead of times. --check compares the model with measured batches, and tests its limits; exit
status 1: an error is above its bound, or a limit does not hold.

Measured on one GPU by bench-slabhash-mirrored, for each number of ranks: count, sort, serve and
gather, with the host's waits; on two and four by bench-slabhash-sharded: the rates of NVLink while
the shard serves, of copies and of messages, what each costs the shard, and agreements. Slices,
bins, parts and pieces are those of the sources. The GPUs of one host copy; with several hosts all
messages are sent.

Assumed: the table has as many keys as the batch; keys are even; ranks start together;
a GPU reaches its full rate to other hosts, in both
directions at once, with any number of hosts (no congestion); messages of a GPU cost their time one
after the other; an agreement takes HOP more for each doubling of the hosts; times of the device
are proportional to the requests.

flat: each rank sends to each other one, as the code does. two hops: a rank sends requests for other
hosts first to the GPU of its own host with the owner's index there, which sends those of all GPUs
of the host as one message; answers go the same way back. The hops of a step follow each other."""

import argparse
import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = 8  # GPUs
HOP = 0.010  # ms


def constant(file: str, name: str) -> int:
    """An enumerator of a source of sharded tables, such as NAME = 1 << 27."""
    text = (ROOT / "hashtables/sharded" / file).read_text(encoding="utf-8")
    found = re.search(rf"\b{name} = ([0-9 <]+)[,\s]", text)
    if not found:
        sys.exit(f"model.py: {file} has no {name}: expected an enumerator with a number")
    left, _, right = found[1].partition("<<")
    return int(left) << int(right or 0)


BINS = constant("work.h", "GA_SHARDED_BINS")
BINS_BEST = constant("sharded.c", "BINS_BEST")
BINS_MOST = constant("sharded.c", "BINS_MOST")
PART_MOST = constant("sharded.c", "PART_MOST")
SMALL_PARTS_LOG = constant("sharded.c", "SMALL_PARTS_LOG")
PARTS_LOG = constant("sharded.h", "GA_SHARDED_PARTS_LOG")
SLICES_LOG = constant("sharded.h", "GA_SHARDED_SLICES_LOG")
TOGETHER = constant("sharded.h", "GA_SHARDED_TOGETHER")
PIECE = constant("memory.c", "PIECE_ON_SMALL_DEVICE")
SLICE_LEAST = constant("engine_device.c", "SLICE_LEAST")
SORT_KEYS = constant("work.h", "GA_SHARDED_SORT_BYTES") // 4
BUFFERS = constant("sharded.h", "GA_SHARDED_BUFFERS")
FEW = constant("sharded.h", "GA_SHARDED_FEW")

# bench/results/nvidia-h200/slabhash-four-20261128.log; ms for 2^27 requests of each rank. Up to
# eight ranks sort before the agreement, without a count.
MEASURED_REQUESTS = 1 << 27
MIRRORED = {  # ranks: count, sort, shard, rest
    "search": {
        2: (0.803, 0.024, 3.469, 0.889),
        4: (0.790, 0.022, 3.561, 0.596),
        8: (0.802, 0.022, 4.206, 0.563),
        16: (0.294, 0.757, 4.570, 0.563),
        32: (0.292, 0.770, 4.657, 0.628),
        64: (0.293, 0.840, 4.890, 0.737),
        128: (0.298, 1.073, 5.370, 1.013),
        256: (0.299, 1.088, 5.694, 1.039),
        512: (0.299, 1.132, 5.835, 1.119),
        1024: (0.299, 1.187, 5.798, 1.281),
    },
    "build": {
        2: (1.117, 0.024, 7.623, 0.034),
        4: (1.084, 0.021, 8.034, 0.029),
        8: (1.109, 0.022, 8.660, 0.024),
        16: (0.296, 1.069, 9.459, 0.029),
        32: (0.294, 1.131, 9.695, 0.029),
        64: (0.295, 1.482, 10.270, 0.028),
        128: (0.298, 2.123, 11.482, 0.028),
        256: (0.297, 2.151, 12.069, 0.030),
        512: (0.299, 2.175, 12.174, 0.033),
        1024: (0.298, 2.244, 12.560, 0.029),
    },
}
ALONE = {"search": 4.409, "build": 8.808}  # a table of one GPU
AGREEMENT = 0.046


@dataclass(frozen=True)
class Link:
    """NVLink from a GPU while its shard serves."""
    rate: float  # bytes a ms
    group: float  # ms beside the bytes


MESSAGES = Link(134e6, 0.0)  # groups of 67 MB
# That log, groups of 67 MB on two GPUs and of 51 MB on four; the meeting before a group; and the
# shard beside copies, ms for 2^27 requests, of which own ones are served with others (of builds
# what the measured batch leaves).
COPIES_OF_TWO, COPIES = Link(353e6, 0.020), Link(294e6, 0.025)
SERVED = {"search": 3.00, "build": 6.00}


@dataclass(frozen=True)
class Batch:
    """Of one rank; all have the same."""
    cards: int
    requests: int
    op: str = "search"
    network: float = 50e6  # bytes a ms
    message: float = 0.002  # ms
    two_hops: bool = False


@dataclass
class Times:
    """In ms. The links' are sums over all messages, part of which the shard hides."""
    count: float
    sort: float
    serve: float
    gather: float
    agree: float
    host: float
    network: float
    messages: float
    total: float

    def bottleneck(self) -> str:
        parts = {"sort and gather": self.count + self.sort + self.gather, "serve": self.serve,
                 "NVLink": self.host, "network": self.network, "messages": self.messages,
                 "agreements": self.agree}
        return max(parts, key=lambda name: parts[name])


def parts_log(cards: int, requests: int) -> int:
    """As parts_log_of() in sharded.c, for a shard of as many keys as requests."""
    def most(log: int) -> int:
        if log <= SLICES_LOG:
            return BINS
        is_large = int(requests / 15 / 0.6 * 128) >> (log - 1) > PART_MOST
        return BINS_MOST if is_large else min(BINS_BEST, cards << SMALL_PARTS_LOG)
    log = PARTS_LOG
    while log and cards << log > most(log):
        log -= 1
    return log


def slices(cards: int, requests: int) -> int:
    """As read_words() in run.c."""
    most = 1 << min(parts_log(cards, requests), SLICES_LOG)
    count = 1
    while count < most and requests // (2 * count) >= SLICE_LEAST:
        count *= 2
    return count


def link_of(b: Batch) -> Link:
    return COPIES_OF_TWO if b.cards == 2 else COPIES if b.cards <= HOST else MESSAGES


def links(b: Batch, sent: float) -> tuple[float, float, float]:
    """NVLink, network and messages of a group in which a rank sends `sent` bytes to all ranks,
    itself included."""
    near = min(b.cards, HOST)
    hosts = math.ceil(b.cards / HOST)
    far = sent * (b.cards - near) / b.cards
    if b.two_hops:
        through = far * (near - 1) / near
        count = (near - 1) * (2 if hosts > 1 else 1) + hosts - 1
    else:
        through, count = 0.0, b.cards - 1
    host = (sent * (near - 1) / b.cards + through) / link_of(b).rate
    return host, far / b.network, count * b.message


def bytes_of(b: Batch, of: tuple[float, float, float]) -> float:
    """The time of a group without its meetings: both links at once, or one hop after the other."""
    host, network, messages = of
    return (host + network if b.two_hops else max(host, network)) + messages


def piece(b: Batch) -> Times:
    """A piece of a batch: steps.c."""
    share = b.requests / MEASURED_REQUESTS
    count, sort, shard, gather = (share * ms for ms in MIRRORED[b.op][b.cards])
    shard = share * SERVED[b.op] if b.cards <= HOST else shard
    steps = slices(b.cards, b.requests)
    own = shard / steps / b.cards
    others = shard / steps - own
    one = links(b, b.requests / steps * 4)  # a key, or a value
    none = (0.0, 0.0, 0.0)
    request, answer = (one, one) if b.op == "search" else (tuple(2 * ms for ms in one), none)
    hosts = math.ceil(b.cards / HOST)
    agree = AGREEMENT + HOP * math.log2(hosts)
    counts = links(b, b.cards * 4 << parts_log(b.cards, b.requests)) if b.cards > FEW else none

    group = link_of(b).group
    ahead = BUFFERS - 1  # steps whose requests travel before answers do
    link = [(group + bytes_of(b, request)) * (step + 1) for step in range(min(ahead, steps))]
    served = own
    for step in range(steps):
        if step + 2 < steps:
            served += own
        served = max(served, link[step]) + others
        last = step + ahead >= steps
        both = [a if last else a + r for a, r in zip(answer, request)]
        link.append(max(link[-1], served + group) + bytes_of(b, (both[0], both[1], both[2])))
    served += own if steps > 1 else 0.0
    first = agree + (bytes_of(b, counts) + group if b.cards > FEW else 0.0)
    total = count + max(first, sort) + max(served, link[-1]) + gather
    total += max(0.0, agree - gather)  # that agreement travels beside the gather
    host, network, messages = (steps * (r + a) + c for r, a, c in zip(request, answer, counts))
    return Times(count, sort, shard, gather, 2 * agree, host, network, messages, total)


def batch(b: Batch) -> Times:
    """All pieces, one after the other."""
    pieces = math.ceil(b.requests / PIECE)
    of = piece(replace(b, requests=b.requests // pieces))
    return Times(*(pieces * ms for ms in vars(of).values()))


def alone(b: Batch) -> float:
    """One GPU with the requests of one rank: ms."""
    return ALONE[b.op] * b.requests / MEASURED_REQUESTS


# ---- output --------------------------------------------------------------------------------------

HEAD = ["cards", "bins", "slices", "count", "sort", "serve", "gather", "NVLink", "network",
        "messages", "flat", "times", "two hops", "times", "longest"]


def row(b: Batch) -> list[str]:
    if b.cards == 1:
        return ["1", *[""] * 9, f"{alone(b):.2f}", "1.0", "", "", ""]
    flat = batch(b)
    hops = batch(replace(b, two_hops=True))
    best = flat if flat.total <= hops.total else hops
    times = [flat.count, flat.sort, flat.serve, flat.gather, flat.host, flat.network,
             flat.messages]
    speed = b.cards * alone(b)
    return [str(b.cards), str(b.cards << parts_log(b.cards, b.requests)),
            str(slices(b.cards, b.requests)),
            *(f"{ms:.2f}" for ms in times), f"{flat.total:.2f}", f"{speed / flat.total:.1f}",
            *([f"{hops.total:.2f}", f"{speed / hops.total:.1f}"] if b.cards > HOST else ["", ""]),
            best.bottleneck()]


LIMITS = ["cards", "bins", "keys a run", "slices", "kernels a slice", "KB a message", "messages",
          "GB for others"]


def limits(b: Batch) -> list[str]:
    """A sort's runs, kernels that serve others' requests, messages of requests with 4 bytes each,
    all messages of a search, and memory for requests of others (MAP32, pieces of 2^27)."""
    steps = slices(b.cards, b.requests)
    bins = b.cards << parts_log(b.cards, b.requests)
    most = 1 << min(parts_log(b.cards, b.requests), SLICES_LOG)
    return [str(b.cards), str(bins), str(SORT_KEYS // bins), str(steps),
            str(math.ceil((b.cards - 1) / TOGETHER)),
            f"{b.requests / steps / b.cards * 4 / 1e3:.0f}",
            str((2 * steps + 1) * (b.cards - 1)),
            f"{BUFFERS * 1.25 * PIECE / most * (b.cards - 1) / b.cards * 14 / 1e9:.1f}"]


def show(b: Batch, markdown: bool, of_limits: bool) -> None:
    head = LIMITS if of_limits else HEAD
    rows = [(limits if of_limits else row)(replace(b, cards=1 << log))
            for log in range(of_limits, 11)]
    if markdown:
        last = "--:" if of_limits else "---"
        for line in [head, [*["--:"] * (len(head) - 1), last], *rows]:
            print("| " + " | ".join(line) + " |")
        return
    print(f"2^{math.log2(b.requests):.0f} requests a GPU ({b.op}), hosts of {HOST}, "
          f"{b.network / 1e6:.0f} GB/s a GPU between hosts, {b.message * 1e3:g} us a message; ms")
    for line in [head, *rows]:
        print(" ".join(f"{cell:>{max(8, len(name))}}" for cell, name in zip(line, head)))


# ---- checks --------------------------------------------------------------------------------------

# GPUs, requests of each, ms, and the largest error of the model: the first log above.
MEASURED = [(2, 1 << 27, "search", 4.33, 0.12), (2, 1 << 27, "build", 7.18, 0.15),
            (4, 1 << 26, "search", 2.42, 0.12), (4, 1 << 26, "build", 3.85, 0.15)]


def check() -> int:
    failures = 0
    for cards, requests, op, ms, most in MEASURED:
        model = batch(Batch(cards, requests, op)).total
        error = model / ms - 1
        print(f"{cards} GPUs, {op} of 2^{math.log2(requests):.0f} each: model {model:.2f} ms, "
              f"measured {ms:.2f}: {error:+.1%}")
        failures += abs(error) > most
    for log in range(4, 11):
        b = Batch(1 << log, 1 << 27)
        flat, hops = batch(b), batch(replace(b, two_hops=True))
        fast = batch(replace(b, network=1e12, message=0.0))
        least = flat.count + flat.sort + flat.serve + flat.gather
        holds = (flat.total >= max(least, flat.network) and hops.messages <= flat.messages
                 and least <= fast.total < flat.total and hops.network <= flat.network)
        if not holds:
            print(f"{b.cards} GPUs: limits do not hold: {flat}")
            failures += 1
    print(f"{failures} failures")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--requests", type=int, default=27)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--network", type=float, default=50)
    parser.add_argument("--message", type=float, default=2)
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--check", action="store_true")
    o = parser.parse_args()
    if o.check:
        return check()
    if not 10 <= o.requests <= 31 or o.network <= 0 or o.message < 0:
        parser.error(f"--requests {o.requests} --network {o.network} --message {o.message}: "
                     "expected 10 to 31, above 0, and 0 or above")
    show(Batch(1, 1 << o.requests, "build" if o.build else "search", o.network * 1e6,
               o.message / 1e3), o.markdown, o.limits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
