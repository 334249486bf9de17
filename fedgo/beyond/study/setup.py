"""The content of a study: the setup with which it begins, the record of what has happened since, and their file.

The setup consists of the options, which are read from a CSV file or a pandas frame, and of the settings. An option is
one of the choices among which the study looks for the best, an arm in the terms of the paper. Every value is checked.

The file is JSON. ``about`` has the fields of the `Setup`; ``columns``, ``options`` (the features of each option by its
name) and ``begun`` have the options. ``told`` has the option, the site and the reward of every trial whose reward is
known, and ``open`` the option and the site of every trial that was asked for and whose reward is not known.
``retired``, ``plan`` and ``until`` are the fields of the `Record`. A site is "" in a study without sites.
"""

import csv
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo._streams import generator
from fedgo.beyond.advised import BEFORE, METHODS, UCB1, Advised
from fedgo.beyond.epochs import distinct
from fedgo.beyond.federation.wire import HUGE, checked_reward
from fedgo.beyond.guard.guarantee import Guarantee
from fedgo.beyond.surrogates.models import IndependentArms, Surrogate
from fedgo.beyond.surrogates.sites import Sites

Trial = tuple[str, str]
Told = tuple[str, str, float]

_VERSION = 1
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)
_NO_MORE = {"fed-go-ucb": "a study no longer plays it; Plan(arms, network=Network(…)) does, over letters"}


def composed(received: Any) -> Any:
    """Return a text in one line, with single blanks between its words and its accents composed (Unicode's NFC).

    Anything that is not a text is returned as it is.
    """
    return " ".join(unicodedata.normalize("NFC", received).split()) if isinstance(received, str) else received


def is_number(entry: Any) -> bool:
    """Return whether ``entry`` is a number within ±1e100, or a text of such a number.

    A text may have ASCII digits, a sign, a decimal point and an exponent, but no comma. NaN is no
    number here. The limit keeps the square of every number finite in float64.
    """
    if isinstance(entry, float):
        return -HUGE <= entry <= HUGE
    return _NUMBER.fullmatch(str(entry)) is not None and abs(float(str(entry))) <= HUGE


def _names(what: str, received: Any) -> tuple[str, ...]:
    """Return the names ``received`` as a tuple, each in one line (`composed`); ``what`` says in errors what they name.

    Raises:
        TypeError: ``received`` is not a list or a tuple.
        ValueError: A name is not text, is empty, has a character that cannot be printed, or occurs twice.
    """
    remedy = f"give a list of names: {what}s=['north', 'south']"
    require_kind(isinstance(received, list | tuple), f"{what}s", received, remedy)
    names = tuple(map(composed, received))
    # a table may be long, so the words of an error are made only if there is one
    for place, name in enumerate(names, 1):
        if not (isinstance(name, str) and name.isprintable() and name != ""):
            require(False, f"the name of {what} {place}", name, "give a text of printable characters")
    twice = [name for name, times in Counter(names).items() if times > 1]
    require(not twice, f"the name that two {what}s have", twice[:1], "give each its own name")
    return names


