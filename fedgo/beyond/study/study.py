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
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any

from fedgo import _files
from fedgo._checks import extra, require
from fedgo.beyond.federation.wire import checked_reward
from fedgo.beyond.method.surrogates import Surrogate
from fedgo.beyond.study import trials as pure
from fedgo.beyond.study.setup import Options, Record, Setup, Told, Trial, composed, dumps, is_number, loads

_WAIT = 60.0  # seconds for which a process waits for another to change the file
_Content = tuple[Setup, Record]
_Write = Callable[[Setup, Record], None]
_FAR = 5.0  # a reward more than this many spreads from the centre is questioned


class DoneBut(UserWarning):
    """A warning that something failed after a study was changed. The change counts and must not be repeated."""


class Study:
    """A study that looks for the best of many options in few trials, and is kept in the file at ``path``.

    An option is one of the choices, an arm in the terms of bandits. If the file does not exist, the study begins with
    ``options``, ``trials`` and ``noise``. If it exists, every argument that is given is compared with the file, and
    must be equal to what it holds. Only ``options`` may get further rows, ``noise`` may change if there is no
    ``reach``, and ``sites`` may get further names if they differ.

    Every change reads the file, and writes it anew while no other process or thread can change it. Looking at a study
    changes no file and needs no permission to write.

    Args:
        path: The file, or a link to it.
        options: The path of a CSV file, or a pandas frame: a header, then a name and numbers for each option. Rows may
            be added at its end at any time. A study that exists needs none.
        trials: The approximate number of trials that you can afford, at least 1. The more there are, the more is
            explored. More trials may follow; from then on the number of trials that were made decides.
        noise: σ, the standard deviation of a reward's noise, at least 1e-100 and below 1e100. Before you begin, try one
            option five times and take the standard deviation; then enter these five rewards. If a study without
            ``reach`` is opened with another ``noise``, the new value is stored and a warning says so.
        method: "advised" (the default), "ucb1", "every arm once", or a `Surrogate` of your own, which takes the place
            of the recommended model and has to be given whenever the study is opened.
        sites: A list of the names of the places that make trials, if there are several.
        centre: The reward that you expect usually. `tell` warns of rewards far from it, and ``reach`` is counted from
            it; the model does not use it. With ``reach`` it has to be given. Otherwise, if it is not given, the mean of
            the first rewards takes its place.
        spread: The amount by which you expect options to differ. `tell` warns of a reward more than five spreads from
            ``centre``; the model does not use it. If it is not given, the standard deviation of the first rewards takes
            its place, but at least the noise, and 200 times the noise while there are fewer than five rewards or all
            are equal.
        reach: A bound on |f − ``centre``| for the mean reward f of every option; it needs ``centre``. If it is given,
            every option has a certificate, a bound on how far its mean reward is below that of the best option.
        seed: The seed of the order of the first options, and of the order in which ties are broken; by default 0.
        differ: Whether the best option may differ from site to site; by default False. If so, every site has its own
            estimates, which learn from those of the other sites as far as they are alike. Sites may join at any time:
            give all of them, the new ones last. This pays on long runs. Source: the chapter "Sites that differ".

    Raises:
        TypeError: ``path``, ``options`` or an argument for a new study is of another kind.
        ValueError: An argument or the file has a value that is not allowed, the two differ, the file cannot be read as
            a study, its folder does not exist, or the file does not exist and ``options``, ``trials`` or ``noise`` is
            missing. The message names the value and the remedy; nothing is changed.
        OSError: The table of ``options`` cannot be read, the file cannot be written, or another process has held its
            lock for a minute; nothing is changed. If something fails after the change, there is a `DoneBut` warning
            instead.
        ImportError: The library filelock is missing, and the study is to be written.

    Warns:
        UserWarning: The noise of the study has changed, or all names of the options of a new study are numbers.
    """

    def __init__(
        self,
        path: str | Path,
        options: Any = None,
        *,
        trials: int | None = None,
        noise: float | None = None,
        method: str | Surrogate | None = None,
        sites: Sequence[str] | None = None,
        centre: float | None = None,
        spread: float | None = None,
        reach: float | None = None,
        seed: int | None = None,
        differ: bool | None = None,
    ) -> None:
        self.path = Path(path)
        require(self.path.name != "", "the path of the study", str(path), "give the name of a file")
        self._surrogate = None if method is None or isinstance(method, str) else method
        if self._surrogate is not None:
            method = f"a {type(method).__name__} of your own"
        said = {"trials": trials, "noise": noise, "method": method, "sites": sites, "centre": centre}
        said |= {"spread": spread, "reach": reach, "seed": seed, "differ": differ}
        given = {name: value for name, value in said.items() if value is not None}
        table = None if options is None else Options.of(options)
        new = None if table is None or self.path.exists() else self._begun(table, given)
        before = (new or self.content)[0]
        after = before.changed(table, given)
        if new or after != before:
            with self._changing("begun" if new else "changed", new) as (setup, record, write):
                after = setup.changed(table, given)
                write(after, pure.plan_anew(after, record))
        if after.noise != before.noise:
            words = f"the noise of {self.path} was {before.noise} and is {after.noise} from now on"
            warnings.warn(words, stacklevel=2)

    def _begun(self, table: Options, given: dict[str, Any]) -> _Content:
        """Return the setup of a new study with the options of the ``table`` and the values ``given`` by name, and its
        record, in which nothing has happened and the first options (`Setup.first`) are planned.

        A warning says if the names of all options are numbers.

        Raises:
            ValueError: ``trials`` or ``noise`` is missing, or a value is not allowed.
            TypeError: A value is of another kind.
        """
        for name, meaning in (("trials", "the number that you can afford"), ("noise", "σ of a reward")):
            if name not in given:
                raise ValueError(f"{name} is missing: give {meaning}, {name}=… or in a shell --{name} …")
        if all(map(is_number, table.names)):
            words = f"the names are numbers, as {table.names[0]!r}: the first column has the names and is no feature"
            warnings.warn(f"{words}; if it is one, put a column of names before it", stacklevel=3)
        setup = Setup(table, len(table.names), surrogate=self._surrogate, **given)
        return setup, Record(plan=setup.first, until=len(setup.first))

    # trials and their rewards

    def ask(self, site: str | None = None) -> str:
        """Return the option to try next.

        A trial is open from the time when it is asked for until its reward is entered or it is given up.

        Args:
            site: The site that makes the trial, in a study with sites; otherwise None.

        Returns:
            The name of the option of the first open trial, at the ``site`` if one is given. If there is none, a new
            trial is opened, and the result is the name of its option.

        Raises:
            ValueError: The study has no such ``site``, it has sites and ``site`` is None, or the file cannot be read as
                a study.
            OSError: The file cannot be written, or another process has held its lock for a minute; nothing is changed.
            ImportError: A library is missing; the message says how to install it.
            MemoryError: A fit needs more memory than there is.
        """
        return self.batch(1, site)[0]

    def batch(self, size: int, site: str | None = None) -> list[str]:
        """Return the options of several trials to be made at once.

        A trial is open from the time when it is asked for until its reward is entered or it is given up.

        Args:
            size: The number of trials, from 1 to the study's ``trials``.
            site: The site that makes the trials, in a study with sites; otherwise None.

        Returns:
            The names of ``size`` options, which may repeat: first those of open trials, at the ``site`` if one is
            given, in the order in which they were asked for; then those of new trials, which are opened.

        Raises:
            TypeError: ``size`` is not a whole number.
            ValueError: ``size`` is out of range, the study has no such ``site``, it has sites and ``site`` is None, or
                the file cannot be read as a study.
            OSError: The file cannot be written, or another process has held its lock for a minute; nothing is changed.
            ImportError: A library is missing; the message says how to install it.
            MemoryError: A fit needs more memory than there is.
        """
        with self._changing("asked") as (setup, record, write):
            asked, after = pure.next_trials(setup, record, size, site)
            if after != record:
                write(setup, after)
        return asked

    def tell(self, option: str, reward: float, site: str | None = None) -> int:
        """Enter the reward of a trial, whether the study asked for this trial or not.

        If trials of the option are open at the site, the first of them is open no more. A warning says if the reward is
        more than five spreads away from a usual reward (``centre`` and ``spread`` of the study, or their estimates from
        the first rewards); a reward that is entered while the study has none is not questioned. The reward is kept in
        either case.

        Args:
            option: The name of the option that was tried.
            reward: The reward of the trial in the user's units, a number above −1e100 and below 1e100.
            site: The site that made the trial, in a study with sites; otherwise None.

        Returns:
            The number of rewards that the study has now.

        Raises:
            TypeError: ``reward`` is not a number.
            ValueError: The study has no such ``option`` or ``site``, it has sites and ``site`` is None, ``reward`` is
                NaN or out of range, or the file cannot be read as a study.
            OSError: The file cannot be written, or another process has held its lock for a minute; nothing is changed.
            ImportError: A library is missing; the message says how to install it.
        """
        with self._changing("told") as (setup, record, write):
            trial, value = (setup.option(option), setup.place(site)), checked_reward(reward)
            centre, spread = pure.usual(setup, record)
            if record.told and abs(value - centre) > _FAR * spread:
                words = f"the reward of {trial[0]!r} is {value:g}, more than {_FAR:g} spreads of {spread:.3g}"
                warnings.warn(f"{words} from {centre:.3g}: if it is a mistake, untell it", stacklevel=2)
            told = len(record.told) + 1
            opened = _without(record.open, trial)
            write(setup, replace(record, open=opened, told=(*record.told, (*trial, value))))
        return told

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
            ValueError: No such reward has been entered, or the file cannot be read as a study.
            OSError: The file cannot be written, or another process has held its lock for a minute; nothing is changed.
            ImportError: A library is missing; the message says how to install it.
        """
        wanted = (composed(option), composed(site))
        with self._changing("taken back") as (setup, record, write):
            rows = [row for row in record.told if wanted[0] in (None, row[0]) and wanted[1] in (None, row[1])]
            require(len(rows) > 0, "what to take back", option or "the last reward", "it was not entered")
            told = _without(record.told[::-1], rows[-1])[::-1]
            write(setup, pure.plan_anew(setup, replace(record, told=told)))
        return rows[-1][0], rows[-1][2]

    def drop(self, option: str, site: str | None = None) -> None:
        """Give up an open trial, one that was asked for and whose reward will not come.

        If several trials of the option are open at the site, the first of them is given up.

        Args:
            option: The name of the option.
            site: The site that was to make the trial, in a study with sites; otherwise None.

        Raises:
            ValueError: No such trial is open, the study has no such ``option`` or ``site``, it has sites and ``site``
                is None, or the file cannot be read as a study.
            OSError: The file cannot be written, or another process has held its lock for a minute; nothing is changed.
            ImportError: A library is missing; the message says how to install it.
        """
        with self._changing("dropped") as (setup, record, write):
            trial = (setup.option(option), setup.place(site))
            require(trial in record.open, "the trial to drop", option, "no such trial is open; see show")
            write(setup, replace(record, open=_without(record.open, trial)))

    def retire(self, option: str, retired: bool = True) -> None:
        """Decide whether an option may be proposed. Its rewards so far stay in the study in either case.

        Args:
            option: The name of the option.
            retired: If True, the option is not proposed any more and its open trials are given up; if False, it may be
                proposed again.

        Raises:
            ValueError: The study has no such ``option``, no option would remain that may be proposed, or the file
                cannot be read as a study.
            OSError: The file cannot be written, or another process has held its lock for a minute; nothing is changed.
            ImportError: A library is missing; the message says how to install it.
        """
        with self._changing("retired" if retired else "proposed again") as (setup, record, write):
            name = setup.option(option)
            others = tuple(other for other in record.retired if other != name)
            remain = len(setup.options.names) - len(others) - retired
            require(remain > 0, "the number of options that remain", remain, "keep at least one")
            opened = tuple(trial for trial in record.open if not (retired and trial[0] == name))
            write(setup, replace(record, open=opened, retired=(*others, name) if retired else others))

    # results

    @property
    def open(self) -> list[Trial]:
        """The trials that were asked for and have no reward yet, as pairs of the names of option and site.

        The site is "" in a study without sites. Trials that were given up, or whose reward was taken back, are not
        among them. The trials are in the order in which they were asked for.

        Raises:
            ValueError: The file cannot be read as a study.
        """
        return list(self.content[1].open)

    @property
    def told(self) -> list[Told]:
        """The rewards entered so far, as triples of the names of option and site and the reward, in the order of entry.

        The site is "" in a study without sites. Rewards that were taken back are not among them.

        Raises:
            ValueError: The file cannot be read as a study.
        """
        return list(self.content[1].told)

    @property
    def sites(self) -> list[str]:
        """The names of the sites, an empty list if the study was begun without sites.

        Raises:
            ValueError: The file cannot be read as a study.
        """
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

        Raises:
            ValueError: The study has no such ``site``, the sites differ and ``site`` is None, or the file cannot be
                read as a study.
            ImportError: A library is missing.
            MemoryError: A fit needs more memory than there is.
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

        Raises:
            ValueError: The study has no such ``site``, the sites differ and ``site`` is None, or the file cannot be
                read as a study.
            ImportError: A library is missing.
            MemoryError: A fit needs more memory than there is.
        """
        return pure.verdict(*self.content, site)

    def to_frame(self, site: str | None = None) -> Any:
        """Return the results so far as a pandas frame with a row for each option, whose name is the index.

        The rows with the largest estimate come first. The columns are ``pulls`` (the number of rewards), ``mean`` (of
        the rewards), ``estimate`` (the model's estimate of the mean reward), ``low`` and ``high`` (the ends of the
        model's interval, which extends κ posterior standard deviations to each side, with the κ of the plan, and
        guarantees nothing), ``certificate`` (a bound on how far the mean reward is below the best, if the study has a
        ``reach``) and ``retired``. A number that is not known is NaN.

        Args:
            site: The site whose results are returned, if the sites differ; otherwise None is enough.

        Raises:
            ValueError: The study has no such ``site``, the sites differ and ``site`` is None, or the file cannot be
                read as a study.
            ImportError: A library is missing.
            MemoryError: A fit needs more memory than there is.
        """
        import pandas as pd

        return pd.DataFrame(self.standings(site)).set_index("option")

    def _repr_html_(self) -> str:
        """Return the results so far (`to_frame`) and the verdict as HTML, which a notebook shows.

        If the sites differ, both are there for each site below its name.
        """
        pages = []
        for site in self.content[0].rows:
            html = self.to_frame(site).to_html(float_format=lambda value: f"{value:.3g}", na_rep="")
            pages.append(f"{escape(site or '')}{html}<p>{escape(self.verdict(site))}</p>")
        return "".join(pages)

    def plot(self, axes: Any = None, site: str | None = None) -> Any:
        """Draw the estimates of all options with their intervals, their mean rewards, and any certificates.

        The options are one below the other, the largest estimate at the top. The label of an option contains its number
        of rewards in brackets. A certificate is drawn as a mark at the estimate plus the certificate. The verdict is
        the title.

        Args:
            axes: The matplotlib axes; None means those of a new figure.
            site: The site whose estimates are drawn, if the sites differ; otherwise None is enough.

        Returns:
            The matplotlib axes.

        Raises:
            ValueError: The study has no such ``site``, the sites differ and ``site`` is None, or the file cannot be
                read as a study.
            ImportError: A library is missing.
            MemoryError: A fit needs more memory than there is.
        """
        import matplotlib.pyplot as plt

        rows, title = self.to_frame(site), self.verdict(site)
        axes = axes or plt.subplots(figsize=(7, 0.3 * len(rows) + 1.2), layout="constrained")[1]
        place = range(len(rows))[::-1]
        ends = [rows["estimate"] - rows["low"], rows["high"] - rows["estimate"]]
        axes.errorbar(rows["estimate"], place, xerr=ends, fmt="o", capsize=3, label="estimate")
        axes.plot(rows["mean"], place, "s", fillstyle="none", label="mean of its trials")
        if bool(rows["certificate"].notna().any()):
            top = rows["estimate"] + rows["certificate"]
            axes.plot(top, place, "|", markersize=12, label="certificate: at most so far below the best")
        labels = [f"{option} ({pulls})" for option, pulls in rows["pulls"].items()]
        axes.set_yticks(place, labels, parse_math=False)  # a $ in a name does not begin a formula
        axes.set_title(fill(title, 60), parse_math=False)
        axes.set_xlabel("reward")
        axes.legend()
        return axes

    # the file

    @contextmanager
    def _changing(self, done: str, new: _Content | None = None) -> Iterator[tuple[Setup, Record, _Write]]:
        """Hold the study's lock, and yield the study's setup, its record, and a function that replaces both in the
        file.

        If there is no file, the setup and the record are the pair ``new``, or a ``ValueError`` is raised if ``new`` is
        None. If an error occurs before the file is
        written, the file stays as it was, and the error is raised; the message of an ``OSError`` says so. If an
        ``OSError`` or Ctrl-C occurs afterwards, a `DoneBut` warning begins with ``done``, the word for the change;
        Ctrl-C is raised all the same, the ``OSError`` is not.
        """
        target, saved = _files.resolved(self.path, "the study"), False

        def write(setup: Setup, record: Record) -> None:
            """Replace the content of the study's file by ``setup`` and ``record``, whole or not at all."""
            nonlocal saved
            content = dumps(setup, record).encode()
            try:
                with _files.whole(target, "the study") as file:
                    file.write(content)
            finally:
                with suppress(OSError):
                    saved = target.read_bytes() == content

        try:
            with _alone(target):
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
            ValueError: The file does not exist, cannot be read, or has an entry that is not allowed. The message gives
                the reason.
        """
        try:
            return loads(self.path.read_text(encoding="utf-8"), self._surrogate)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            words = f"{str(self.path)!r} cannot be read as a study: {reason}; give another file"
            raise ValueError(f"{words}, or a table to begin one (fedgo begin)") from error


def _without(entries: tuple[Any, ...], entry: Any) -> tuple[Any, ...]:
    """Return the ``entries`` without the first one that equals ``entry``, or all of them if none does."""
    place = entries.index(entry) if entry in entries else len(entries)
    return entries[:place] + entries[place + 1 :]


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the lock of the study at ``target``, a path without links, so that no other process or thread changes it.

    The lock is a hidden file beside the study's file. Its text names the process that took it last. If the study's file
    exists, the lock gets its permissions to read and write and its group, as far as the system allows.

    Raises:
        ImportError: The library filelock is missing.
        ValueError: The folder of the study does not exist.
        PermissionError: The user may only read the study.
        TimeoutError: Another process has held the lock for a minute.
        OSError: The lock cannot be taken for another reason.
    """
    with extra("study"):
        from filelock import FileLock, Timeout
    require(target.parent.is_dir(), "the folder of the study", str(target.parent), "create it first")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError("you have no right to write the study; its owner can give it by chmod g+w")
    place, holder = target.with_name(f".{target.name}.lock"), ""
    try:
        with FileLock(place, timeout=_WAIT):
            with suppress(OSError, AttributeError):  # the lock holds even if its holder cannot be written
                place.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
                if target.exists():
                    os.chmod(place, target.stat().st_mode & 0o666)
                    os.chown(place, -1, target.stat().st_gid)
            yield
    except Timeout:
        with suppress(OSError):
            holder = place.read_text(encoding="utf-8", errors="replace")
        words = f"{holder or 'a process'} has held it for {_WAIT:g} s: end that process, or try again"
        raise TimeoutError(f"the lock is {str(place)!r}: {words}") from None
