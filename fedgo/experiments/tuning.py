"""Equal tuning by successive halving: every setting on a few runs, the best on more, the last few on many.

The criterion is the mean final regret over the tuning runs, Phase I included. The rungs are nested: run r of a seed is
the same alone and in any batch, so a setting that rises is computed on the new runs only, and all that are compared met
the same instances (Jamieson and Talwalkar 2016; Karnin, Koren and Somekh 2013). What is still to be computed follows
from what is known, so an interrupted tuning needs no memory but its results.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from statistics import median
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

import numpy as np
import torch

from fedgo._checks import require
from fedgo.experiments import record
from fedgo.experiments.comparison import (
    ALGORITHMS,
    EXPERIMENTS,
    LINE_THREE,
    TUNING_SEED,
    YARDSTICK,
    YARDSTICK_ON,
    world,
)
from fedgo.experiments.record import Setting
from fedgo.experiments.summaries import interval, mean_error, number
from fedgo.trace import Trace

CLAIM_RUNS, CLAIM_SEED = 30, 0  # the instances that the claims are decided on (chapter 10)
DIGITS = 3  # means are compared as they are written, so that the record decides every choice again

Regrets = Mapping[str, Sequence[float]]  # of a setting as text: the final regret of its first runs


class Rung(NamedTuple):
    """How many ``settings`` are judged, and on how many ``runs`` in all."""

    settings: int
    runs: int


@dataclass(frozen=True)
class Bracket:
    """The tuning of one ``algorithm`` on one ``experiment``: its ``grid``, and the ``rungs`` from wide to narrow."""

    experiment: str
    algorithm: str
    grid: tuple[Setting, ...]
    rungs: tuple[Rung, ...]

    def __post_init__(self) -> None:
        texts = {record.text(setting) for setting in self.grid}
        require(len(texts) == len(self.grid), "grid", self.grid, "give every setting once")
        settings, runs = ([getattr(rung, part) for rung in self.rungs] for part in Rung._fields)
        first = f"the first rung of {self.rungs} takes {settings[0]}"
        require(settings[0] == len(self.grid), "the number of settings", len(self.grid), first)
        narrower = settings == sorted(settings, reverse=True) and runs == sorted(set(runs))
        require(narrower, "rungs", self.rungs, "give no more settings and more runs from rung to rung")
        places = all(rung.settings >= min(number, len(texts)) for number, rung in enumerate(self.rungs))
        require(places, "rungs", self.rungs, "leave a place for the leader of every rung before")

    @property
    def budget(self) -> int:
        """Runs that are computed: what is equal for all algorithms."""
        before = [0, *(rung.runs for rung in self.rungs)]
        return sum(rung.settings * (rung.runs - done) for rung, done in zip(self.rungs, before, strict=False))

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The grid by its texts, in order."""
        return {record.text(setting): setting for setting in self.grid}

    def entrants(self, regrets: Regrets) -> list[tuple[str, ...]]:
        """The settings of every rung that ``regrets`` can fill, best first from the second rung on.

        The leaders of all rungs before stay, whatever happens to them: what each would have cost is then known.
        """
        rungs = [tuple(self.settings)]
        leaders: dict[str, None] = {}
        for rung, following in pairwise(self.rungs):
            if any(len(regrets.get(setting, ())) < rung.runs for setting in rungs[-1]):
                break
            order = ranked(rungs[-1], regrets, rung.runs)
            leaders[order[0]] = None
            others = [setting for setting in order if setting not in leaders]
            kept = {*leaders, *others[: following.settings - len(leaders)]}
            rungs.append(tuple(setting for setting in order if setting in kept))
        return rungs

    def missing(self, regrets: Regrets) -> dict[str, range]:
        """What is to be computed next: settings and their runs; nothing if the last rung is done."""
        entrants = self.entrants(regrets)
        runs = self.rungs[len(entrants) - 1].runs
        known = {setting: len(regrets.get(setting, ())) for setting in entrants[-1]}
        return {setting: range(done, runs) for setting, done in known.items() if done < runs}


def mean(regrets: Sequence[float], runs: int) -> float:
    """The mean over the first ``runs`` runs, to `DIGITS` digits."""
    return round(math.fsum(regrets[:runs]) / runs, DIGITS)


