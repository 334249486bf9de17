"""What is said when a study begins: its options, read from a CSV or a pandas frame, and all else; with every check."""

import csv
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, require, require_kind
from fedgo._streams import generator
from fedgo.beyond.advised import METHODS, Advised
from fedgo.beyond.epochs import distinct
from fedgo.beyond.federation.wire import HUGE
from fedgo.beyond.guard.guarantee import Guarantee
from fedgo.beyond.surrogates.models import IndependentArms, Surrogate
from fedgo.beyond.surrogates.sites import Sites

_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # no character of a line of text
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)
_OF_EARLIER = "fed-go-ucb"  # a method that a study no longer has


def composed(received: Any) -> Any:
    """Return text without blanks around it, its accents composed (Unicode's NFC), and anything else as it is."""
    return unicodedata.normalize("NFC", received).strip() if isinstance(received, str) else received


def names_of(what: str, received: Sequence[Any]) -> tuple[str, ...]:
    """Return the names ``received``, composed.

    Raises:
        ValueError: A name is no text, is empty, has a line break or a control character, or stands twice.
    """
    names = tuple(map(composed, received))
    for name in names:
        fits = isinstance(name, str) and name != "" and _NO_TEXT.search(name) is None
        require(fits, f"the name of {what}", name, "give a line of text that is not empty")
    twice = [name for name, times in Counter(names).items() if times > 1]
    require(not twice, f"the name of {what} that stands twice", twice[:1], "give each one of its own")
    return names


class Options(NamedTuple):
    """The K options of a study and their features, in the user's units.

    Args:
        names: The K names, each once.
        columns: The names of the d features.
        rows: The features of each option, d finite numbers.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, source: Any) -> "Options":
        """Return the options in a table: a header, then a row for each option, its name and d numbers.

        Columns without any entry at the right end, and rows without any, are left out: spreadsheets write them.

        Args:
            source: The path of a CSV in UTF-8 with commas, or a pandas frame, whose index has the names unless it only
                counts; then the first column has them.

        Raises:
            TypeError: ``source`` is neither.
            ValueError: The table cannot be read; the message names the row and the remedy.
        """
        if isinstance(source, str | Path):
            where, (header, *rows) = str(source), _csv_rows(source)
        else:
            require_kind(
                hasattr(source, "itertuples"), "options", source, "give a CSV's path, or a pandas frame"
            )
            frame = source if type(source.index).__name__ == "RangeIndex" else source.reset_index()
            where, header = "the frame", [str(name) for name in frame.columns]
            rows = list(frame.itertuples(index=False, name=None))
        lines = [(line, row) for line, row in enumerate(rows, 2) if len(row)]
        require(len(header) > 0 and len(lines) > 0, "the table", where, "give a header, names and numbers")
        heads = list(filter(is_number, header[1:]))
        require(not heads, f"the header of {where}", heads, "these are numbers: give the columns names first")
        remedy = f"give a name and {len(header) - 1} finite numbers, with decimal points"
        for line, row in lines:
            fits = len(row) == len(header) and row[0] not in ("", None) and row[0] == row[0]
            require(fits and all(map(is_number, row[1:])), f"row {line} of {where}", list(row), remedy)
        values = tuple(tuple(map(float, row[1:])) for _, row in lines)
        return cls(tuple(str(row[0]) for _, row in lines), tuple(header[1:]), values).checked()

    def checked(self) -> "Options":
        """Return the same options, with composed names and with floats.

        Raises:
            ValueError: A name is no line of text or stands twice, or a row has other entries than numbers within
                ±1e100, one for each column.
        """
        names, columns = names_of("an option", self.names), names_of("a column", self.columns)
        remedy = f"give a list of numbers within ±{HUGE:g}, one for each column"
        for name, row in zip(names, self.rows, strict=True):
            fits = isinstance(row, list | tuple) and len(row) == len(columns)
            require(fits and all(map(_is_finite, row)), f"the features of {name!r}", row, remedy)
        return Options(names, columns, tuple(tuple(map(float, row)) for row in self.rows))

    def scaled(self, first: int) -> Tensor:
        """Return the features as a model sees them: column j as (v − low_j)/(high_j − low_j).

        Args:
            first: low_j and high_j are the least and the largest value of column j among so many first options.

        Returns:
            The features of all options, (K, d_x); a column whose first values are all the same is left out.
        """
        values = torch.tensor(self.rows, dtype=torch.float64)
        low, high = values[:first].aminmax(dim=0)
        varies = high > low
        return ((values - low) / (high - low))[:, varies]


def _csv_rows(path: str | Path) -> list[list[str]]:
    """Return the rows of the CSV at ``path``, a blank row as [], without the columns at the right that have no entry.

    A ``ValueError`` says how to save the table anew if it is no CSV in UTF-8 with commas.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{str(path)!r} is no CSV in UTF-8: save it as 'CSV UTF-8' ({error})") from error
    foreign = any(mark in entry for entry in rows[0] for mark in (";", "\t", "sep="))
    remedy = "separate by commas, with decimal points, and leave out a line 'sep='"
    require(not foreign, f"the header of {path}", rows[0], remedy)
    width = max((k for row in rows for k, entry in enumerate(row, 1) if entry.strip()), default=0)
    return [row[:width] if "".join(row).strip() else [] for row in rows]