@dataclass(frozen=True)
class Options:
    """The K options of a study and their features, in the user's units; the constructor checks every entry.

    Args:
        names: The names of the K options, each once.
        columns: The names of the d features.
        rows: The features of each option, d numbers within ±1e100, or texts of such numbers.

    Raises:
        TypeError: The names or the columns are not a list or a tuple.
        ValueError: A name is not text, is empty, has a character that cannot be printed, or occurs twice; a row does
            not have d such numbers; or there is not one row for each name. The message names the entry.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        names, columns = _names("option", self.names), _names("column", self.columns)
        remedy = f"give a number within ±{HUGE:g}, with a decimal point, for each of {list(columns)}"
        for name, row in zip(names, self.rows, strict=True):
            # as for the names, the words of an error are made only if there is one
            if not (isinstance(row, list | tuple) and len(row) == len(columns) and all(map(is_number, row))):
                require(False, f"the row of {name!r}", row, remedy)
        rows = tuple(tuple(map(float, row)) for row in self.rows)
        vars(self).update(names=names, columns=columns, rows=rows)

    @classmethod
    def of(cls, source: Any) -> "Options":
        """Return the options in a table: a header, then a row for each option with its name and d numbers.

        Columns without any entry at the right end of a CSV file, and rows without any, are left out, because
        spreadsheets write them.

        Args:
            source: The path of a CSV file in UTF-8 with commas, or a pandas frame. The index of a frame has the names,
                unless it is a plain count of rows; then the first column has them.

        Raises:
            TypeError: ``source`` is neither a path nor a frame.
            ValueError: The table cannot be read or has an entry that is not allowed; the message names it and the
                remedy.
            OSError: The file does not exist or cannot be read.
        """
        if isinstance(source, str | Path):
            rows: list[Any] = _csv_rows(source)
        else:
            remedy = "give a CSV's path, or a pandas frame"
            require_kind(hasattr(source, "itertuples"), "options", source, remedy)
            frame = source if type(source.index).__name__ == "RangeIndex" else source.reset_index()
            cells = frame.astype(object).where(frame.notna(), "")
            rows = [frame.columns, *cells.itertuples(index=False, name=None)]
        require(len(rows) > 1, "the table", rows, "give a header, then rows of a name and numbers")
        (_, *columns), *rows = rows
        heads = list(filter(is_number, columns))
        require(not heads, "the header", heads, "these are numbers: give the columns names first")
        names = tuple(str(name) for name, *_ in rows)
        return cls(names, tuple(map(str, columns)), tuple(tuple(features) for _, *features in rows))

    @on_cpu
    def scaled(self, first: int) -> Tensor:
        """Return the features as a model receives them: each value v of column j as (v − low_j)/(high_j − low_j).

        Args:
            first: The number of options, at least 1 and counted from the first on, whose smallest and largest values in
                column j are low_j and high_j.

        Returns:
            The scaled features of all K options, (K, d_x). Of the d columns of the table, those in which these first
            options are all alike are left out, so that d_x ≤ d.
        """
        values = torch.tensor(self.rows, dtype=torch.float64)
        low, high = values[:first].aminmax(dim=0)
        varies = high > low
        return ((values - low) / (high - low))[:, varies]


def _csv_rows(path: str | Path) -> list[list[str]]:
    """Return the rows of the CSV file at ``path`` that have an entry, each up to its last entry.

    Raises:
        ValueError: The file is not a CSV file in UTF-8 with commas; the message says how to save it again.
        OSError: The file does not exist or cannot be read.
    """
    remedy = "separate by commas, with decimal points, and leave out a line 'sep='"
    try:
        with open(path, encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(line.rstrip(" ,\n") + "\n" for line in file) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{str(path)!r} is no CSV in UTF-8: save it as 'CSV UTF-8' ({error})") from error
    foreign = [row[0] for row in rows[:1] if len(row) == 1 and re.search("[;\t]|sep=", row[0])]
    require(not foreign, f"the first line of {path}", foreign, remedy)
    return rows


@dataclass(frozen=True)
class Setup:
    """The data with which a study begins; the constructor checks every field.

    Args:
        options: The K options and their features.
        begun: The number of options with which the study began, at least 1; the options after them were added later.
        trials: The approximate number of trials that the user can afford, at least 1; more may follow.
        noise: σ, the standard deviation of a reward's noise, from 1e-100 to 1e100.
        method: "advised", "ucb1" or "every arm once"; with a ``surrogate``, any name for it.
        surrogate: A model of the user's own, which takes the place of the recommended one, or None.
        sites: The names of the sites that make trials, if there are several.
        centre: A usual reward within ±1e100, or None to estimate it from the first rewards; ``reach`` needs it.
        spread: The usual distance of rewards from ``centre``, in the range of ``noise``, or None to estimate it.
        reach: A bound on |f − ``centre``| for the mean reward f of every option, in the range of ``noise``, with which
            a guard gives certificates; or None.
        seed: The seed of the order of the first options, and of the order in which ties are broken, at least 0.
        differ: Whether each site has a reward function of its own, which is then fitted for it. This needs two sites or
            more, another ``method`` than "ucb1", and no ``surrogate``.
        joined: The number of sites that joined later; they are the last of ``sites``, but not all of them.
        setting: The numbers of the method (`Advised.setting`), which say how much is explored; None means those of
            ``method``.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A field has a value that is not allowed; ``reach`` is given without ``centre``; ``differ`` is given
            without its conditions; or no feature varies among the options with which the study began, and the method
            needs features. The message names the field and the remedy.
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
    setting: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        options, sites = len(self.options.names), _names("site", self.sites)
        most = max(0, len(sites) - 1)  # at least one site begins the study
        checked: dict[str, Any] = {
            "begun": count("begun", self.begun, "give the number of options at its beginning", most=options),
            "trials": count("trials", self.trials, "give the number that you can afford, at least 1"),
            "sites": sites,
            "seed": count("seed", self.seed, "give a whole number from 0 on", least=0),
            "joined": count("joined", self.joined, "give the number of later sites", 0, most),
        }
        for name in ("noise", "spread", "reach"):
            if name == "noise" or getattr(self, name) is not None:
                remedy = f"give a number above 0 in the units of rewards, from {1 / HUGE:g} to {HUGE:g}"
                checked[name] = number(name, getattr(self, name), remedy, least=1 / HUGE, below=HUGE)
        if self.centre is not None:
            checked["centre"] = number("centre", self.centre, "give a usual reward", above=-HUGE, below=HUGE)
        if self.reach is not None and self.centre is None:
            raise ValueError("centre is missing: give a usual reward, from which reach is counted")
        vars(self).update(checked)  # they are now numbers, tuples and text that JSON can hold
        require_kind(isinstance(self.differ, bool), "differ", self.differ, "give True or False")
        remedy = f"choose one of {list(METHODS)}; in Python, give a Surrogate of your own at each opening"
        fits = self.surrogate is not None or self.method in list(METHODS)
        require(fits, "method", self.method, _NO_MORE.get(str(self.method), remedy))
        if self.setting is None:
            vars(self).update(setting=METHODS.get(self.method, METHODS["advised"]).setting)
        if self.differ:
            remedy = "give two at least (--site twice in a shell), or leave differ out"
            require(len(sites) > 1, "sites", list(sites), remedy)
            remedy = "sites that differ have their own model: give 'advised', or leave differ out"
            require(self.surrogate is None and self.method != "ucb1", "method", self.method, remedy)
        played = self.played.surrogate
        require_kind(hasattr(played, "fit"), "method", played, "give the name of a method, or a Surrogate")
        remedy = "none varies: give a feature that tells options apart, or play 'ucb1'"
        fits = isinstance(played, IndependentArms) or self.arms.shape[1] > 0
        require(fits, "the list of features", list(self.options.columns), remedy)

    @cached_property
    def played(self) -> Advised:
        """The method that is played: the numbers in ``setting`` with a surrogate.

        The surrogate is that of the ``method``, the user's own, or `Sites` if the sites differ.
        """
        method = METHODS.get(self.method, METHODS["advised"])
        surrogate = Sites() if self.differ else self.surrogate or method.surrogate
        return replace(method, surrogate=surrogate).set(self.setting or {})

    @cached_property
    def arms(self) -> Tensor:
        """The features of the K options, scaled by the ranges of the options with which the study began, (K, d_x)."""
        return self.options.scaled(self.begun)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each of the K options, from 0 to K − 1, by its name."""
        return {name: arm for arm, name in enumerate(self.options.names)}

    @cached_property
    @on_cpu
    def first(self) -> tuple[str, ...]:
        """The names of the options that are tried once each before a model is fitted, in random order.

        They are drawn from the options with which the study began.
        """
        length = self.played.first(1, self.begun, self.trials)
        arms = distinct(self.begun, length, generator(self.seed, 0, "each arm"))
        return tuple(self.options.names[arm] for arm in arms.tolist())

    def option(self, received: Any) -> str:
        """Return the name of the option ``received``, in one line (`composed`).

        Raises:
            ValueError: The study has no such option; the message gives the most similar names.
        """
        name = composed(received)
        if isinstance(name, str) and name in self.number_of:
            return name
        near = get_close_matches(str(received), self.options.names, 2) or self.options.names[:2]
        raise ValueError(f"option is {received!r}: did you mean {' or '.join(map(repr, near))}?")

    def place(self, received: Any) -> str:
        """Return the name of the site ``received``, in one line (`composed`), or "" for None in a study without sites.

        Raises:
            ValueError: The study has no such site, or has sites and ``received`` is None.
        """
        names, site = list(self.sites), "" if received is None else composed(received)
        remedy = f"give the site, one of {names} (in a shell --site)" if names else "this study has no sites"
        require(site in (names or [""]), "site", received, remedy)
        return str(site)

    @property
    def rows(self) -> tuple[str | None, ...]:
        """The sites that have estimates of their own, or None alone if there is one estimate for all."""
        return self.sites if self.differ else (None,)

    def row(self, site: Any) -> int:
        """Return the position of the ``site`` in `rows`.

        If the sites do not differ, it is 0 for every site and for None.

        Raises:
            ValueError: The study has no such ``site``, or the sites differ and ``site`` is None.
        """
        place = self.place(site) if self.differ or site is not None else ""
        return self.sites.index(place) if self.differ else 0

    @property
    def guarantee(self) -> Guarantee | None:
        """The bounds of the guard if there is a ``reach``, otherwise None.

        If the sites differ, each has an equal share of the failure probability δ.
        """
        delta = Guarantee.delta / len(self.rows)
        return None if self.reach is None else Guarantee(self.reach, self.noise, delta)

    def changed(self, table: Options | None, given: Mapping[str, Any]) -> "Setup":
        """Return this setup with the options that are added at the end of the table, and with the fields that are
        given.

        The noise may change if there is no guard, and sites may join if the sites differ.

        Args:
            table: All options, or None if none are added.
            given: New values of fields, by name.

        Raises:
            TypeError: A new value has the wrong type.
            ValueError: The table lacks an option of the study or changes one, ``sites`` does not begin with the sites
                of the study, another field is given a new value, or a new value is not allowed.
        """
        given = {**given, "sites": _names("site", given.get("sites", self.sites))}
        free = ("noise",) * (self.reach is None) + ("sites",) * self.differ
        before = {name: getattr(self, name) for name in given if name not in free}
        before = {name: value for name, value in before.items() if value != given[name]}
        other = {name: given[name] for name in before}
        remedy = f"not {other}; begin another file and tell it these trials"
        require(not other, "what the study was begun with", before, remedy)
        _require_first("sites", self.sites, given["sites"], "give those that join after them")
        options, joined = table or self.options, self.joined + len(given["sites"]) - len(self.sites)
        was, now = ([o.columns, *zip(o.names, o.rows, strict=True)] for o in (self.options, options))
        _require_first("table", was, now, "add rows at the end, and give a changed option a new name")
        return replace(self, **given, options=options, joined=joined)


def _require_first(what: str, before: Sequence[Any], after: Sequence[Any], remedy: str) -> None:
    """Raise a ``ValueError`` unless the list ``after`` begins with the entries of ``before``.

    ``what`` names the list and ``remedy`` the remedy in the message.
    """
    for was, now in zip_longest(before, after[: len(before)]):
        if was != now:
            raise ValueError(f"in the {what} {was!r} has become {now!r}: {remedy}")


@dataclass(frozen=True)
class Record:
    """What has happened since a study began, and what is planned.

    Args:
        told: The option, the site and the reward of each trial whose reward is known, in the order of their entry.
        open: The option and the site of each trial that was asked for and whose reward is not known.
        retired: The options that are not proposed again.
        plan: The options that are asked for next, in this order.
        until: The number of known rewards from which on the next request for a trial makes a new plan.
    """

    told: tuple[Told, ...] = ()
    open: tuple[Trial, ...] = ()
    retired: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    until: int = 0


_ABOUT = [each.name for each in fields(Setup) if each.name not in ("options", "begun", "surrogate")]
_FIELDS = ["fedgo study", "about", "columns", "options", "begun", "retired", "open", "told", "plan", "until"]


def dumps(setup: Setup, record: Record) -> str:
    """Return the JSON text of the file that holds ``setup`` and ``record``."""
    about, options = {name: getattr(setup, name) for name in _ABOUT}, setup.options
    content = {"fedgo study": _VERSION, "about": about, "columns": options.columns, "begun": setup.begun}
    content["options"] = dict(zip(options.names, options.rows, strict=True))
    # one entry a line; `indent` would take ten times as long
    return json.dumps(content | vars(record), ensure_ascii=False, separators=(",\n", ": "))


def loads(text: str, surrogate: Surrogate | None = None) -> tuple[Setup, Record]:
    """Return the setup and the record that the text of a study's file holds, after a check of every field.

    Args:
        text: The text that `dumps` returned. A field of the setup that earlier versions of fedgo did not have may be
            missing.
        surrogate: The user's own model, if the study was begun with one, because a file cannot hold it.

    Raises:
        TypeError: A field is of another kind.
        ValueError: The text is not JSON, or a field is missing, unknown, or has a value that is not allowed; the
            message names it. The text is also refused if the study was begun with a ``surrogate`` and none is given.
        RecursionError: The JSON is nested too deeply.
    """
    # files of a method that was removed may have "weights"
    content = _fields("the file", json.loads(text), _FIELDS, {"weights"})
    require(content["fedgo study"] == _VERSION, "the version", content["fedgo study"], f"give {_VERSION}")
    about = _fields("about", content["about"], {"trials", "noise"}, {*_ABOUT, "own"})
    named = content["options"]
    require(isinstance(named, dict), "options", named, "give the features of each option by its name")
    options = Options(tuple(named), content["columns"], tuple(named.values()))
    about = {"setting": _before(about)} | {name: about[name] for name in _ABOUT if name in about}
    setup = Setup(options, content["begun"], surrogate=surrogate, **about)
    rows = _rows(content, "told", 3)
    told = tuple((setup.option(row[0]), setup.place(row[1]), checked_reward(row[2])) for row in rows)
    opened = tuple((setup.option(row[0]), setup.place(row[1])) for row in _rows(content, "open", 2))
    retired, plan = (tuple(map(setup.option, _rows(content, name))) for name in ("retired", "plan"))
    require(len(set(retired)) < len(named), "retired", list(retired), "keep at least one option")
    until = count("until", content["until"], "give the number of rewards at which a plan ends", least=0)
    return setup, Record(told, opened, retired, plan, until)


def _before(about: dict[str, Any]) -> dict[str, Any]:
    """Return the setting of a study whose file does not contain it, that is, of a study from an earlier version of
    fedgo.

    It is the setting before it depended on the budget. ``about`` has the fields of the study's setup.
    """
    once = about.get("method") == "every arm once" and not about.get("differ")
    how = UCB1 if about.get("method") == "ucb1" else BEFORE
    return how.setting | ({"few": METHODS["every arm once"].few} if once else {})


def _fields(where: str, content: Any, names: Collection[str], others: Collection[str]) -> dict[str, Any]:
    """Return the ``content`` if it is a JSON object with all fields in ``names``, and with no others but those in
    ``others``.

    ``where`` says in the ``ValueError`` which object it is.
    """
    found = content if isinstance(content, dict) else {}
    fits = set(names) <= set(found) <= {*names, *others}
    require(fits, f"what {where} has", list(found), f"give {', '.join(sorted({*names, *others}))}")
    return found


def _rows(content: dict[str, Any], name: str, length: int = 0) -> list[Any]:
    """Return the list ``name`` of the ``content``, or raise a ``ValueError`` if it is not a list.

    Unless ``length`` is 0, every entry has to be a list with ``length`` entries.
    """
    rows: list[Any] = content[name]
    require(isinstance(rows, list), name, rows, "give a list")
    for row in rows if length else ():
        fits = isinstance(row, list) and len(row) == length
        require(fits, f"a row of {name}", row, f"give a list of {length} entries")
    return rows