def ranked(settings: Iterable[str], regrets: Regrets, runs: int) -> list[str]:
    """``settings`` from the least mean over the first ``runs`` runs to the largest; equal ones as they come."""
    return sorted(settings, key=lambda setting: mean(regrets[setting], runs))


class Judged(NamedTuple):
    """A setting on a rung: mean and standard error of its ``runs`` first runs, and the 95 % interval ``low`` to
    ``high`` of its mean difference to the winner over the same runs."""

    experiment: str
    algorithm: str
    setting: str
    runs: int
    mean: float
    error: float
    low: float
    high: float

    @property
    def alike(self) -> bool:
        """Whether these runs do not tell the setting from the winner."""
        return self.low <= 0 <= self.high


class Chosen(NamedTuple):
    """The winner of a bracket, mean and standard error of its ``runs`` runs, and how sure the choice is.

    ``alike``: how many of the other settings cannot be told from it, each on all the runs that it had. ``worst`` and
    ``median``: the mean of the worst and of the middle setting over the winner's, all on the runs of the first rung.
    ``first`` and ``second``: what the first and the first two rungs alone would have chosen.
    """

    experiment: str
    algorithm: str
    setting: str
    mean: float
    error: float
    runs: int
    alike: int
    worst: float
    median: float
    first: str
    second: str


class HeldOut(NamedTuple):
    """The final ``regrets``, on the runs that only the last rung has, of what the rungs up to ``rung`` choose."""

    experiment: str
    algorithm: str
    rung: int
    setting: str
    regrets: str


class Evaluated(NamedTuple):
    """The winner of a bracket on the runs of the claims, in one ``part`` of `PARTS` of a run: the ``regrets`` and the
    ``scalars`` of every run in it."""

    experiment: str
    algorithm: str
    setting: str
    part: str
    regrets: str
    scalars: str


PARTS = ("Phase I", "Phase II, first half", "Phase II, second half")


def judged(bracket: Bracket, regrets: Regrets) -> list[Judged]:
    """Every setting on every rung, best first."""
    best = np.asarray(regrets[winner(bracket, regrets)])
    rows = []
    for rung, settings in zip(bracket.rungs, bracket.entrants(regrets), strict=True):
        for setting in ranked(settings, regrets, rung.runs):
            final = np.asarray(regrets[setting])[: rung.runs]
            _, low, high = interval(np.mean, final - best[: rung.runs])
            error = float(mean_error(torch.from_numpy(final))[1])
            numbers = (
                mean(regrets[setting], rung.runs),
                *(round(part, DIGITS) for part in (error, low, high)),
            )
            rows.append(Judged(bracket.experiment, bracket.algorithm, setting, rung.runs, *numbers))
    return rows


def winner(bracket: Bracket, regrets: Regrets, rung: int = -1) -> str:
    """The best setting of the last rung, or of another one."""
    return ranked(bracket.entrants(regrets)[rung], regrets, bracket.rungs[rung].runs)[0]


def chosen(bracket: Bracket, rows: Sequence[Judged]) -> Chosen:
    """What the ``rows`` that `judged` made of a bracket say together."""
    rungs = [[row for row in rows if row.runs == rung.runs] for rung in bracket.rungs]
    best = rungs[-1][0]
    latest = {row.setting: row for row in rows}  # the rungs come in order: the last word on every setting
    alike = sum(row.alike for row in latest.values() if row.setting != best.setting)
    means = {row.setting: row.mean for row in rungs[0]}
    worst, middle = (
        round(part / means[best.setting], DIGITS) for part in (max(means.values()), median(means.values()))
    )
    leaders = [rung[0].setting for rung in rungs]
    return Chosen(
        *(bracket.experiment, bracket.algorithm, best.setting, best.mean, best.error, best.runs),
        *(alike, worst, middle, leaders[0], leaders[min(1, len(leaders) - 1)]),
    )


def held_out(bracket: Bracket, regrets: Regrets) -> list[HeldOut]:
    """One row for every rung of a bracket with at least two."""
    rows = []
    for rung in range(len(bracket.rungs) if len(bracket.rungs) > 1 else 0):
        setting = winner(bracket, regrets, rung)
        unseen = regrets[setting][bracket.rungs[-2].runs :]
        cell = " ".join(f"{regret:.1f}" for regret in unseen)
        rows.append(HeldOut(bracket.experiment, bracket.algorithm, rung + 1, setting, cell))
    return rows


