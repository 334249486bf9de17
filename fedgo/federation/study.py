"""A study of your own: options in a CSV, rewards in your units, one client, one file; no server is needed.

The CSV has a header; its first column names the options, the others are numbers. Column j is scaled to
(v − low_j)/(high_j − low_j) with the least and the largest value of the options that the study began with (a column
that does not vary is left out), a reward y to (y − ``centre``)/``spread``; estimates are told in your units again.
"""

import csv
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo import _files
from fedgo._checks import number, on_cpu, require
from fedgo.beyond.epochs import Growing
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import Surrogate
from fedgo.federation.client import Client
from fedgo.federation.plan import Fitting, Plan
from fedgo.network import Network
from fedgo.phase_one import phase_one_length
from fedgo.phase_two import Settings

ALONE = Settings(lam=0.01, beta=0.1, gamma=float("inf"), encoding="counts")


class Options(NamedTuple):
    """``names`` of K options, the ``columns`` of their features, and the ``values`` (K, d) in your units."""

    names: list[str]
    columns: list[str]
    values: Tensor

    @classmethod
    def read(cls, path: str | Path) -> "Options":
        """The options of a CSV; a ``ValueError`` that names the line and the remedy."""
        with open(path, newline="", encoding="utf-8") as file:
            header, *rows = [row for row in csv.reader(file) if row] or [[]]
        columns = header[1:]
        filled = len(columns) > 0 and len(rows) > 0
        require(filled, "the table", str(path), "give a header, names and numbers")
        values = []
        for line, row in enumerate(rows, 2):
            try:
                values.append([float(entry) for entry in row[1:]])
            except ValueError:
                values.append([])
            fits = len(values[-1]) == len(columns) and all(map(isfinite, values[-1]))
            require(fits, f"row {line} of {path}", row, f"give a name and {len(columns)} finite numbers")
        names = [row[0].strip() for row in rows]
        require(len(set(names)) == len(names), "the names", names, "give each option one of its own")
        return cls(names, columns, torch.tensor(values, dtype=torch.float64))

    def scaled(self, first: int) -> Tensor:
        """The features as the network sees them, by the ranges of the ``first`` options, (K, d_x)."""
        low, high = self.values[:first].aminmax(dim=0)
        varies = high > low
        remedy = "no feature varies: give one that tells options apart"
        require(bool(varies.any()), "the columns", self.columns, remedy)
        return ((self.values - low) / (high - low))[:, varies]


class Standing(NamedTuple):
    """Where one option stands, in your units: its ``pulls`` and their ``mean``, the model's ``estimate``, and the
    interval from ``low`` to ``high``, whose upper end decides what is tried next; ``certificate`` is by how much it is
    at most worse than the best, where there is a guard. NaN where nothing is known."""

    option: str
    pulls: int
    mean: float
    estimate: float
    low: float
    high: float
    certificate: float
    retired: bool


