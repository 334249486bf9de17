"""Choosing a setting by successive halving: all settings on a few runs, the best on more, the last few on many.

The criterion is the mean final regret, Phase I included; where one setting is to serve several regimes, the geometric
mean over them of 1 + that. The rungs are nested: run r of a seed is the same alone and in any batch, so a setting that
rises is played on the new runs only, and all that are compared met the same instances (Jamieson and Talwalkar 2016;
Karnin, Koren and Somekh 2013). What is still to be played follows from what is known.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

DIGITS = 3  # means are compared as they are printed

Candidate = Mapping[str, Any]


class Rung(NamedTuple):
    """One round of successive halving: how many ``settings`` are judged, and on how many ``runs`` in all."""

    settings: int
    runs: int


class Halving(NamedTuple):
    """How far a choice by successive halving has come.

    ``ranked`` has the settings of each finished rung, the best first. ``waiting`` are the settings that have to be
    played on ``runs`` runs next; it is empty if all rungs are finished.
    """

    ranked: list[list[Candidate]]
    waiting: list[Candidate]
    runs: int


def halve(
    settings: Sequence[Candidate], rungs: Sequence[Rung], score: Callable[[Candidate, int], float | None]
) -> Halving:
    """Return how far the choice among ``settings`` has come.

    The best setting of each rung stays to the end, so that the cost of choosing it is known. Equal settings stay in the
    order in which they were given.

    Args:
        settings: The settings.
        rungs: The rungs, from the first to the last.
        score: Gives the score of a setting on its first runs, or None if a run is missing.
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


def together(means: Sequence[float | None]) -> float | None:
    """Return the score of a setting from its mean regret on each regime, or None if a mean is missing.

    The score is the mean itself for one regime, and the geometric mean of 1 + the means, less 1, for several.
    """
    complete = [round(mean, DIGITS) for mean in means if mean is not None]
    if len(complete) < len(means):
        return None
    if len(complete) == 1:
        return complete[0]
    return math.expm1(math.fsum(map(math.log1p, complete)) / len(complete))