def evaluated(experiment: str, algorithm: str, setting: Setting, trace: Trace) -> list[Evaluated]:
    """One row for each of the `PARTS` of ``trace``: enough for every claim that runs decide."""
    middle = (trace.phase_one + trace.arm.shape[1]) // 2
    ends = (0, trace.phase_one, middle, trace.arm.shape[1])
    rows = []
    for part, (first, end) in zip(PARTS, pairwise(ends), strict=True):
        regrets = trace.regret[:, first:end].sum(1).tolist()
        scalars = (trace.up + trace.down)[:, first:end].sum(1).tolist()
        cells = (" ".join(f"{regret:.{DIGITS}f}" for regret in regrets), " ".join(map(str, scalars)))
        rows.append(Evaluated(experiment, algorithm, record.text(setting), part, *cells))
    return rows


def _grid(**axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def _wide(grid: Iterable[Setting], ratios: tuple[float, ...]) -> tuple[Setting, ...]:
    """``grid`` with every β for which β/λ is among ``ratios``: as λ falls, results depend on this ratio alone."""
    return tuple(
        {**setting, "beta": float(f"{setting['lam'] * ratio:.3g}")} for setting in grid for ratio in ratios
    )


_RIDGE = _wide(_grid(lam=(0.00001, 0.0001, 0.001, 0.01)), (1, 3, 10, 30, 100, 300, 1000, 3000))
_GLB = _wide(_grid(link=("identity", "logistic"), lam=(0.01, 0.03, 0.1, 0.3)), (1, 10, 100, 1000))
_KERNEL = _wide(_grid(lengthscale=(0.1, 0.3, 1.0, 3.0), lam=(0.001, 0.01)), (0.3, 3, 30, 300))
_UCB1 = _grid(beta=tuple(float(f"{10 ** (k / 8 - 4.5):.3g}") for k in range(32)))

# The threshold γ is not tuned: for regret alone its best value is 0. It is 1 everywhere.
GRIDS: Mapping[str, tuple[Setting, ...]] = {
    "Fed-GO-UCB": _RIDGE,
    "One-GO-UCB": _RIDGE,
    "N-GO-UCB": _RIDGE,
    "DisLinUCB": _RIDGE,
    "Fed-GLB-UCB": _GLB,
    "ApproxDisKernelUCB": _KERNEL,
    "Kernel UCB, at once": _KERNEL,
    "UCB1, shared": _UCB1,
    "Uniform": ({},),
}
RUNGS = (Rung(32, 10), Rung(12, 30), Rung(8, 100))

# GP-UCB takes seconds for a run of a few steps: a smaller grid and fewer runs, and no comparison rests on it.
_YARDSTICK = _grid(beta=tuple(float(f"{10 ** (k / 3 - 1):.3g}") for k in range(12)))
_YARDSTICK_RUNGS = (Rung(12, 2), Rung(4, 6), Rung(2, 15))

# Line 3 wants smaller balls than its first order: a wide one has so many maxima that every arm looks good. At
# β/λ = 1,000 its regret on Cosine8 is nine times that at 1, and at 0.01 twice; what λ is hardly matters.
_LINE_THREE = _wide(_grid(lam=(0.0001, 0.01)), (0.1, 1, 10, 100))
_LINE_THREE_RUNGS = (Rung(8, 30),)

IN_SAMPLE = ("Fed-GO-UCB", "One-GO-UCB")
_IN_SAMPLE_RUNGS = (Rung(32, CLAIM_RUNS),)


class Study(NamedTuple):
    """The ``brackets`` that one ``command`` tunes, on instances of ``seed``; ``name`` begins its tables' names."""

    name: str
    command: str
    seed: int
    brackets: tuple[Bracket, ...]

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments of its brackets, in order."""
        return tuple(dict.fromkeys(part.experiment for part in self.brackets))

    def table(self, name: str) -> str:
        """The name of the study's table ``name``."""
        return f"{self.name}_{name}" if self.name else name


def bracket(experiment: str, algorithm: str, rungs: Sequence[Rung] = RUNGS) -> Bracket:
    """The bracket of one of the book's ``algorithms``; where there is one setting, it is on every rung alone."""
    grid = GRIDS[algorithm]
    return Bracket(
        experiment,
        algorithm,
        grid,
        tuple(Rung(min(rung.settings, len(grid)), rung.runs) for rung in rungs),
    )


def _book(experiment: str) -> list[Bracket]:
    found = [bracket(experiment, algorithm) for algorithm in ALGORITHMS]
    if experiment == YARDSTICK_ON:
        found.append(Bracket(experiment, YARDSTICK, _YARDSTICK, _YARDSTICK_RUNGS))
    return found


# "in_sample" chooses for the paper's algorithm on the very runs that the claims are decided on, which nobody can do
# beforehand: about the best that its authors may have had.
STUDIES = {
    study.name: study
    for study in (
        Study("", "make tune", TUNING_SEED, tuple(part for name in EXPERIMENTS for part in _book(name))),
        Study(
            "line3",
            "make tune LINE3=1",
            TUNING_SEED,
            tuple(
                Bracket(name, algorithm, _LINE_THREE, _LINE_THREE_RUNGS)
                for name in ("hartmann6", "cosine8")
                for algorithm in LINE_THREE
            ),
        ),
        Study(
            "in_sample",
            "make tune INSAMPLE=1",
            CLAIM_SEED,
            tuple(bracket(name, a, _IN_SAMPLE_RUNGS) for name in EXPERIMENTS for a in IN_SAMPLE),
        ),
    )
}


def unseen(rung: int) -> dict[str, dict[str, Trace]]:
    """The book's algorithms as the rungs up to ``rung`` choose them, on the tuning runs that only the last rung has.

    Traces of a single step with the whole run's regret, by experiment and algorithm: enough for a claim on regret. The
    first rungs have not seen these runs, the last has.
    """
    traces: dict[str, dict[str, Trace]] = {name: {} for name in EXPERIMENTS}
    for row in rows_of(HeldOut):
        if row.rung == rung and row.algorithm in ALGORITHMS:
            regret = torch.tensor([[float(part)] for part in row.regrets.split()], dtype=torch.float64)
            nothing = torch.zeros(regret.shape, dtype=torch.int64)
            within = world(row.experiment, 1)
            traces[row.experiment][row.algorithm] = Trace(
                *(row.algorithm, within.problem.name, within.clients, 0, nothing, -regret, regret),
                *(nothing, nothing, nothing.bool()),
            )
    return traces


def winners(study: str) -> dict[str, dict[str, Trace]]:
    """The winners of a named ``study`` on the runs of the claims, by experiment and algorithm, as ``make tune`` kept
    them: traces of three steps, one for each of the `PARTS`."""
    cells: dict[tuple[str, str], list[Evaluated]] = {}
    for row in rows_of(Evaluated, study):
        cells.setdefault((row.experiment, row.algorithm), []).append(row)
    traces: dict[str, dict[str, Trace]] = {}
    for (experiment, algorithm), parts in cells.items():
        regret, sent = (
            torch.tensor([[float(cell) for cell in row.split()] for row in column], dtype=torch.float64).mT
            for column in ([row.regrets for row in parts], [row.scalars for row in parts])
        )
        sent = sent.long()
        nothing = torch.zeros_like(sent)
        within = world(experiment, 1)
        traces.setdefault(experiment, {})[algorithm] = Trace(
            *(algorithm, within.problem.name, within.clients, 1, nothing, -regret, regret),
            *(sent, nothing, nothing.bool()),
        )
    return traces


Row = TypeVar("Row", "Judged", "Chosen", "HeldOut", "Outside", "Evaluated")
_TABLES: Mapping[str, str] = {
    "Judged": "tuning",
    "Chosen": "tuned",
    "HeldOut": "held_out",
    "Outside": "outside",
    "Evaluated": "evaluated",
}


def rows_of(kind: type[Row], study: str = "") -> list[Row]:
    """The rows of that ``kind`` which ``make tune`` has written."""
    types = get_type_hints(kind)
    rows = record.read(STUDIES[study].table(_TABLES[kind.__name__])).rows
    return [kind(**{name: types[name](cell) for name, cell in row.items()}) for row in rows]


class Edge(NamedTuple):
    """A winner at an ``end`` of an ``axis`` of its grid, its ``neighbour`` there, and the setting one step ``outside``.

    The edge matters where the runs tell winner and neighbour apart: the setting outside may then be better still.
    """

    experiment: str
    algorithm: str
    axis: str
    end: Literal["smallest", "largest"]
    neighbour: Judged
    outside: str

    @property
    def matters(self) -> bool:
        """Whether the neighbour is not like the winner."""
        return not self.neighbour.alike


class Outside(NamedTuple):
    """The setting one step outside an edge that matters, on the winner's first ``runs``; numbers as in `Judged`."""

    experiment: str
    algorithm: str
    axis: str
    end: str
    setting: str
    runs: int
    mean: float
    error: float
    low: float
    high: float


def coordinates(setting: Setting) -> dict[str, Any]:
    """``setting`` on the axes of its grid, where β is taken relative to λ: {"lam": λ, "beta/lam": β/λ, …}."""
    if "lam" not in setting:
        return dict(setting)
    ratio = float(f"{setting['beta'] / setting['lam']:.3g}")
    return {name: value for name, value in setting.items() if name != "beta"} | {"beta/lam": ratio}


def setting_at(place: Mapping[str, Any]) -> dict[str, Any]:
    """The setting whose `coordinates` are ``place``."""
    setting = {name: value for name, value in place.items() if name != "beta/lam"}
    if "beta/lam" in place:
        setting["beta"] = float(f"{place['lam'] * place['beta/lam']:.3g}")
    return setting


SYMBOLS = {
    "lam": r"$\lambda$",
    "beta": r"$\beta$",
    "beta/lam": r"$\beta/\lambda$",
    "lengthscale": r"$\ell$",
    "link": "link",
}


def as_set(value: float | str) -> str:
    """A ``value`` of a setting for a table, with the digits that it has and no more: 0.03, 1,000, 10⁻⁵."""
    if isinstance(value, str):
        return value
    leading, _ = f"{value:.2e}".split("e")
    return number(value, max(len(leading.replace(".", "").rstrip("0")), 1))


def in_symbols(cell: str) -> str:
    """The setting that `record.text` wrote, in the symbols of the book."""
    return ", ".join(f"{SYMBOLS[name]} {as_set(value)}" for name, value in record.parse(cell).items())


def axes_of(algorithm: str) -> dict[str, list[Any]]:
    """The axes of the grid of one of the book's algorithms, with the values on each, in order."""
    places = [coordinates(setting) for setting in GRIDS[algorithm]]
    return {axis: sorted({place[axis] for place in places}) for axis in places[0]}


def edges(best: Chosen, rows: Sequence[Judged]) -> list[Edge]:
    """Where the winner ``best`` of a bracket with the ``rows`` sits at an end of an axis of at least three values."""
    found = []
    latest = {row.setting: row for row in rows}
    grid = {setting: coordinates(record.parse(setting)) for setting in latest}
    place = grid[best.setting]
    for axis in place:
        values = sorted({at[axis] for at in grid.values()})
        if len(values) > 2 and place[axis] in (values[0], values[-1]):
            at_first = place[axis] == values[0]
            step = values[1 if at_first else -2]
            inside = next(setting for setting, at in grid.items() if at == place | {axis: step})
            further = setting_at(place | {axis: float(f"{place[axis] ** 2 / step:.3g}")})
            end: Literal["smallest", "largest"] = "smallest" if at_first else "largest"
            found.append(Edge(*best[:2], axis, end, latest[inside], record.text(further)))
    return found


def outside(best: Chosen, edge: Edge, of_winner: Sequence[float], regrets: Sequence[float]) -> Outside:
    """How ``regrets`` of the setting outside compare with those of the winner ``best`` on the same first runs."""
    runs, final = len(regrets), np.asarray(regrets)
    _, low, high = interval(np.mean, final - np.asarray(of_winner)[:runs])
    error = float(mean_error(torch.from_numpy(final))[1])
    numbers = (mean(regrets, runs), *(round(part, DIGITS) for part in (error, low, high)))
    return Outside(*best[:2], edge.axis, edge.end, edge.outside, runs, *numbers)
