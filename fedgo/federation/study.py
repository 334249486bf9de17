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
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import Surrogate
from fedgo.federation.client import Client
from fedgo.federation.local import converse
from fedgo.federation.plan import Fitting, Plan
from fedgo.federation.server import Link, Server
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
        self.spread = number("spread", spread, "give by how much options differ, a positive number")
        require(
            0 < self.spread < float("inf"),
            "spread",
            spread,
            "give by how much options differ, a positive number",
        )
        names, first = self.options.names, len(self.options.names)
        length = phase_one_length(1, trials)
        fitting = None
        if surrogate is not None:
            sigma = number("noise", noise, "give σ, the noise of a reward") / self.spread
            bound = None if reach is None else number("reach", reach, "give a number") / self.spread
            guarantee = None if bound is None else Guarantee(bound, sigma)
            fitting = Fitting(surrogate, sigma, trials, guarantee=guarantee)

        def plan(rows: int) -> Plan:
            arms = self.options.scaled(first)[:rows]
            network = Network(arms.shape[1], hidden) if fitting is None else None
            return Plan(arms, settings, 1, network, length, seed=seed, fitting=fitting)

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
        """Save, and do what is due, the end of Phase I or a fit: the server is in this process."""
        client, memory = self.client, self.client.memory
        client.save(self.path, **self._also)
        if client.calling and (client.exploring or client.plan.fitting is not None):
            server = Server(client.plan)
            if not client.exploring:  # all that a server of one client knows is what that client knows
                links = (Link(memory.applied, memory.applied, memory.applied),)
                desk = server.desk._replace(number=memory.applied, links=links, started=True)
                server.desk = desk._replace(total=memory.base)
            converse(server, [client])
            client.save(self.path, **self._also)

    @on_cpu
    def standings(self) -> list[Standing]:
        """Every option, the best estimate first."""
        tally, found = self.client.known, self.client.estimate
        mean = self.centre + self.spread * tally.sums / tally.counts
        estimate = half = certificate = torch.full_like(mean, torch.nan)
        if found is not None:
            estimate, half = self.centre + self.spread * found.mean, self.spread * (found.upper - found.mean)
            if found.certificate is not None:
                certificate = self.spread * found.certificate
        columns = [
            tally.counts.long(),
            mean,
            estimate,
            estimate - half,
            estimate + half,
            certificate,
            self.client.memory.retired,
        ]
        rows = zip(self.options.names, *(column.tolist() for column in columns), strict=True)
        all_of_them = [Standing(*row) for row in rows]
        return all_of_them if found is None else sorted(all_of_them, key=lambda row: -row.estimate)


def table(standings: Sequence[Standing]) -> str:
    """The standings as lines of text."""
    size = max(len(row.option) for row in standings)
    guarded = any(row.certificate == row.certificate for row in standings)
    head = f"{'option':{size}}  pulls     mean  estimate  from ... to{'        at most below best' * guarded}"
    lines = []
    for row in standings:
        reach = f"{row.low:.3g} ... {row.high:.3g}"
        last = f"{reach:17}  {row.certificate:.3g}" if guarded else reach
        line = f"{row.option:{size}}  {row.pulls:5d}  {row.mean:7.3g}  {row.estimate:8.3g}  {last}"
        lines.append(line + "  retired" * row.retired)
    return "\n".join([head, *lines])


def _is_number(entry: str) -> bool:
    try:
        return abs(float(entry)) < float("inf")
    except ValueError:
        return False
