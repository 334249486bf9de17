"""A study that looks for the best of many options in few trials, from a notebook or a script.

The options are the rows of a table, and the rewards of their trials are in units of your own. One file holds the study,
and no server is needed. An option is an arm in the terms of the paper, and a trial is a pull.
"""

import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill, shorten
from typing import Any, TypedDict, Unpack

from fedgo._checks import extra, require, require_kind
from fedgo.beyond import _files
from fedgo.beyond.federation.wire import checked_reward
from fedgo.beyond.method.advised import Goal
from fedgo.beyond.method.surrogates import Surrogate
from fedgo.beyond.study import trials as pure
from fedgo.beyond.study.cells import FAILED, composed
from fedgo.beyond.study.setup import Record, Setup, Told, Trial, dumps, loads
from fedgo.beyond.study.table import CATEGORY, NAME, NUMBER, RESULT, Result, Table, read, refuse

with extra("study"):
    import pandas as pd

_WAIT = 60.0  # seconds for which a process waits for another to change the file
_Content = tuple[Setup, Record]
_Write = Callable[[Setup, Record], None]
_MOST_COLUMNS, _CLASSES = 12, 5  # what is drawn at most
# from so many results on, one that is more than so many standard deviations from the mean is questioned
_ENOUGH, _FAR = 5, 5.0
_COLUMNS = ("name", "result", "ignore", "category", "number")


class Settings(TypedDict, total=False):
    """The settings of a `Study`, which says what each means, and what the columns of its table are taken for."""

    trials: int | None
    noise: float | None
    goal: Goal | None
    method: str | Surrogate | None
    sites: Sequence[str] | None
    centre: float | None
    reach: float | None
    seed: int | None
    differ: bool | None
    lower_is_better: bool | None
    name: str | None
    result: str | None
    ignore: Sequence[str]
    category: Sequence[str]
    number: Sequence[str]


class DoneBut(UserWarning):
    """A warning that something failed after a study was changed. The change counts and must not be repeated."""


