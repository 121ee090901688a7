#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Train a small network with JAX and print each loss, bit by bit.

  jax_train.py cached | uncached

cached: with XLA's cache, which grows. uncached: without. Every run on one GPU prints equal
numbers, for any addresses of the arrays. Exit status 77: no JAX, or no GPU.
"""

import os
import sys

MODE = sys.argv[1] if len(sys.argv) > 1 else "cached"
if MODE not in ("cached", "uncached"):
    sys.exit(f'jax_train.py: mode "{MODE}", expected cached or uncached')
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
if MODE == "uncached":
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
# One order of sums, and no kernels that are chosen by measured speed.
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(77)

PLATFORM = "gpu"
WIDTH, LAYERS, BATCH, STEPS = 512, 4, 256, 30


def network(weights: list, x: jax.Array) -> jax.Array:
    for w in weights[:-1]:
        x = jax.nn.gelu(x @ w)
    return x @ weights[-1]


def loss(weights: list, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((network(weights, x) - y) ** 2)


@jax.jit
def step(weights: list, x: jax.Array, y: jax.Array) -> tuple:
    value, slopes = jax.value_and_grad(loss)(weights, x, y)
    return value, [w - 0.05 * slope for w, slope in zip(weights, slopes)]


def main() -> None:
    if jax.default_backend() != PLATFORM:
        sys.exit(77)
    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    weights = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH ** 0.5 for key in keys[1:]]
    for i in range(STEPS):
        # Batches of several sizes: memory comes and goes.
        x = jax.random.normal(jax.random.fold_in(keys[0], i), (BATCH + 64 * (i % 3), WIDTH))
        value, weights = step(weights, x, jnp.sin(x))
        print(float(value).hex())


main()
