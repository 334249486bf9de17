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
    """How many ``settings`` are judged, and on how many ``runs`` in all."""

    settings: int
    runs: int


class Halving(NamedTuple):
    """The settings of every rung that is done, ``ranked`` from the best on; and those ``waiting`` to be played on
    ``runs`` runs, if not all rungs are."""

    ranked: list[list[Candidate]]
    waiting: list[Candidate]
    runs: int


def halve(
    settings: Sequence[Candidate], rungs: Sequence[Rung], score: Callable[[Candidate, int], float | None]
) -> Halving:
    """How far the choice among ``settings`` has come, given the ``score`` of each on its first runs, None if it lacks.

    The leader of a rung stays to the end, whatever becomes of it: what its choice would have cost is then known. Equal
    settings stay in the order in which they were given.
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
    """The score of a setting with these ``means``, one for each regime: the mean, or the geometric one of several."""
    there = [round(mean, DIGITS) for mean in means if mean is not None]
    if len(there) < len(means):
        return None
    if len(there) == 1:
        return there[0]
    return math.expm1(math.fsum(map(math.log1p, there)) / len(there))
