"""Random numbers: one generator for each seed, run and purpose.

Therefore the random numbers of a run do not depend on the other runs that are computed with it.
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
    """Return a new random generator on the CPU, whose numbers ``seed``, ``run`` and ``purpose`` determine.

    Generators with equal arguments give equal numbers. NumPy's ``SeedSequence`` mixes the arguments into the seed of
    torch's generator, so that different arguments usually give unrelated numbers. Torch uses only 32 bits of its seed.
    Two generators with different arguments, with ``seed`` and ``run`` below 2³², therefore give the same numbers with a
    probability of about 2⁻³².

    Args:
        seed: The seed of the problem, a whole number of at least 0.
        run: The number of the run, a whole number of at least 0.
        purpose: A text such as "arms" or "noise".

    Raises:
        ValueError: ``seed`` or ``run`` is negative.
        TypeError: ``seed`` or ``run`` is not a whole number.
    """
    entropy = np.random.SeedSequence((seed, run, *purpose.encode()))
    return torch.Generator().manual_seed(int(entropy.generate_state(1, np.uint64)[0]))


def uniform_draws(sources: Iterable[torch.Generator], *size: int) -> Tensor:
    """Return float64 numbers that are uniform in [0, 1): for each generator of ``sources`` a tensor of shape ``size``.

    The results are stacked on a new first axis, whose entry i is drawn from the generator i.

    Raises:
        RuntimeError: ``sources`` has no generator.
    """
    return torch.stack([torch.rand(size, generator=source, dtype=torch.float64) for source in sources])


@on_cpu
def normal_tape(source: torch.Generator, steps: int) -> Tensor:
    """Return the first ``steps`` standard normal numbers of the new generator ``source``, (steps,) float64.

    The numbers are drawn in blocks of 16, of which the last is cut off at ``steps`` ≥ 0. Therefore a shorter result is
    the beginning of a longer one from an equal generator.
    """
    blocks = -(-steps // _BLOCK)
    return torch.randn(blocks * _BLOCK, generator=source, dtype=torch.float64)[:steps]
