"""Random numbers: one generator for each seed, run and purpose.

Therefore the result of a run does not depend on the other runs that are computed with it.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import on_cpu

# torch draws normal numbers in blocks of 16. With whole blocks a short tape is the beginning of a long one.
_BLOCK = 16


@on_cpu
def generator(seed: int, run: int, purpose: str) -> torch.Generator:
    """Return a new random generator that is determined by ``seed``, ``run`` and ``purpose``, and by nothing else.

    ``seed`` and the number ``run`` of the run are at least 0, and ``purpose`` is a text such as "arms" or "noise".
    Generators with equal arguments give equal numbers, and generators with different arguments give independent ones.
    """
    entropy = np.random.SeedSequence((seed, run, *purpose.encode()))
    return torch.Generator().manual_seed(int(entropy.generate_state(1, np.uint64)[0]))


def uniform_draws(sources: Iterable[torch.Generator], *size: int) -> Tensor:
    """Return float64 numbers that are uniform in [0, 1), with shape (number of ``sources``, *``size``).

    The entry i of the first axis is drawn from the generator i of ``sources``.
    """
    return torch.stack([torch.rand(size, generator=source, dtype=torch.float64) for source in sources])


@on_cpu
def normal_tape(source: torch.Generator, steps: int) -> Tensor:
    """Return the first ``steps`` standard normal numbers of the new generator ``source``, (steps,) float64.

    For equal generators a shorter result is the beginning of a longer one.
    """
    blocks = -(-steps // _BLOCK)
    return torch.randn(blocks * _BLOCK, generator=source, dtype=torch.float64)[:steps]
