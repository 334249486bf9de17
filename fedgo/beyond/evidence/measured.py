"""Tables of real experiments that other people measured, and replays, in which a method searches a table offline.

A table has K options. An option has features and one or several results, larger ones being better. In a replay an
option of the table is tried, and the reward is one of its results. Its mean result is taken for the truth. The loss of
an option is (best − its mean)/(best − average), where best and average are the largest and the average one of the K
means. All methods begin a run with the same five random options, and the j-th reward of an option is the same for
every method.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.evidence.families import TABLES

BEGIN = 5  # the number of random options with which every method begins
_ONE_OF = 0.5**0.5  # so that two options with different texts in a column have the distance 1

# A choice of the next options. It is called with the options tried so far (n,), their rewards (n,) and the number of
# options that are wanted, and returns the numbers of the options (wanted,).
Choose = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Measured:
    """A table of measured options.

    Args:
        options: The names of the K options.
        features: The features of the options, (K, d) float64. A column of numbers is scaled to [0, 1]; for a column of
            texts there is one for each text, with √½ for the options that have it and 0 for the others.
        groups: The number of the table's column from which each of the d columns comes.
        results: The results of each option.
        noise: The standard deviation σ of a result, as the players are told it.
    """

    options: tuple[str, ...]
    features: Tensor
    groups: tuple[int, ...]
    results: tuple[Tensor, ...]
    noise: float

    @cached_property
    def means(self) -> Tensor:
        """The mean result of each option, (K,)."""
        return torch.stack([each.mean() for each in self.results])

    @property
    def spread(self) -> float:
        """The unit of a loss: the largest mean result less the average one."""
        return float(self.means.amax() - self.means.mean())

    @property
    def loss(self) -> Tensor:
        """The loss of each option, (K,): 0 for the best one, and 1 on average."""
        return (self.means.amax() - self.means) / self.spread


@cache
def load(name: str) -> Measured:
    """Return the shipped table ``name``, for instance "crossed_barrel"."""
    path = TABLES / "tables" / f"{name}.csv"
    frame = pd.read_csv(path, comment="#", keep_default_na=False)
    given = frame.iloc[:, : frame.columns.get_loc("mean_result")]
    parts = [
        torch.tensor(pd.get_dummies(column).to_numpy() * _ONE_OF)
        if column.dtype.kind not in "if"
        else torch.tensor((column - column.min()).to_numpy() / (column.max() - column.min())).unsqueeze(1)
        for _, column in given.items()
    ]
    results = frame["results"].str.split() if "results" in frame else frame[["mean_result"]].to_numpy()
    return Measured(
        tuple(", ".join(map(str, row)) for row in given.itertuples(index=False)),
        torch.cat(parts, 1),
        tuple(number for number, part in enumerate(parts) for _ in range(part.shape[1])),
        tuple(torch.tensor([float(result) for result in each], dtype=torch.float64) for each in results),
        float(path.read_text(encoding="utf-8").splitlines()[4].rpartition(":")[2]),
    )


class Replay(NamedTuple):
    """The trials of a method on a table: the numbers of the options and their rewards, in order, (n,) each."""

    tried: Tensor
    rewards: Tensor


def search(
    choose: Choose, first: Tensor, reward: Callable[[Tensor], Tensor], trials: int, batch: int
) -> Replay:
    """Try the options ``first``, and then batches that ``choose`` chooses, until there are ``trials`` trials.

    ``reward`` is called once with each batch, and returns its rewards. The last batch may be smaller than ``batch``.
    """
    tried, rewards = first, reward(first)
    while len(tried) < trials:
        chosen = choose(tried, rewards, min(batch, trials - len(tried)))
        tried, rewards = torch.cat([tried, chosen]), torch.cat([rewards, reward(chosen)])
    return Replay(tried, rewards)


def replay(table: Measured, choose: Choose, run: int, trials: int, batch: int = 1) -> Replay:
    """Let a method search a table: five random options first, then batches that ``choose`` chooses.

    Args:
        table: The table.
        choose: The method. Of the batches the last one may be smaller.
        run: The number of the run, which decides the first options and the order of the results of every option.
        trials: The number of trials, those of the first options included.
        batch: The number of options that are chosen at a time.

    Returns:
        The options that were tried and the rewards.
    """
    source = generator(0, run, "measured")
    first = torch.randperm(len(table.options), generator=source)[:BEGIN]
    waiting = [each[torch.randperm(len(each), generator=source)].tolist() for each in table.results]

    def reward(options: Tensor) -> Tensor:
        """Return the next result of each of the ``options``; after the last one they begin again."""
        results = []
        for option in options.tolist():
            results.append(waiting[option].pop(0))
            waiting[option].append(results[-1])
        return torch.tensor(results, dtype=torch.float64)

    return search(choose, first, reward, trials, batch)
