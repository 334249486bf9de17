"""Choosing a setting by successive halving: all settings on a few runs, the best on more, the last few on many.

The criterion is the mean final regret, Phase I included. If one setting is to serve several regimes, the criterion is
the geometric mean over them of 1 + the mean final regret. The rungs are nested: a run of a seed is the same alone and
in any batch. Therefore a setting that reaches the next rung is played on the new runs only, and all settings of a rung
are compared on the same instances (Jamieson and Talwalkar 2016; Karnin, Koren and Somekh 2013).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SCORE_DECIMALS = 3  # to which means are rounded before they are compared, as they are printed

Candidate = Mapping[str, Any]


class Rung(NamedTuple):
    """One round of successive halving: the number of ``settings`` that are judged, and of ``runs`` in all for each."""

    settings: int
    runs: int


class Halving(NamedTuple):
    """The state of a choice by successive halving.

    ``ranked`` has the settings of each finished rung, the best first. ``waiting`` has the settings that must be played
    on the first ``runs`` runs next; it is empty if all rungs are finished.
    """

    ranked: list[list[Candidate]]
    waiting: list[Candidate]
    runs: int


def halve(
    settings: Sequence[Candidate], rungs: Sequence[Rung], score: Callable[[Candidate, int], float | None]
) -> Halving:
    """Return the state of the choice among ``settings``, as far as their scores are known.

    The best setting of each rung is kept to the end, so that the cost of choosing it is known. Settings with equal
    scores stay in the order in which they were given.

    Args:
        settings: The settings.
        rungs: The rungs, from the first to the last.
        score: Returns the score of a setting on a number of runs, or None if a run is missing; lower is better.
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
    """Return the score of a setting from its mean regrets on some regimes, or None if a mean is missing.

    For one regime the score is the mean itself, for several the geometric mean of 1 + the means, minus 1.
    """
    complete = [round(mean, SCORE_DECIMALS) for mean in means if mean is not None]
    if len(complete) < len(means):
        return None
    if len(complete) == 1:
        return complete[0]
    return math.expm1(math.fsum(map(math.log1p, complete)) / len(complete))