class Study:
    """A study that looks for the best of many options in few trials, and is kept in the file at ``path``.

    If the file does not exist, the study begins with ``options`` and ``trials``. If it exists, every setting that is
    given is compared with the file. Only ``trials`` may change, ``noise`` if there is no ``reach``, and ``sites`` may
    get further names if they differ; rows of ``options`` that the study does not have are added to it.

    Every change reads the file, and writes it anew while no other process or thread can change it. Looking at a study
    changes no file and needs no permission to write.

    A trial in a study with sites needs its ``site``, and so do estimates if the sites differ; otherwise None stands for
    all sites. Every method raises a ``ValueError`` if a site is needed and not given, if the study has no such option
    or site, or if the file cannot be read as a study, and an ``ImportError`` if a library is missing. One that changes
    the study raises an ``OSError`` if the file cannot be written, or if another process has held its lock for a minute.
    After an error nothing is changed.

    Args:
        path: The file, or a link to it.
        options: A table with a row for each option or experiment, as `fedgo.beyond.study.table.read` takes it: the path
            of a file or a pandas frame. Results in it are told at once. A study that exists needs none.
        trials: The approximate number of trials that you can afford, at least 1. The more there are, the more is
            explored. More trials may follow.
        noise: σ, the standard deviation of a result's noise, from 1e-100 to 1e100; by default it is estimated.
        goal: "best" (the default) if only the option that is chosen at the end counts: an option is repeated in the
            last third of the ``trials`` only, if that is worth more to this choice than an untried one. "reward" if you
            earn while you search, so that every trial's result counts.
        method: "advised" (the default: ``SEARCH`` with the goal "best", ``ADVISED`` with "reward"), "ucb1", "every arm
            once", or a `Surrogate` of your own, which takes the place of the recommended model and has to be given
            whenever the study is opened.
        sites: A list of the names of the places that make trials, if there are several.
        centre: A usual result, from which ``reach`` is counted; the model does not use it.
        reach: A bound on |f − ``centre``| for the mean result f of every option. If it is given, every option has a
            certificate, a bound on how far its mean result is from that of the best option.
        seed: The seed of the order of the first options, and of the order in which ties are broken; by default 0.
        differ: Whether the best option may differ from site to site; by default False. If so, every site has its own
            estimates, which learn from those of the other sites as far as they are alike. Source: the chapter "Sites
            that differ".
        lower_is_better: Whether the option with the lowest mean result is looked for; by default False.
        name: With ``result``, ``ignore``, ``category`` and ``number``, what columns of the table are taken for, as in
            `fedgo.beyond.study.table.read`.

    Raises:
        TypeError: ``path``, ``options`` or an argument for a new study is of another kind or unknown.
        ValueError: An argument, the table or the file has a value that is not allowed, or they do not fit together. The
            message names the value and the remedy; nothing is changed.
        OSError: The table of ``options`` cannot be read. If something fails after a change, there is a `DoneBut`
            warning instead.

    Warns:
        UserWarning: The noise of the study has changed.
    """

    _read: tuple[str, Any] = "", None  # the text of the file, and its content

    def __init__(self, path: str | Path, options: Any = None, **settings: Unpack[Settings]) -> None:
        self.path = Path(path)
        unknown = [name for name in settings if name not in Settings.__annotations__]
        require_kind(not unknown, "an argument", unknown, f"give one of {list(Settings.__annotations__)}")
        given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        columns = {name: given.pop(name) for name in _COLUMNS if name in given}
        method = given.get("method")
        self._surrogate = None if isinstance(method, str | None) else method
        if self._surrogate is not None:
            given["method"] = f"a {type(method).__name__} of your own"
        begun = None if options is None or self.path.exists() else read(options, **columns)
        new = None if begun is None else self._begun(begun, given)
        before = (new or self.content)[0]

        def grown(setup: Setup) -> Table:
            """Return the options of the ``setup``, and those that the table has beyond them."""
            return Table(setup.options) if options is None else read(options, **columns, known=setup.options)

        table = begun or grown(before)
        self.setup, self.report = before.changed(table.options, given), table.report
        if new or self.setup != before:
            with self._changing("begun" if new else "changed", new) as (setup, record, write):
                if setup.options != before.options:  # another process was faster
                    table = grown(setup)
                self.setup = setup.changed(table.options, given)
                write(self.setup, pure.plan_anew(self.setup, record))
        if self.setup.noise != before.noise:
            words = f"the noise of {self.path} was {before.noise} and is {self.setup.noise} from now on"
            warnings.warn(words, stacklevel=2)

    def _begun(self, table: Table, given: dict[str, Any]) -> _Content:
        """Return the setup of a new study and its record, in which the results of the ``table`` are told."""
        require("trials" in given, "trials", None, "give the number that you can afford (--trials …)")
        begun, comma = len(table.options.names), table.decimal_comma
        setup = Setup(table.options, begun, surrogate=self._surrogate, decimal_comma=comma, **given)
        record = Record(plan=setup.first, until=len(setup.first))
        if setup.sites and table.results:
            words = "the results are not told, as the study has sites: tell the table for one of them"
            warnings.warn(f"{words} (fedgo tell TABLE --site NAME)", stacklevel=3)
            return setup, record
        # an option that failed and succeeded is not given up
        succeeded = {option for _, option, result in table.results if isinstance(result, float)}
        rows = [row for row in table.results if isinstance(row[2], float) or row[1] not in succeeded]
        record = _told(setup, record, rows, "")
        return replace(setup, old=len(record.told)), record

    # trials and their rewards

    def ask(self, site: str | None = None) -> str:
        """Return the option to try next.

        A trial is open from the time when it is asked for until its result is told or it is given up. In a study with
        sites, a site is given its open trial again; without sites, every call opens a new trial, so that people who
        work side by side get different options.

        Args:
            site: The site that makes the trial, in a study with sites; otherwise None.

        Returns:
            The name of the option.
        """
        return self.batch(1, site)[0]

    def batch(self, size: int, site: str | None = None) -> list[str]:
        """Return the options of several trials to be made at once (`ask`).

        Args:
            size: The number of trials, from 1 to 1,536.
            site: The site that makes the trials, in a study with sites; otherwise None.

        Returns:
            The names of ``size`` options.

        Raises:
            TypeError: ``size`` is not a whole number.
            ValueError: ``size`` is out of range.
        """
        return self._asked(size, site)[1]

    def _asked(self, size: int, site: str | None) -> tuple[Setup, list[str]]:
        """Open the next trials, and return the setup of the study and the names of their options."""
        setup, record = before = self.content
        asked, after = pure.next_trials(setup, record, size, site)
        if after != record:
            with self._changing("asked") as (setup, record, write):
                # a plan may take long, so it is made while others may change the study, and again if they have
                if (setup, record) != before:
                    asked, after = pure.next_trials(setup, record, size, site)
                write(setup, after)
        again = len(asked) - len({*asked})
        if again > 0 and setup.goal == "best":
            warnings.warn(f"{again} of {size} trials repeat an option of the same batch", stacklevel=4)
        return setup, asked

    def plate(self, size: int, site: str | None = None) -> Any:
        """Return the next trials (`batch`) as a pandas frame with the owner's columns and an empty one for results."""
        setup, names = self._asked(size, site)
        return setup.options.plate(names)

    def tell(self, option: str, result: float | str, site: str | None = None, again: bool = False) -> int:
        """Enter the result of a trial, whether the study asked for this trial or not.

        A warning says if the result is more than five standard deviations away from the mean (both computed from the
        first results, if there are five). It is kept in either case.

        Args:
            option: The name of the option that was tried.
            result: The result of the trial, a number above −1e100 and below 1e100. Or the text "failed" if the
                experiment has failed; then the option is not proposed again.
            site: The site that made the trial, in a study with sites; otherwise None.
            again: Whether a result that is told already, of a trial that is not open, is a further trial.

        Returns:
            The number of results that the study has now.

        Raises:
            TypeError: ``result`` is neither a number nor "failed".
            ValueError: ``result`` is NaN, out of range or told already.
        """
        with self._changing("told") as (setup, record, write):
            value = FAILED if result == FAILED else checked_reward(result)
            record = _told(setup, record, [(0, setup.option(option), value)], setup.place(site), again)
            write(setup, record)
        return len(record.told)

    def tell_plate(self, table: Any, site: str | None = None, again: bool = False) -> int:
        """Enter all results in a table, for instance in a `plate` that was filled in, or none of them.

        A row without a result is left out. It stays open if it was asked for. A row that was not asked for is a result
        too.

        Args:
            table: The path of a file or a pandas frame, with a column of results and either the options' names or their
                features.
            site: The site that made the trials, in a study with sites; otherwise None.
            again: Whether results that are told already are further trials with the same result.

        Returns:
            The number of results that were entered, failed experiments included.

        Raises:
            TypeError: ``table`` is neither a path nor a frame.
            ValueError: A row does not fit the study or is told already. The message names all such rows.
        """
        with self._changing("told") as (setup, record, write):
            plate = read(table, known=setup.options, result=setup.options.result)
            write(setup, _told(setup, record, plate.results, setup.place(site), again))
        return len(plate.results)

    def untell(self, option: str | None = None, site: str | None = None) -> tuple[str, float]:
        """Take back the last reward that was entered, for instance because it was a mistake.

        The trial is not opened again. The next new trial is planned anew, unless fewer rewards remain than the number
        of options that the study tries first, before the model decides, and some of these have not been asked for yet;
        then these follow.

        Args:
            option: The name of the option whose last reward is taken back; None means any option.
            site: The site whose last reward is taken back; None means any site.

        Returns:
            The name of the option, and the reward.

        Raises:
            ValueError: No such reward has been entered.
        """
        wanted = (composed(option), composed(site))
        with self._changing("taken back") as (setup, record, write):
            told = record.told
            places = [
                place
                for place, (name, where, _) in enumerate(told)
                if wanted[0] in (None, name) and wanted[1] in (None, where)
            ]
            remedy = "it was not entered; one that failed is proposed again after fedgo retire OPTION --again"
            require(len(places) > 0, "what to take back", option or "the last reward", remedy)
            last = places[-1]
            setup = replace(setup, old=setup.old - (last < setup.old))
            write(setup, pure.plan_anew(setup, replace(record, told=told[:last] + told[last + 1 :])))
        return told[last][0], told[last][2]

    def drop(self, option: str, site: str | None = None) -> None:
        """Give up an open trial, one that was asked for and whose result will not come.

        Until the next result, the option is proposed only if all others are retired or were given up too. If the
        experiment has failed, `tell` the result "failed", so that the option is not proposed again.

        Args:
            option: The name of the option.
            site: The site that was to make the trial, in a study with sites; otherwise None.

        Raises:
            ValueError: No such trial is open.
        """
        with self._changing("dropped") as (setup, record, write):
            trial = (setup.option(option), setup.place(site))
            require(trial in record.open, "the trial to drop", option, "no such trial is open; see show")
            opened = list(record.open)
            opened.remove(trial)
            write(setup, replace(record, open=tuple(opened), dropped=(*record.dropped, trial[0])))

    def retire(self, option: str, retired: bool = True) -> None:
        """Decide whether an option may be proposed. Its rewards so far stay in the study in either case.

        Args:
            option: The name of the option.
            retired: If True, the option is not proposed any more and its open trials are given up; if False, it may be
                proposed again.

        Raises:
            ValueError: No option would remain that may be proposed.
        """
        with self._changing("retired" if retired else "proposed again") as (setup, record, write):
            write(setup, _retired(setup, record, setup.option(option), retired))

    # results

    @property
    def open(self) -> list[Trial]:
        """The trials that were asked for and have no reward yet, as pairs of the names of option and site.

        The site is "" in a study without sites. Trials that were given up, or whose reward was taken back, are not
        among them. The trials are in the order in which they were asked for.
        """
        return list(self.content[1].open)

    @property
    def told(self) -> list[Told]:
        """The rewards entered so far, as triples of the names of option and site and the reward, in the order of entry.

        The site is "" in a study without sites. Rewards that were taken back are not among them.
        """
        return list(self.content[1].told)

    @property
    def sites(self) -> list[str]:
        """The names of the sites, an empty list if the study was begun without sites."""
        return list(self.content[0].sites)

    def standings(self, site: str | None = None) -> list[pure.Standing]:
        """Return the results so far, with a row for each of the K options, the largest estimate first.

        If there is no fit, because there are too few rewards or it fails, the rows are in the order of the table.

        Args:
            site: The site whose results are returned, if the sites differ. If they do not, the rows are those of all
                sites together, and None is enough.

        Returns:
            The rows (`fedgo.beyond.study.trials.Standing`). The fields are the name ``option``; ``pulls``, the number
            of its rewards, and their ``mean``; the model's ``estimate`` of its mean reward with the interval from
            ``low`` to ``high``; its ``certificate``, a bound on how far its mean reward is below the best, in a study
            with ``reach``; and whether it is ``retired``. A number that is not known is NaN.
        """
        return pure.standings(*self.content, site)

    def verdict(self, site: str | None = None) -> str:
        """Return a text that helps to decide when to stop.

        It says by how much at most the leading option is below the best one. In a study with ``reach`` this is a
        certificate, otherwise an estimate of the model, which is not guaranteed. If nothing can be said, the text gives
        the reason. Another sentence follows if the sites differ and only other sites have rewards, or if a study fits
        its sites as alike and they seem to differ.

        Args:
            site: The site that the text is about, if the sites differ; otherwise None is enough.
        """
        return pure.verdict(*self.content, site)

    def to_frame(self, site: str | None = None) -> Any:
        """Return the owner's table with the results so far and the estimates, as a pandas frame.

        It has a row for each option, whose name is the index, the best estimate first. The columns of the owner are
        followed by ``results`` (all results of the option, separated by blanks) and by the fields of a
        `fedgo.beyond.study.trials.Standing`. An owner's column with one of these headers gets "(table)" behind it.

        Args:
            site: The site whose results are returned, if the sites differ; otherwise None is enough.
        """
        setup, record = self.content
        rows, options = pd.DataFrame(pure.standings(setup, record, site)).set_index("option"), setup.options
        table = options.frame.drop(columns=options.having(NAME, RESULT)).loc[rows.index]
        table = table.astype(dict.fromkeys(options.having(NUMBER), float))
        told = pd.DataFrame(pure.at_site(setup, record, site), columns=["option", "site", "result"])
        results = told["result"].map(repr).groupby(told["option"]).agg(" ".join)
        rows.insert(0, "results", results.reindex(rows.index).fillna(""))
        table = table.rename(columns={header: f"{header} (table)" for header in rows}).join(rows)
        return table.rename_axis(options.label)

    def plot(self, site: str | None = None) -> Any:
        """Draw the results in order, the predictions against what was measured, and the effect of each column.

        The first panel has each result and the best mean so far. In the second, each option with results is left out of
        the fit in turn (in ten groups if they are more than fifty), and is then predicted with the model's interval.
        The third has for each column the mean estimates of the options with each of its values (numbers in at most five
        classes).

        Args:
            site: The site whose results are drawn, if the sites differ; otherwise None is enough.

        Returns:
            The matplotlib figure.
        """
        import matplotlib.pyplot as plt

        (setup, record), frame = self.content, self.to_frame(site)
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
        told = pure.at_site(setup, record, site)
        results = pd.Series([result for *_, result in told], range(1, len(told) + 1), dtype=float)
        best = results.cummin() if setup.lower_is_better else results.cummax()
        left.plot(results, ".", label="result")
        left.plot(best, drawstyle="steps-post", label="best so far")
        if setup.old:
            left.axvline(setup.old + 0.5, color="gray", label="the study begins")
        left.set_xlabel("trial")
        left.set_ylabel(fill(setup.options.result, 32), parse_math=False)
        left.legend(loc="best")
        for row in pure.left_out(setup, record, site):
            ends = [[max(row.estimate - row.low, 0)], [max(row.high - row.estimate, 0)]]
            middle.errorbar(frame["mean"][row.option], row.estimate, ends, fmt="o", color="C0", alpha=0.6)
        middle.axline((results.mean(), results.mean()), slope=1, color="gray")
        middle.set(xlabel="measured", ylabel="predicted without it")
        effects, numbers = {}, setup.options.having(NUMBER)
        for header in setup.options.having(NUMBER, CATEGORY):
            column = frame[f"{header} (table)" if f"{header} (table)" in frame else header]
            if header in numbers and column.nunique() > _CLASSES:
                column = pd.cut(column, _CLASSES)
            effects[header] = frame["estimate"].groupby(column, observed=True).mean()
        shown = sorted(effects, key=lambda name: effects[name].max() - effects[name].min())[-_MOST_COLUMNS:]
        for place, header in enumerate(shown):
            levels = [place] * len(effects[header])
            sizes = [20 + 15 * rank * (header in numbers) for rank in range(len(levels))]
            right.plot(effects[header], levels, color="C0", alpha=0.6)
            right.scatter(effects[header], levels, sizes, color="C0", alpha=0.6)
        labels = [shorten(header, 20, placeholder="...") for header in shown]
        right.set_yticks(range(len(shown)), labels, parse_math=False)
        words = f"mean estimate of {setup.options.result} for each value; a larger dot is a larger number"
        right.set_xlabel(fill(words, 48), parse_math=False)
        figure.suptitle(fill(self.verdict(site), 120), parse_math=False)
        return figure

    # the file

    @contextmanager
    def _changing(self, done: str, new: _Content | None = None) -> Iterator[tuple[Setup, Record, _Write]]:
        """Hold the study's lock, and yield the study's setup, its record, and a function that writes both."""
        # ``new`` is the content if there is no file. An error before the file is written leaves it as it was; one after
        # it becomes a `DoneBut` warning that begins with ``done``, as the change must not be repeated.
        target, saved = _files.resolved(self.path, "the study"), False

        def write(setup: Setup, record: Record) -> None:
            """Replace the content of the study's file by ``setup`` and ``record``, whole or not at all."""
            nonlocal saved
            content = dumps(setup, record).encode()
            if not held():  # a tool that cleans or synchronises folders removes files
                raise OSError("another process may hold the lock too, as its file was removed: try again")
            try:
                with _files.whole(target, "the study") as file:
                    file.write(content)
            finally:
                with suppress(OSError):
                    saved = target.read_bytes() == content

        try:
            with _alone(target) as held:
                yield *(self.content if new is None or target.exists() else new), write
        except KeyboardInterrupt:
            if saved:
                warnings.warn(f"{done}, but interrupted afterwards", DoneBut, stacklevel=4)
            raise
        except OSError as error:
            if not saved:
                raise type(error)(f"nothing is changed in {str(self.path)!r}: {error}") from error
            warnings.warn(f"{done}, but {error}", DoneBut, stacklevel=4)

    @property
    def content(self) -> _Content:
        """The content of the file: the setup of the study, and the record of what has happened since it began.

        The setup is the one with which the study was begun, except that options, sites and the noise may have changed
        since.

        Raises:
            ValueError: The file does not exist, cannot be read, or has an entry that is not allowed.
        """
        try:
            fits = self.path.is_file() or not self.path.exists()  # a device or a pipe might never end
            require(fits, "it", str(self.path), "give the path of a file")
            text = self.path.read_text(encoding="utf-8")
            if text != self._read[0]:
                self._read = text, loads(text, self._surrogate)
            content: _Content = self._read[1]
            return content
        except (OSError, ValueError, TypeError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            words = f"{str(self.path)!r} cannot be read as a study: {reason}; give another file"
            raise ValueError(f"{words}, or a table to begin one (fedgo begin)") from error


def _told(setup: Setup, record: Record, rows: Sequence[Result], site: str, again: bool = True) -> Record:
    """Return the ``record`` with the results in ``rows``; one told already needs an open trial, or ``again``."""
    opened, known, wrong, twice = list(record.open), set(record.told), [], []
    for row, option, value in rows:
        where = f"row {row}: " * (row > 0)
        if option not in setup.number_of:
            wrong.append(f"{where}no option of the study is {option!r}, by its name or else by its features")
        elif (option, site) in opened:
            opened.remove((option, site))
        elif (option, site, value) in known and not again:
            twice.append(f"{where}{value:g} of {option!r} is told already")
    if twice:
        more = f", and so are {len(twice) - 1} more" * (len(twice) > 1)
        remedy = "if it is another trial, give --again, in Python again=True; untell a mistake first"
        wrong.append(f"{twice[0]}{more}; {remedy}")
    refuse(wrong)
    new = tuple((option, site, value) for _, option, value in rows if isinstance(value, float))
    _question(setup, record, new)
    told, dropped = record.told + new, () if new else record.dropped
    record = replace(record, told=told, open=tuple(opened), dropped=dropped)
    for option in (option for _, option, value in rows if value == FAILED):
        record = _retired(setup, record, option, True)
    return record


def _retired(setup: Setup, record: Record, option: str, retired: bool) -> Record:
    """Return the ``record`` in which the ``option`` is retired, without its open trials, or is not."""
    others = tuple(other for other in record.retired if other != option)
    remain = len(setup.options.names) - len(others) - retired
    require(remain > 0, "the number of options that remain", remain, "keep at least one")
    opened = tuple(trial for trial in record.open if not (retired and trial[0] == option))
    return replace(record, open=opened, retired=(*others, option) if retired else others)


def _question(setup: Setup, record: Record, rows: Sequence[Told]) -> None:
    """Warn of each result in ``rows`` that is far from the first ones of the ``record``."""
    first = [result for *_, result in record.told[: setup.begun]]
    centre, spread = (fmean(first), stdev(first)) if len(first) >= _ENOUGH else (0.0, 0.0)
    for option, _, value in rows:
        if abs(value - centre) > _FAR * spread > 0:
            words = f"the result of {option!r} is {value:g}, more than {_FAR:g} spreads of {spread:.3g}"
            warnings.warn(f"{words} from {centre:.3g}: if it is a mistake, untell it", stacklevel=4)


@contextmanager
def _alone(target: Path) -> Iterator[Callable[[], bool]]:
    """Hold the lock of the study at ``target``, a path without links, and yield whether it is still held."""
    # The lock is a hidden file beside the study's, with its permissions and group as far as the system allows. Its text
    # names the process that took it last.
    with extra("study"):
        from filelock import FileLock, Timeout
    require(target.parent.is_dir(), "the folder of the study", str(target.parent), "create it first")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError("you have no right to write the study; its owner can give it by chmod g+w")
    place, holder = target.with_name(f".{target.name}.lock"), ""
    links = place.stat().st_nlink if place.exists() else 1
    require(links == 1, f"the number of names of {place}", links, "a lock is emptied: remove this name")
    try:
        with FileLock(place, timeout=_WAIT):
            lock = place.stat()
            with suppress(OSError):  # the lock holds even if its holder cannot be written
                place.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
                if target.exists():
                    _files.keep_mode(target, place)
            yield lambda: place.exists() and os.path.samestat(place.stat(), lock)
    except Timeout:
        with suppress(OSError):
            holder = place.read_text(encoding="utf-8", errors="replace")
        words = f"{holder or 'a process'} has held it for {_WAIT:g} s: end that process, or try again"
        raise TimeoutError(f"the lock is {str(place)!r}: {words}") from None
