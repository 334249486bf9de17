"""Choosing a setting by successive halving: all settings on a few runs, the best on more, the last few on many.

One round of this is called a rung. The score of a setting is its mean final regret, Phase I included. If one setting is
to serve several regimes, the score is the geometric mean over them of 1 + the mean final regret, minus 1 (`score_of`).
A run of a seed is the same alone and in any batch. Therefore a setting that reaches the next rung is played on the new
runs only, and all settings of a rung are compared on the same instances (Jamieson and Talwalkar 2016; Karnin, Koren and
Somekh 2013).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SCORE_DECIMALS = 3  # means are rounded to these decimals, as they are printed, before they are compared

Candidate = Mapping[str, Any]


class Rung(NamedTuple):
    """One round of successive halving.

    ``settings`` is the number of settings that `halve` compares in it, or all of the round before if these are fewer.
    But the first round compares all settings, and a later one at least the winners of all earlier rounds. ``runs`` is
    the number of runs of each setting, those of earlier rounds included.
    """

    settings: int
    runs: int


class Halving(NamedTuple):
    """How far a choice of a setting by successive halving has come.

    ``ranked`` has a list of settings for each finished round, the best first. ``waiting`` has all settings that the
    next round compares on the first ``runs`` runs; for at least one of them the score on these runs is not known yet.
    It is empty if all rounds are finished, and then ``runs`` is 0.
    """

    ranked: list[list[Candidate]]
    waiting: list[Candidate]
    runs: int


def halve(
    settings: Sequence[Candidate], rungs: Sequence[Rung], score: Callable[[Candidate, int], float | None]
) -> Halving:
    """Choose among ``settings`` by successive halving, as far as their scores are known.

    The best setting of each round is compared in all later rounds too, even if these are then more settings than the
    round should have. Settings with equal scores keep the order that they had in the round before, or in the first
    round the order of ``settings``.

    Args:
        settings: All settings, at least one, each given once. The first round compares them all, whatever its number of
            settings is.
        rungs: The rounds, from the first to the last, each with its numbers of settings and runs.
        score: A function, called with a setting and a number of runs, that returns the score of the setting on these
            runs, or None if a run is missing. Lower is better, and NaN is the worst.

    Returns:
        The ranking of each finished round, and the settings and the number of runs that the next round needs.

    Raises:
        IndexError: There is a round, but no setting.
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
    """Return the score of a setting from its mean regrets on some regimes, or None if a mean is missing (None).

    The means are rounded to three decimals first (`SCORE_DECIMALS`). For one regime the score is then the mean itself;
    for several regimes it is the geometric mean of 1 + the means, minus 1.

    Raises:
        ZeroDivisionError: There is no regime.
        ValueError: There are several means, none is missing, and one is −1 or less after rounding.
    """
    complete = [round(mean, SCORE_DECIMALS) for mean in means if mean is not None]
    if len(complete) < len(means):
        return None
    if len(complete) == 1:
        return complete[0]
    return math.expm1(math.fsum(map(math.log1p, complete)) / len(complete))
