"""The regime map as its table has it: who wins where, by how much, at what price, who gets stuck, what is absent.

Summaries of `fedgo.experiments.regimes`' rows, what uniform play would lose, and single runs played again to look
inside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedgo._checks import require
from fedgo.beyond.surrogates import GaussianProcess, Relinearised, Surrogate
from fedgo.confidence import Tally
from fedgo.experiments import record
from fedgo.experiments.comparison import HIDDEN
from fedgo.experiments.players import FAMILIES, PLAYERS, Job, Regime, Row, measure
from fedgo.experiments.regimes import (
    LEAST,
    MAIN,
    REGIMES,
    TUNED,
    TUNING,
    chosen,
    numbers,
    planned,
    rows,
    why_not,
)
from fedgo.experiments.summaries import Array, interval
from fedgo.network import Network

STUCK = 0.1  # of what uniform play loses: a run that loses more than that in its last tenth of the steps

TITLES: Mapping[str, str] = {
    "process": "Gaussian process",
    "network": "network, refitted",
    "kernel": "kernel, fitted once",
    "process, guarded": "Gaussian process, guarded",
    "network, guarded": "network, guarded",
}
FAMILY_TITLES: Mapping[str, str] = {
    "hartmann6": "Hartmann6",
    "cosine8": "Cosine8",
    "cosine8 printed": "Cosine8 as printed",
    "levy10": "Levy-10",
    "two ridges": "two ridges",
    "network 6": "network, 6 inputs",
    "network 15": "network, 15 inputs",
    "magic": "MagicTelescope",
    "shuttle": "Shuttle",
    "magic rows": "Magic, rows",
}


@dataclass(frozen=True)
class Cell:
    """One player on one regime: final ``regret``, ``late`` regret of a step and ``packed`` scalars of every run, (S,);
    the mean ``dense`` scalars, NaN where there are none, and ``seconds`` of a run."""

    regret: Array
    late: Array
    packed: Array
    dense: float
    seconds: float
    syncs: float

    @property
    def worst(self) -> float:
        """The mean of the worst tenth of the runs, of one run at least."""
        return float(np.sort(self.regret)[-max(1, round(len(self.regret) / 10)) :].mean())


@cache
def cells() -> Mapping[tuple[str, str], Cell]:
    """Every cell by (regime, player), of the rows of the table whose runs follow one another from the first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows(), key=lambda row: row.first):
        group = groups.setdefault((row.regime, row.player), [])
        if row.first == sum(other.runs for other in group):
            group.append(row)
    return {name: _cell(group) for name, group in groups.items() if group}


def _cell(group: Sequence[Row]) -> Cell:
    regret, late, packed = (
        np.array([value for row in group for value in numbers(getattr(row, part))])
        for part in ("regrets", "late", "packed")
    )
    weights = [row.runs for row in group]
    dense, seconds, syncs = (
        float(np.average([getattr(row, part) for row in group], weights=weights))
        for part in ("dense", "seconds", "syncs")
    )
    return Cell(regret, late, packed, dense, seconds, syncs)


def regimes() -> list[Regime]:
    """The regimes of the map, in its order, on which all of `MAIN` have a cell."""
    return [regime for regime in REGIMES if all((regime.name, name) in cells() for name in MAIN)]


def players(regime: Regime) -> list[str]:
    """Who has a cell on ``regime``, in the order of the registry."""
    return [name for name in PLAYERS if (regime.name, name) in cells()]


@cache
def uniform(regime: Regime) -> float:
    """What a step of uniform play loses, on average over the runs of ``regime`` that somebody has."""
    runs = max(len(cells()[regime.name, name].regret) for name in players(regime))
    means = regime.world(range(runs)).problem.means
    return float((means.amax(1) - means.mean(1)).mean())


def pulls(regime: Regime) -> float:
    """NT/K, the pulls for each arm."""
    return regime.clients * regime.rounds / regime.arms


def share(regime: Regime, player: str) -> float:
    """The mean regret of ``player`` over that of uniform play in as many steps."""
    steps = regime.world(range(1)).steps
    return float(cells()[regime.name, player].regret.mean()) / (uniform(regime) * steps)


def stuck(regime: Regime, player: str) -> npt.NDArray[np.bool_]:
    """Which runs still lose, in the last tenth of the steps, more than `STUCK` of what uniform play does, (S,) bool."""
    late = cells()[regime.name, player].late
    return np.asarray(late > STUCK * uniform(regime))


def difference(regime: Regime, ours: str, other: str) -> tuple[float, float, float]:
    """The mean regret of ``ours`` minus that of ``other`` over their common runs, with its interval."""
    one, two = cells()[regime.name, ours].regret, cells()[regime.name, other].regret
    runs = min(len(one), len(two))
    return interval(np.mean, one[:runs] - two[:runs])


def ratio(regime: Regime, ours: str, other: str) -> tuple[float, float, float]:
    """The mean regret of ``ours`` over that of ``other`` on their common runs, with its interval."""
    one, two = cells()[regime.name, ours].regret, cells()[regime.name, other].regret
    runs = min(len(one), len(two))
    return interval(_over, one[:runs], two[:runs])


def _over(one: Array, two: Array, axis: int) -> Any:
    return one.mean(axis) / two.mean(axis)


def leader(regime: Regime) -> str:
    """The player with the least mean regret: one after the other, those with most runs first, over common runs."""
    first, *others = sorted(players(regime), key=lambda name: -len(cells()[regime.name, name].regret))
    for name in others:
        first = name if difference(regime, name, first)[0] < 0 else first
    return first


