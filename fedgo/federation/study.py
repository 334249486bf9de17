"""A study of your own: options in a CSV, rewards in your units, one client, one file; no server is needed.

The CSV has a header; its first column names the options, the others are numbers. Column j is scaled to
(v − low_j)/(high_j − low_j) with the least and the largest value of the options that the study began with (a column
that does not vary is left out), a reward y to (y − ``centre``)/``spread``; estimates are told in your units again.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo import _files
from fedgo._checks import number, on_cpu, require
from fedgo.confidence import width
from fedgo.federation.client import Client
from fedgo.federation.local import converse
from fedgo.federation.plan import Plan
from fedgo.federation.server import Server
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
        require(
            len(header) >= 2 and len(rows) >= 1, "the table", str(path), "give a header, names and numbers"
        )
        for line, row in enumerate(rows, 2):
            fits = len(row) == len(header) and all(_is_number(entry) for entry in row[1:])
            require(fits, f"row {line} of {path}", row, f"give a name and {len(header) - 1} finite numbers")
        names = [row[0].strip() for row in rows]
        require(len(set(names)) == len(names), "the names", names, "give each option one of its own")
        values = torch.tensor([[float(entry) for entry in row[1:]] for row in rows], dtype=torch.float64)
        return cls(names, header[1:], values)

    def scaled(self, first: int) -> Tensor:
        """The features as the network sees them, by the ranges of the ``first`` options, (K, d_x)."""
        low, high = self.values[:first].aminmax(dim=0)
        varies = high > low
        require(
            bool(varies.any()),
            "the columns",
            self.columns,
            "no feature varies: give one that tells options apart",
        )
        return ((self.values - low) / (high - low))[:, varies]


class Standing(NamedTuple):
    """Where one option stands, in your units: its ``pulls`` and their ``mean``, the model's ``estimate``, and the
    interval from ``low`` to ``high``, whose upper end decides what is tried next. NaN where nothing is known yet."""

    option: str
    pulls: int
    mean: float
    estimate: float
    low: float
    high: float
    retired: bool


class Study:
    """The study kept at ``path`` on the ``options``, begun if the file is not there; every ``tell`` is saved at once.

    ``centre`` and ``spread`` say which rewards you expect, ``trials`` how many you can afford: the first ⌈√trials⌉ are
    uniform. These, ``settings``, ``hidden`` and ``seed`` are fixed when the study begins. Rows may be added at the end
    of the table once the uniform trials are over; rows that are there stay, and may be retired.
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
    ) -> None:
        self.path = Path(path)
        self.options = options if isinstance(options, Options) else Options.read(options)
        self.centre = number("centre", centre, "give the reward that you expect of a usual option")
        self.spread = number("spread", spread, "give by how much options differ, a positive number")
        require(
            0 < self.spread < float("inf"),
            "spread",
            spread,
            "give by how much options differ, a positive number",
        )
        names, first = self.options.names, len(self.options.names)
        length = phase_one_length(1, trials)

        def plan(rows: int) -> Plan:
            arms = self.options.scaled(first)[:rows]
            return Plan(arms, settings, 1, Network(arms.shape[1], hidden), length, seed=seed)

        units = [self.centre, self.spread]
        if self.path.exists():
            with _files.refused_by_name(self.path, "the study", "the study that was begun here"):
                about, _ = _files.read(self.path, "the study", ())
                known, first = about["names"], about["first"]
                require(
                    names[: len(known)] == known,
                    "the names",
                    names,
                    f"the first are {known}; add rows at the end",
                )
                require(
                    about["units"] == units, "centre and spread", units, f"it was begun with {about['units']}"
                )
            self.client = Client.load(self.path, plan(len(known)))
            if len(names) > len(known):
                self.client = self.client.extended(plan(len(names)))
        else:
            self.client = Client(plan(first))
        self._also = {"names": names, "first": first, "units": units}
        self._fit()

    def ask(self) -> str:
        """The option to try next."""
        return self.options.names[self.client.ask()]

    def tell(self, option: str, reward: float) -> None:
        """Learn that ``option`` gave ``reward``, and save."""
        number("reward", reward, "give a finite number")
        self.client.tell(self._place(option), (reward - self.centre) / self.spread)
        self._fit()

    def retire(self, option: str, retired: bool = True) -> None:
        """Never propose ``option`` again, or again after all; what was learnt of it stays."""
        self.client.retire(self._place(option), retired)
        self.client.save(self.path, **self._also)

    def _place(self, option: str) -> int:
        names = self.options.names
        require(option in names, "option", option, f"choose one of {names}")
        return names.index(option)

    def _fit(self) -> None:
        """Save, and end Phase I where it is due: the oracle is a server in this process."""
        self.client.save(self.path, **self._also)
        if self.client.exploring and self.client.calling:
            converse(Server(self.client.plan), [self.client])
            self.client.save(self.path, **self._also)

    @on_cpu
    def standings(self) -> list[Standing]:
        """Every option, the best estimate first."""
        tally, view = self.client.known, self.client.view
        mean = self.centre + self.spread * tally.sums / tally.counts
        if view is None:
            estimate = half = torch.full_like(mean, torch.nan)
        else:
            estimate = self.centre + self.spread * view.mean
            half = self.spread * self.client.plan.settings.beta**0.5 * width(view.variance)
        columns = [
            tally.counts.long(),
            mean,
            estimate,
            estimate - half,
            estimate + half,
            self.client.memory.retired,
        ]
        rows = zip(self.options.names, *(column.tolist() for column in columns), strict=True)
        found = [Standing(*row) for row in rows]
        return found if view is None else sorted(found, key=lambda row: -row.estimate)


def table(standings: Sequence[Standing]) -> str:
    """The standings as lines of text."""
    size = max(len(row.option) for row in standings)
    head = f"{'option':{size}}  pulls     mean  estimate  from ... to"
    lines = [
        f"{row.option:{size}}  {row.pulls:5d}  {row.mean:7.3g}  {row.estimate:8.3g}  {row.low:.3g} ... {row.high:.3g}"
        f"{'  retired' if row.retired else ''}"
        for row in standings
    ]
    return "\n".join([head, *lines])


def _is_number(entry: str) -> bool:
    try:
        return abs(float(entry)) < float("inf")
    except ValueError:
        return False