class Study:
    """The study kept at ``path`` on the ``options``, begun if the file is not there; every ``tell`` is saved at once.

    ``centre`` and ``spread`` say which rewards you expect, ``trials`` how many you can afford: the first ⌈√trials⌉ are
    uniform. These, ``settings``, ``hidden`` and ``seed`` are fixed when the study begins. Rows may be added at the end
    of the table once the uniform trials are over; rows that are there stay, and may be retired.

    With a ``surrogate`` in place of the paper's network it is fitted anew each time that the pulls have grown by a
    third or so; ``noise`` is then σ of a reward. With ``reach``, a bound on |f − ``centre``|, it is guarded, and every
    option has a certificate; both in your units. A kept study of a surrogate is fitted again when it is opened.
    """

    def __init__(
        self,
        path: str | Path,
        options: str | Path | Options,
        centre: float,
        spread: float,
        trials: int,
        settings: Settings = ALONE,
        hidden: int = 25,
        seed: int = 0,
        surrogate: Surrogate | None = None,
        noise: float | None = None,
        reach: float | None = None,
    ) -> None:
        self.path = Path(path)
        self.options = options if isinstance(options, Options) else Options.read(options)
        self.centre = number("centre", centre, "give the reward that you expect of a usual option")
        remedy = "give by how much options differ, a positive number"
        self.spread = number("spread", spread, remedy)
        require(0 < self.spread < inf, "spread", spread, remedy)
        fitting = None if surrogate is None else self._fitting(surrogate, noise, reach, trials)
        first, kept = self._kept()
        arms = self.options.scaled(first)
        network = Network(arms.shape[1], hidden) if fitting is None else None
        plan = Plan(arms, settings, 1, network, phase_one_length(1, trials), seed=seed, fitting=fitting)
        self._about = {"names": self.options.names, "first": first, "units": [self.centre, self.spread]}
        if kept is None:
            self.client = Client(plan)
        elif kept == len(arms):
            self.client = Client.load(self.path, plan)
        else:
            self.client = Client.load(self.path, replace(plan, arms=arms[:kept])).extended(plan)
        self._keep()

    def _fitting(
        self, surrogate: Surrogate, noise: float | None, reach: float | None, trials: int
    ) -> Fitting:
        """What is fitted, in the client's units."""
        sigma = number("noise", noise, "give σ, the noise of a reward") / self.spread
        how = Fitting(sigma, trials, surrogate, Growing(), "own", untried=None, distinct=False)
        if reach is None:
            return how
        bound = number("reach", reach, "give a number") / self.spread
        return replace(how, guarantee=Guarantee(bound, sigma))

    def _kept(self) -> tuple[int, int | None]:
        """With how many options the study began, and how many its file knows, None where there is no file yet."""
        names, units = self.options.names, [self.centre, self.spread]
        if not self.path.exists():
            return len(names), None
        with _files.refused_by_name(self.path, "the study", "the study that was begun here"):
            about, _ = _files.read(self.path, "the study", ())
            known = about["names"]
            same = names[: len(known)] == known
            require(same, "the names", names, f"the first are {known}; add rows at the end")
            remedy = f"it was begun with {about['units']}"
            require(about["units"] == units, "centre and spread", units, remedy)
            return about["first"], len(known)

    def ask(self) -> str:
        """The option to try next."""
        return self.options.names[self.client.ask()]

    def tell(self, option: str, reward: float) -> None:
        """Learn that ``option`` gave ``reward``, and save."""
        number("reward", reward, "give a finite number")
        self.client.tell(self._number(option), (reward - self.centre) / self.spread)
        self._keep()

    def retire(self, option: str, retired: bool = True) -> None:
        """Never propose ``option`` again, or again after all; what was learnt of it stays."""
        self.client.retire(self._number(option), retired)
        self._keep()

    def _number(self, option: str) -> int:
        names = self.options.names
        require(option in names, "option", option, f"choose one of {names}")
        return names.index(option)

    def _keep(self) -> None:
        """Save, and do what is due, the end of Phase I or a fit."""
        client = self.client
        client.save(self.path, **self._about)
        if client.calling and (client.exploring or client.plan.fitting is not None):
            client.absorb_own()
            client.save(self.path, **self._about)

    @on_cpu
    def standings(self) -> list[Standing]:
        """Every option, the best estimate first."""
        (counts, sums), model = self.client.known, self.client.estimate
        mean = self.centre + self.spread * sums / counts
        estimate = half = certificate = torch.full_like(mean, torch.nan)
        if model is not None:
            estimate, half = self.centre + self.spread * model.mean, self.spread * (model.upper - model.mean)
        if model is not None and model.certificate is not None:
            certificate = self.spread * model.certificate
        low, high, retired = estimate - half, estimate + half, self.client.memory.retired
        columns = (counts.long(), mean, estimate, low, high, certificate, retired)
        rows = zip(self.options.names, *(column.tolist() for column in columns), strict=True)
        standings = [Standing(*row) for row in rows]
        return standings if model is None else sorted(standings, key=lambda row: -row.estimate)


def table(standings: Sequence[Standing]) -> str:
    """The standings as lines of text."""
    size = max(len(row.option) for row in standings)
    guarded = any(row.certificate == row.certificate for row in standings)
    head = f"{'option':{size}}  pulls     mean  estimate  from ... to{'        at most below best' * guarded}"
    lines = []
    for row in standings:
        interval = f"{row.low:.3g} ... {row.high:.3g}"
        last = f"{interval:17}  {row.certificate:.3g}" if guarded else interval
        line = f"{row.option:{size}}  {row.pulls:5d}  {row.mean:7.3g}  {row.estimate:8.3g}  {last}"
        lines.append(line + "  retired" * row.retired)
    return "\n".join([head, *lines])
