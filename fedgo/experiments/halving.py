"""Choosing a setting by successive halving: all settings on a few runs, the best on more, the last few on many.

One round of this is called a rung. The score of a setting is its mean final regret, Phase I included. A run of a seed
is the same alone and in any batch. Therefore a setting that reaches the next rung is played on the new runs only, and
all settings of a rung are compared on the same instances (Jamieson and Talwalkar 2016; Karnin, Koren and Somekh 2013).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SCORE_DECIMALS = 3  # means are rounded to these decimals, as they are printed, before they are compared

Candidate = Mapping[str, Any]


class Rung(NamedTuple):
    """One round: it compares ``settings`` settings on ``runs`` runs each, those of earlier rounds included."""

    settings: int
    runs: int


class Halving(NamedTuple):
    """How far a choice of a setting has come.

    Args:
        ranked: The settings of each finished round, the best first.
        waiting: The settings that the next round compares; empty if all rounds are finished.
        runs: The number of runs on which it compares them, or 0.
    """

    ranked: list[list[Candidate]]
    waiting: list[Candidate]
    runs: int


def halve(
    settings: Sequence[Candidate], rungs: Sequence[Rung], score: Callable[[Candidate, int], float | None]
) -> Halving:
    """Choose among ``settings`` by successive halving, as far as their scores are known.

    The best setting of each round is compared in all later rounds too, even if these are then more settings than the
    round should have. Settings with equal scores keep their order.

    Args:
        settings: All settings, each given once. The first round compares them all, whatever its number of settings is.
        rungs: The rounds.
        score: Returns the score of a setting on a number of runs, or None if a run is missing. Lower is better.
    """
    ranked: list[list[Candidate]] = []
    leaders: list[Candidate] = []
    entrants = list(settings)
    for size, runs in rungs:
        if ranked:
            others = [setting for setting in ranked[-1] if setting not in leaders]
            kept = leaders + others[: max(size - len(leaders), 0)]
            entrants = [setting for setting in ranked[-1] if setting in kept]
        scores = [score(setting, runs) for setting in entrants]
        if None in scores:
            return Halving(ranked, entrants, runs)
        ranked.append([entrants[place] for place in np.argsort(np.array(scores, float), kind="stable")])
        if ranked[-1][0] not in leaders:
            leaders.append(ranked[-1][0])
    return Halving(ranked, [], 0)


def score_of(means: Sequence[float | None]) -> float | None:
    """Return the score of a setting from its mean regrets on some regimes, or None if one is missing.

    The means are rounded first. Those of several regimes become the geometric mean of 1 + the means, minus 1.
    """
    complete = [round(mean, SCORE_DECIMALS) for mean in means if mean is not None]
    if len(complete) < len(means):
        return None
    if len(complete) == 1:
        return complete[0]
    return math.expm1(math.fsum(map(math.log1p, complete)) / len(complete))