def is_number(entry: Any) -> bool:
    """Whether ``entry`` is a number in ASCII digits with a decimal point, or text that is one."""
    return _NUMBER.fullmatch(str(entry)) is not None


def _is_finite(value: Any) -> bool:
    """Whether ``value`` is a number, and within ±1e100, so that no square of it leaves float64."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -HUGE <= value <= HUGE


@dataclass(frozen=True)
class Setup:
    """What a study is begun with; making one checks every field.

    Args:
        options: The K options and their features.
        begun: With how many options the study began; those that follow were added later.
        trials: About how many trials the user can afford; more may follow.
        noise: σ, the standard deviation of a reward, from 1e-100 to 1e100.
        method: "advised", "ucb1" or "every arm once"; with a ``surrogate``, any name for it.
        surrogate: A model of the user's own, played like the advised one, or None.
        sites: Who tries, if several do.
        centre: A usual reward, or None.
        spread: By how much options differ, or None.
        reach: A bound on |f − ``centre``| for every option, with which a guard gives certificates, or None.
        seed: Decides the order of the first options, and ties.
        differ: Whether the sites have reward functions of their own, of which each is fitted.
        joined: How many of the sites joined later; they are the last ones.

    Raises:
        TypeError: A field is of another kind.
        ValueError: A field has a value that is not allowed; the message names it, and the remedy.
    """

    options: Options
    begun: int
    trials: int
    noise: float
    method: str = "advised"
    surrogate: Surrogate | None = field(default=None, hash=False)
    sites: tuple[str, ...] = ()
    centre: float | None = None
    spread: float | None = None
    reach: float | None = None
    seed: int = 0
    differ: bool = False
    joined: int = 0

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"options": self.options.checked(), "sites": named_sites(self.sites)}
        least, most = 1, len(self.options.names)
        checked["begun"] = count("begun", self.begun, "give with how many options it began", least, most)
        checked["trials"] = count("trials", self.trials, "give about how many you can afford, at least 1")
        checked["seed"] = count("seed", self.seed, "give a whole number from 0 on", least=0, most=math.inf)
        most, remedy = max(0, len(self.sites) - 1), "give how many sites joined later"
        checked["joined"] = count("joined", self.joined, remedy, least=0, most=most)
        checked["noise"] = _deviation("noise", self.noise, "give σ > 0, the noise of a reward")
        if self.centre is not None:
            checked["centre"] = number("centre", self.centre, "give a usual reward", above=-HUGE, below=HUGE)
        if self.spread is not None:
            checked["spread"] = _deviation("spread", self.spread, "give by how much options differ")
        if self.reach is not None:
            checked["reach"] = _deviation("reach", self.reach, "give a bound on |f − centre|")
            remedy = "give the middle: reach is counted from there"
            require_kind(self.centre is not None, "centre", None, remedy)
        for name, value in checked.items():
            object.__setattr__(self, name, value)  # numbers, tuples and text as JSON holds them
        if self.surrogate is None:
            remedy = "a study no longer plays it: Plan(arms, network=Network(…)) does, over letters; begin another file"
            require(self.method != _OF_EARLIER, "method", self.method, remedy)
            names = list(METHODS)
            remedy = f"choose one of {names}, or give a Surrogate"
            require(self.method in names, "method", self.method, remedy)
        require_kind(isinstance(self.differ, bool), "differ", self.differ, "give True or False")
        if self.differ:
            remedy = "give two at least (--site twice in a shell), or leave differ out"
            require(len(self.sites) > 1, "sites", list(self.sites), remedy)
            remedy = "sites that differ have their own model: give 'advised', or leave differ out"
            fits = self.surrogate is None and self.method != "ucb1"
            require(fits, "method", self.method, remedy)
        fit = getattr(self.played.surrogate, "fit", None)
        require_kind(callable(fit), "method", self.surrogate, "give the name of a method, or a Surrogate")
        if not isinstance(self.played.surrogate, IndependentArms):
            remedy = "no feature varies: give one that tells options apart, or play 'ucb1' without"
            require(self.arms.shape[1] > 0, "the columns", list(self.options.columns), remedy)

    @cached_property
    def played(self) -> Advised:
        """What is played: the method of this name, or the advised one with the user's own model; with the model of
        sites that differ, if they do."""
        surrogate = Sites() if self.differ else self.surrogate
        return METHODS[self.method] if surrogate is None else replace(METHODS["advised"], surrogate=surrogate)

    @cached_property
    def arms(self) -> Tensor:
        """The scaled features (K, d_x) by the ranges of the options with which the study began."""
        return self.options.scaled(self.begun)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each option, from 0 to K − 1, by its name."""
        return {name: arm for arm, name in enumerate(self.options.names)}

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The options that are tried before anything is fitted: distinct ones in random order."""
        length = self.played.first(1, self.begun, self.trials)
        arms = distinct(self.begun, length, generator(self.seed, 0, "each arm"))
        return tuple(self.options.names[arm] for arm in arms.tolist())

    def option(self, received: Any) -> str:
        """Return the name of the option ``received``, composed; a ``ValueError`` says which names are near it."""
        name = composed(received)
        if isinstance(name, str) and name in self.number_of:
            return name
        near = get_close_matches(str(received), self.options.names, 2) or self.options.names[:2]
        raise ValueError(f"option is {received!r}: did you mean {' or '.join(map(repr, near))}?")

    def place(self, received: Any) -> str:
        """Return the name of the site ``received``, composed, or "" for None in a study without sites."""
        if received in (None, "") and not self.sites:
            return ""
        remedy = f"give the site (--site in a shell), one of {list(self.sites)}"
        remedy = remedy if self.sites else "this study has no sites"
        require(composed(received) in self.sites, "site", received, remedy)
        return str(composed(received))

    @property
    def rows(self) -> tuple[str | None, ...]:
        """The sites that have estimates of their own, or None alone if there is one estimate for all."""
        return self.sites if self.differ else (None,)

    def row(self, site: Any) -> int:
        """Return the place of the ``site`` among the `rows`; if sites do not differ, it is 0 whatever the ``site``."""
        return self.sites.index(self.place(site)) if self.differ else 0

    @property
    def guarantee(self) -> Guarantee | None:
        """The guard's bounds, if there is a ``reach``; if sites differ, each has an equal share of δ."""
        if self.reach is None:
            return None
        guarantee = Guarantee(self.reach, self.noise)
        return replace(guarantee, delta=guarantee.delta / len(self.rows))

    def extended(self, table: Options) -> "Setup":
        """Return this setup with the options that were added at the end of the ``table``.

        Raises:
            ValueError: The table has other columns, or its first rows are not those of the study.
        """
        before, size = self.options, len(self.options.names)
        names, remedy = list(before.names), f"the study has {list(before.columns)}"
        require(table.columns == before.columns, "the columns", list(table.columns), remedy)
        remedy = f"the first are {names}; add rows at the end"
        require(table.names[:size] == before.names, "the names", list(table.names), remedy)
        changed = [name for name, row, was in zip(names, table.rows, before.rows, strict=False) if row != was]
        remedy = "give a changed option a name of its own"
        require(not changed, "the options with other numbers", changed, remedy)
        return replace(self, options=table) if len(table.names) > size else self


def named_sites(sites: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the ``sites``, a list of texts, each once."""
    fits = isinstance(sites, Sequence) and not isinstance(sites, str)
    require_kind(fits, "sites", sites, "give a list of names: sites=['north', 'south']")
    return names_of("a site", sites)


def _deviation(name: str, received: Any, remedy: str) -> float:
    """Return ``received`` as a float if it is a number from 1e-100 to 1e100, whose square is finite and not 0."""
    return number(name, received, f"{remedy}, from {1 / HUGE:g} to {HUGE:g}", least=1 / HUGE, below=HUGE)
