"""The content of a study: the setup with which it begins, the record of what has happened since, and their file.

The setup consists of the options, which are read from a CSV file or a pandas frame, and of the settings. An option is
one of the choices among which the study looks for the best, an arm in the terms of the paper.

The file holds one JSON object. Its entry ``fedgo study`` is the version of this format, 1. ``columns`` has the names of
the features, ``options`` the features of each option by its name, and ``begun`` the number of options with which the
study began. ``about`` has the other fields of the `Setup`, except a model of the user's own. ``told``, ``open``,
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
from fedgo.beyond.federation.wire import HUGE, checked_reward
from fedgo.beyond.guarantees.guarantee import Guarantee
from fedgo.beyond.method.advised import METHODS, Advised
from fedgo.beyond.method.epochs import distinct
from fedgo.beyond.method.sites import Sites
from fedgo.beyond.method.surrogates import IndependentArms, Surrogate

Trial = tuple[str, str]
Told = tuple[str, str, float]

_VERSION = 1
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)
_NO_MORE = {"fed-go-ucb": "a study no longer plays it; Plan(arms, network=Network(…)) does, over letters"}


def composed(received: Any) -> Any:
    """Return the text ``received`` in one line, with single blanks between its words, none around it, and composed
    accents (Unicode's NFC).

    Anything that is not a ``str`` is returned as it is.
    """
    return " ".join(unicodedata.normalize("NFC", received).split()) if isinstance(received, str) else received


def is_number(entry: Any) -> bool:
    """Return whether ``entry`` is a number from −1e100 to 1e100, or a text of such a number.

    A text may have ASCII digits, a sign, a decimal point, an exponent and blanks around these, but no comma. A bool and
    NaN are no numbers here. The limit keeps the square of every number finite in float64.
    """
    if isinstance(entry, float):
        return -HUGE <= entry <= HUGE
    return _NUMBER.fullmatch(str(entry)) is not None and abs(float(str(entry))) <= HUGE


def _names(what: str, received: Any) -> tuple[str, ...]:
    """Return the names ``received`` as a tuple, each in one line with composed accents (`composed`).

    ``what`` says in errors what they name. The tuple may be empty.

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

    The fields hold tuples: names in one line, with single blanks between words and composed accents (Unicode's NFC),
    and features as ``float``.

    Args:
        names: The names of the K options, each once.
        columns: The names of the d features, each once.
        rows: For each option a list or a tuple of its d features: numbers from −1e100 to 1e100, or texts of such
            numbers.

    Raises:
        TypeError: The names or the columns are not a list or a tuple, or ``rows`` is not iterable.
        ValueError: A name of an option or a column is not text, is empty, has a character that cannot be printed, or
            occurs twice; a row is not a list or a tuple of d such numbers; or there is not one row for each option.
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

        If a CSV file has columns without any entry at its right end, or rows without any entry, they are left out,
        because spreadsheets write them.

        Args:
            source: The path of a CSV file in UTF-8 with commas, or a pandas frame. The index of a frame has the names,
                unless it is a ``RangeIndex``, which only counts the rows; then the first column has them.

        Raises:
            TypeError: ``source`` is neither a path (``str`` or ``Path``) nor a frame.
            ValueError: The file is not in UTF-8 or is not separated by commas; there is no row below the header; the
                header has a number; a name is empty, has a character that cannot be printed, or occurs twice; or a row
                does not have d numbers from −1e100 to 1e100.
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
        require(not heads, "the header", heads, "these are numbers: put the columns' names in the first line")
        names = tuple(str(name) for name, *_ in rows)
        return cls(names, tuple(map(str, columns)), tuple(tuple(features) for _, *features in rows))

    @on_cpu
    def scaled(self, first: int) -> Tensor:
        """Return the features as a model receives them: each value v of column j as (v − low_j)/(high_j − low_j).

        Args:
            first: The number of options, at least 1 and counted from the first row of the table, whose smallest and
                largest values in column j are low_j and high_j.

        Returns:
            The scaled features of all K options, (K, d_x) float64. They are from 0 to 1 for the first options, and may
            lie outside for the others. Of the d columns of the table, those in which the first options all have the
            same value are left out, so that d_x ≤ d columns remain.

        Raises:
            IndexError: ``first`` is 0.
        """
        values = torch.tensor(self.rows, dtype=torch.float64)
        low, high = values[:first].aminmax(dim=0)
        varies = high > low
        return ((values - low) / (high - low))[:, varies]


def _csv_rows(path: str | Path) -> list[list[str]]:
    """Return the rows of the CSV file at ``path``.

    Blanks and commas at the end of each line are removed first, and rows of which nothing is left are left out. A
    quoted empty entry stays.

    Raises:
        ValueError: The file is not in UTF-8; Python's ``csv`` refuses it; or its first row is then a single entry with
            a semicolon, a tab or "sep=". The message says how to save the file instead.
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
    """The data with which a study begins; the constructor checks every field except ``options``.

    Args:
        options: The K options and their features.
        begun: The number of options with which the study began, from 1 to K; the options after them were added later.
        trials: The approximate number of trials that the user can afford, at least 1; more may follow.
        noise: σ, the standard deviation of a reward's noise, at least 1e-100 and below 1e100.
        method: "advised", "ucb1" or "every arm once"; with a ``surrogate``, any name for it.
        surrogate: A model of the user's own, which takes the place of the method's model; or None.
        sites: The names of the places that make trials, each once; none if the study does not distinguish places.
        centre: A usual reward, above −1e100 and below 1e100; or None to estimate it from the first rewards. ``reach``
            needs it.
        spread: The usual distance of rewards from ``centre``, at least 1e-100 and below 1e100; or None to estimate it.
        reach: A bound on |f − ``centre``| for the mean reward f of every option, at least 1e-100 and below 1e100; or
            None. If it is given, the study bounds how far each option is below the best one (a certificate).
        seed: The seed of the order of the first options, and of the order in which ties are broken, at least 0.
        differ: Whether each site has a reward function of its own, which is then fitted for it. This needs two sites or
            more, another ``method`` than "ucb1", and no ``surrogate``.
        joined: The number of sites that joined later, at least 0; they are the last of ``sites``, but not all of them.
        setting: The numbers that say how much is explored, by the names that `Advised.setting` has. None means those of
            ``method``, or of "advised" if ``method`` is a name for a ``surrogate``. The field holds them then.

    Raises:
        TypeError: ``begun``, ``trials``, ``seed`` or ``joined`` is not a whole number; ``noise``, ``centre``,
            ``spread`` or ``reach`` is not a number; ``sites`` is not a list or a tuple; ``differ`` is not a bool; a
            value in ``setting`` is not a number; or ``surrogate`` has no method ``fit``.
        ValueError: A field has a value that is not allowed; ``reach`` is given without ``centre``; ``differ`` is given
            without its conditions; or no feature varies among the options with which the study began, and the model
            is not that of "ucb1", `IndependentArms`. The message names the field and the remedy.
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
        """The method that the study plays: the numbers in ``setting`` together with a surrogate, the model of rewards.

        The surrogate is `Sites`, a Gaussian process on the pairs of a site and an option, if ``differ`` is True;
        otherwise the user's own if there is one; otherwise that of the ``method``.
        """
        method = METHODS.get(self.method, METHODS["advised"])
        surrogate = Sites() if self.differ else self.surrogate or method.surrogate
        return replace(method, surrogate=surrogate).set(self.setting or {})

    @cached_property
    def arms(self) -> Tensor:
        """The features of the K options as the model receives them, (K, d_x) float64.

        Each of the d_x columns in which the options with which the study began vary is scaled such that their smallest
        value is 0 and their largest 1. Columns in which these options do not vary are left out.
        """
        return self.options.scaled(self.begun)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each of the K options by its name, from 0 to K − 1 in the order of the table."""
        return {name: arm for arm, name in enumerate(self.options.names)}

    @cached_property
    @on_cpu
    def first(self) -> tuple[str, ...]:
        """The names of the T₀ distinct options that the study proposes first, in random order.

        They are drawn with the ``seed`` from the options with which the study began. If the number of these is at most
        few·√(``trials``), T₀ is their number. Otherwise T₀ is share·√(``trials``) rounded up, but at least 2 and at
        most their number. The numbers few and share are those in ``setting``.
        """
        length = self.played.first(1, self.begun, self.trials)
        arms = distinct(self.begun, length, generator(self.seed, 0, "each arm"))
        return tuple(self.options.names[arm] for arm in arms.tolist())

    def option(self, received: Any) -> str:
        """Return the name of the option ``received``, in one line with composed accents, after a check that it exists.

        Raises:
            ValueError: The study has no such option, or ``received`` is not text. The message gives up to two similar
                names, or the first two of the study if none is similar.
        """
        name = composed(received)
        if isinstance(name, str) and name in self.number_of:
            return name
        near = get_close_matches(str(received), self.options.names, 2) or self.options.names[:2]
        raise ValueError(f"option is {received!r}: did you mean {' or '.join(map(repr, near))}?")

    def place(self, received: Any) -> str:
        """Return the name of the site ``received``, in one line with composed accents, after a check that it exists.

        In a study without sites, None and an empty text are allowed, and the result is "".

        Raises:
            ValueError: The study has no such site, or it has sites and ``received`` is None.
        """
        names, site = list(self.sites), "" if received is None else composed(received)
        remedy = f"give the site, one of {names} (in a shell --site)" if names else "this study has no sites"
        require(site in (names or [""]), "site", received, remedy)
        return str(site)

    @property
    def rows(self) -> tuple[str | None, ...]:
        """The sites that have estimates of their own, which are all sites if ``differ`` is True.

        Otherwise the tuple is ``(None,)``, because there is one estimate for all sites together.
        """
        return self.sites if self.differ else (None,)

    def row(self, site: Any) -> int:
        """Return the position of the ``site`` among the sites that have estimates of their own (`rows`), from 0.

        If ``differ`` is False, it is 0 for every site of the study and for None.

        Raises:
            ValueError: The study has no such ``site``, or the sites differ and ``site`` is None.
        """
        place = self.place(site) if self.differ or site is not None else ""
        return self.sites.index(place) if self.differ else 0

    @property
    def guarantee(self) -> Guarantee | None:
        """The numbers from which certificates are computed, or None if there is no ``reach``.

        A certificate bounds how far the mean reward of an option is below that of the best one. The numbers are
        ``reach`` as the bound on |f − ``centre``| for the mean reward f of every option, ``noise`` as σ, and the
        failure probability δ = 0.1 in total. If ``differ`` is True, each of N sites has the share δ/N.
        """
        delta = Guarantee.delta / len(self.rows)
        return None if self.reach is None else Guarantee(self.reach, self.noise, delta)

    def changed(self, table: Options | None, given: Mapping[str, Any]) -> "Setup":
        """Return a setup with the options that are added at the end of the table, and with the values that are given.

        The noise may change if there is no ``reach``. Sites may join if ``differ`` is True; then ``joined`` counts
        them too. Any other value that is given has to be equal to that of this setup, which stays as it is.

        Args:
            table: All options, those of this setup first and in the same order; or None if none are added.
            given: Values of fields, by name. ``sites`` has all sites, those that join last.

        Raises:
            TypeError: The new noise is not a number, or ``sites`` is not a list or a tuple.
            ValueError: The ``table`` does not begin with the options of this setup, or has other columns; the new
                ``sites`` do not begin with the sites of this setup; another field is given a new value; or the new
                noise or the name of a site is not allowed.
            AttributeError: ``given`` has a name that is no field.
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
    """Raise a ``ValueError`` unless the list ``after`` begins with all entries of ``before``, in the same order.

    In the message, ``what`` is the name of the list, and ``remedy`` says what to give instead.
    """
    for was, now in zip_longest(before, after[: len(before)]):
        if was != now:
            raise ValueError(f"in the {what} {was!r} has become {now!r}: {remedy}")


@dataclass(frozen=True)
class Record:
    """What has happened since a study began, and what is planned.

    Options and sites are given by their names; a site is "" in a study without sites. Nothing is checked here.

    Args:
        told: The option, the site and the reward of each trial whose reward is known, in the order of their entry.
        open: The option and the site of each trial that was asked for and whose reward is not known, in the order of
            the requests.
        retired: The options that are not proposed again.
        plan: The options that are proposed next, in this order.
        until: A number of rewards. Once ``told`` has so many or more, the next request for a new trial makes a new
            plan; an empty ``plan`` causes this too.
    """

    told: tuple[Told, ...] = ()
    open: tuple[Trial, ...] = ()
    retired: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    until: int = 0


_ABOUT = [each.name for each in fields(Setup) if each.name not in ("options", "begun", "surrogate")]
_FIELDS = ["fedgo study", "about", "columns", "options", "begun", "retired", "open", "told", "plan", "until"]


def dumps(setup: Setup, record: Record) -> str:
    """Return the JSON text of the file that holds ``setup`` and ``record``, which `loads` reads.

    If the setup has a ``surrogate`` of the user's own, the text has only the name of the ``method``, not the model.
    """
    about, options = {name: getattr(setup, name) for name in _ABOUT}, setup.options
    content = {"fedgo study": _VERSION, "about": about, "columns": options.columns, "begun": setup.begun}
    content["options"] = dict(zip(options.names, options.rows, strict=True))
    # one entry a line; `indent` would take ten times as long
    return json.dumps(content | vars(record), ensure_ascii=False, separators=(",\n", ": "))


def loads(text: str, surrogate: Surrogate | None = None) -> tuple[Setup, Record]:
    """Return the setup and the record that the text of a study's file holds, after a check of the fields.

    Args:
        text: The text that `dumps` returned. Of the fields in its entry "about", all but ``trials`` and ``noise`` may
            be missing, because earlier versions of fedgo did not have all of them. A missing field has its default.
        surrogate: The user's own model, if the study was begun with one, because a file cannot hold it.

    Raises:
        TypeError: A field is of another kind, for instance a reward that is not a number.
        ValueError: The text is not JSON, or a field is missing, unknown, or has a value that is not allowed. If the
            study was begun with a ``surrogate``, its ``method`` is not allowed unless one is given.
        RecursionError: The JSON is nested too deeply.
    """
    # files of a method that was removed may have "weights"
    content = _fields("the file", json.loads(text), _FIELDS, {"weights"})
    require(content["fedgo study"] == _VERSION, "the version", content["fedgo study"], f"give {_VERSION}")
    about = _fields("about", content["about"], {"trials", "noise"}, {*_ABOUT, "own"})
    named = content["options"]
    require(isinstance(named, dict), "options", named, "give the features of each option by its name")
    options = Options(tuple(named), content["columns"], tuple(named.values()))
    about = {name: about[name] for name in _ABOUT if name in about}
    setup = Setup(options, content["begun"], surrogate=surrogate, **about)
    rows = _rows(content, "told", 3)
    told = tuple((setup.option(row[0]), setup.place(row[1]), checked_reward(row[2])) for row in rows)
    opened = tuple((setup.option(row[0]), setup.place(row[1])) for row in _rows(content, "open", 2))
    retired, plan = (tuple(map(setup.option, _rows(content, name))) for name in ("retired", "plan"))
    require(len(set(retired)) < len(named), "retired", list(retired), "keep at least one option")
    until = count("until", content["until"], "give the number of rewards at which a plan ends", least=0)
    return setup, Record(told, opened, retired, plan, until)


def _fields(where: str, content: Any, names: Collection[str], others: Collection[str]) -> dict[str, Any]:
    """Return the ``content`` if it is a dictionary with all keys in ``names`` and no further keys except those in
    ``others``; otherwise raise a ``ValueError``.

    ``where`` says in the error what the content is.
    """
    found = content if isinstance(content, dict) else {}
    fits = set(names) <= set(found) <= {*names, *others}
    require(fits, f"what {where} has", list(found), f"give {', '.join(sorted({*names, *others}))}")
    return found


def _rows(content: dict[str, Any], name: str, length: int = 0) -> list[Any]:
    """Return the entry ``name`` of the ``content``, or raise a ``ValueError`` if it is not a list.

    Unless ``length`` is 0, a ``ValueError`` is also raised if an entry of this list is not a list of ``length``
    entries.
    """
    rows: list[Any] = content[name]
    require(isinstance(rows, list), name, rows, "give a list")
    for row in rows if length else ():
        fits = isinstance(row, list) and len(row) == length
        require(fits, f"a row of {name}", row, f"give a list of {length} entries")
    return rows
