#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Train a small transformer with PyTorch and print each loss, bit by bit.

  torch_train.py cached | uncached | graph

cached: with PyTorch's cache. uncached: without, so that each tensor is a cudaMalloc. graph: a
step is captured once and replayed. Every run on one GPU prints equal numbers, for any
addresses of the tensors. Exit status 77: no PyTorch, or no GPU.
"""

import os
import sys

MODE = sys.argv[1] if len(sys.argv) > 1 else "cached"
if MODE not in ("cached", "uncached", "graph"):
    sys.exit(f'torch_train.py: mode "{MODE}", expected cached, uncached or graph')
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # sums in one order
if MODE == "uncached":
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

try:
    import torch
except ImportError:
    sys.exit(77)

DEVICE = "cuda"
VOCABULARY, WIDTH, LENGTH, BATCH, STEPS = 512, 256, 64, 16, 40


class Transformer(torch.nn.Module):
    """Predicts each token from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.places = torch.nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0,
                                                 batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.out = torch.nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        # Set explicitly: detecting that the mask is causal waits for the device, which no capture
        # permits.
        seen = self.layers(self.tokens(tokens) + self.places, mask=self.mask, is_causal=True)
        return self.out(seen)


def batches() -> list[torch.Tensor]:
    """Sequences that can be learned: each token is the sum of the two before it, and some noise."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCABULARY, (STEPS, BATCH, LENGTH + 1), generator=generator)
    for i in range(2, LENGTH + 1, 2):
        tokens[..., i] = (tokens[..., i - 1] + tokens[..., i - 2]) % VOCABULARY
    return [batch.to(DEVICE) for batch in tokens]


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Transformer().to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3,
                                           capturable=MODE == "graph")

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        predicted = self.model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(predicted.reshape(-1, VOCABULARY),
                                                 batch[:, 1:].reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def train(trainer: Trainer) -> None:
    for batch in batches():
        print(trainer.step(batch).item().hex())


def train_by_graph(trainer: Trainer) -> None:
    """Three steps come first, on another stream, as torch.cuda.graph requires."""
    data = batches()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for batch in data[:3]:
            trainer.step(batch)
    torch.cuda.current_stream().wait_stream(side)
    room = data[3].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = trainer.step(room)
    for batch in data[3:]:
        room.copy_(batch)
        graph.replay()
        print(loss.item().hex())


def main() -> None:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit(77)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    trainer = Trainer()
    (train_by_graph if MODE == "graph" else train)(trainer)
    for name, value in trainer.model.named_parameters():
        print(name, value.double().sum().item().hex())


main()
