"""Random numbers: one generator for each seed, run and purpose.

Therefore the random numbers of a run do not depend on the other runs that are computed with it.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

# torch draws normal numbers in blocks of 16. With whole blocks a short tape is the beginning of a long one.
_BLOCK = 16


def generator(seed: int, run: int, purpose: str) -> torch.Generator:
    """Return a new random generator, whose numbers ``seed``, ``run`` and ``purpose`` determine.

    Torch uses 32 bits of its seed. Therefore two generators with different arguments give the same numbers with a
    probability of about 2⁻³².
    """
    entropy = np.random.SeedSequence((seed, run, *purpose.encode()))
    return torch.Generator().manual_seed(int(entropy.generate_state(1, np.uint64)[0]))


def uniform_draws(sources: Iterable[torch.Generator], *size: int) -> Tensor:
    """Return float64 numbers uniform in [0, 1), a tensor of shape ``size`` for each generator, stacked on a first
    axis.
    """
    return torch.stack([torch.rand(size, generator=source, dtype=torch.float64) for source in sources])


def normal_tape(source: torch.Generator, steps: int) -> Tensor:
    """Return the first ``steps`` standard normal numbers of a new generator; fewer are the beginning of more."""
    blocks = -(-steps // _BLOCK)
    return torch.randn(blocks * _BLOCK, generator=source, dtype=torch.float64)[:steps]