def alike(regime: Regime) -> list[str]:
    """The leader, and who cannot be told from it: the interval of the paired difference holds 0."""
    first = leader(regime)
    others = [name for name in players(regime) if name != first]
    return [first, *(name for name in others if difference(regime, name, first)[1] <= 0)]


def title(regime: Regime) -> str:
    """Its family and K, and what else is not as in the base point; where the noise is a coin's, it says so."""
    parts = [FAMILY_TITLES[regime.family], f"{regime.arms:,} arms"]
    if regime.sigma != 0.1:
        parts.append("coins" if regime.family == "magic rows" else f"noise {regime.sigma:g}")
    if regime.rounds != 100:
        parts.append(f"T {regime.rounds:,}")
    return ", ".join(parts)


def saw(regime: Regime) -> bool:
    """Whether the tuning saw the family."""
    return FAMILIES[regime.family].saw


class Absent(NamedTuple):
    """Runs that the map does not have: of whom, on what, how many, why, and the core ``minutes`` that they would take.

    The reason is one of `why_not`, or "time", planned and not reached, or "more" where the cell has some runs. The
    minutes are those of the cell's other runs, or of the player's dearest cell, times K²NT over that cell's; NaN where
    no time is missing.
    """

    regime: Regime
    player: str
    runs: int
    reason: str
    minutes: float


def absent() -> list[Absent]:
    """All of them, regime by regime."""
    plan = planned()
    found = []
    for regime, player in product(REGIMES, PLAYERS):
        have = cells().get((regime.name, player))
        reason = why_not(regime, player)
        lacking = (LEAST if reason else plan[regime, player]) - (len(have.regret) if have else 0)
        if lacking > 0:
            timely = reason in ("dear", "")
            minutes = lacking * _seconds(regime, player) / 60 if timely else float("nan")
            why = reason or ("more" if have else "time")
            found.append(Absent(regime, player, lacking, why, minutes))
    return found


def _seconds(regime: Regime, player: str) -> float:
    """Of a run of ``player`` on ``regime``, measured there or drawn out from its dearest cell."""
    if (regime.name, player) in cells():
        return cells()[regime.name, player].seconds
    nearest = {other: cells()[other.name, player].seconds for other in REGIMES if player in players(other)}
    other = max(nearest, key=lambda one: nearest[one], default=None)
    return nearest[other] * _work(regime) / _work(other) if other else float("nan")


def _work(regime: Regime) -> float:
    """K²NT, what covariances of the arms cost."""
    return regime.arms**2 * regime.clients * regime.rounds


class Again(NamedTuple):
    """The final regrets of the first runs of a cell as they are ``stored`` and computed ``now``."""

    stored: list[float]
    now: list[float]


def again(regime: Regime, player: str, runs: int, seed: int = 0) -> Again:
    """The first ``runs`` runs of the cell, computed afresh; with another ``seed``, as many on other instances."""
    row = next(row for row in rows() if (row.regime, row.player, row.first) == (regime.name, player, 0))
    found = measure(Job(regime, player, row.setting, seed, range(min(runs, row.runs))))
    now = numbers(found.regrets)
    return Again(numbers(row.regrets)[: len(now)], now)


class Tried(NamedTuple):
    """A ``setting`` of the grid, its final ``regret`` on a tuning regime, (S,), and whether it was ``best``."""

    setting: Mapping[str, Any]
    regret: Array
    best: bool


def tried(player: str, regime: Regime) -> list[Tried]:
    """What the tuning saw of ``player`` on the tuning regime ``regime``, in the order of the grid."""
    require(regime in TUNING, "regime", regime, f"choose one of {TUNING}")
    best = {row.player: row.setting for row in chosen()}[player]
    return [
        Tried(record.parse(row.setting), np.array(numbers(row.regrets)), row.setting == best)
        for row in rows(TUNED)
        if (row.player, row.regime) == (player, regime.name)
    ]


class Belief(NamedTuple):
    """What a surrogate believes at the end of a ``run`` with this ``regret``.

    The best arm was pulled ``pulls`` times; its mean reward is ``error`` of the surrogate's standard deviations above
    the surrogate's mean for it; and it takes κ = ``needed`` for the optimist to prefer it to the largest mean.
    """

    run: int
    regret: float
    pulls: int
    error: float
    needed: float


def beliefs(regime: Regime, player: str, picked: Sequence[int], **changes: float) -> list[Belief]:
    """The runs ``picked`` of a surrogate's cell played again, with ``changes`` of its setting, and what it believes."""
    setting = {row.player: record.parse(row.setting) for row in chosen()}[player] | changes
    world = regime.world(picked)  # type: ignore[arg-type]
    trace = PLAYERS[player].play(world, setting)
    d_x, arms = world.problem.arms.shape[-1], world.problem.means.shape[1]
    surrogate: Surrogate = GaussianProcess() if player == "process" else Relinearised(Network(d_x, HIDDEN))
    found = []
    for at, run in enumerate(picked):
        counts = torch.bincount(trace.arm[at], minlength=arms).double()
        sums = torch.bincount(trace.arm[at], weights=trace.reward[at], minlength=arms)
        fit = surrogate.fit(world.problem.arms[at], Tally(counts, sums), world.problem.sigma)
        truth = world.problem.means[at]
        best = int(truth.argmax())
        spread = fit.variance[best].clamp(min=1e-12).sqrt()
        found.append(
            Belief(
                run,
                float(trace.regret[at].sum()),
                int(counts[best]),
                float((truth[best] - fit.mean[best]) / spread),
                float((fit.mean.max() - fit.mean[best]) / spread),
            )
        )
    return found
