"""Random numbers: one generator for each seed, run and purpose, so that no result depends on how runs are batched."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import on_cpu

_BLOCK = 16  # torch fills normals in blocks of 16; a whole number of blocks makes a short tape a prefix of a long one


@on_cpu
def generator(seed: int, run: int, purpose: str) -> torch.Generator:
    """Return a new generator of the random numbers of one run for one purpose ("arms", "noise", …).

    Equal arguments give generators of equal numbers.
    """
    entropy = np.random.SeedSequence((seed, run, *purpose.encode()))
    return torch.Generator().manual_seed(int(entropy.generate_state(1, np.uint64)[0]))


def uniform_draws(sources: Iterable[torch.Generator], *size: int) -> Tensor:
    """Return uniform numbers in [0, 1) of this ``size`` from each of the ``sources``, stacked."""
    return torch.stack([torch.rand(size, generator=source, dtype=torch.float64) for source in sources])


@on_cpu
def normal_tape(source: torch.Generator, steps: int) -> Tensor:
    """Return the first ``steps`` standard normals of a new ``source``, (steps,).

    A shorter tape is a prefix of a longer one.
    """
    blocks = -(-steps // _BLOCK)
    return torch.randn(blocks * _BLOCK, generator=source, dtype=torch.float64)[:steps]
