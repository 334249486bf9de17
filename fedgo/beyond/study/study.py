"""A study of your own: options in a table, rewards in your units, one file that remembers all, and no server."""

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
from fedgo.beyond.study import trials as pure
from fedgo.beyond.study.record import Record, Told, Trial, checked_reward, dumps, loads
from fedgo.beyond.study.setup import Options, Setup, composed, is_number
from fedgo.beyond.surrogates.models import Surrogate

_WAIT = 60.0  # seconds for which a process waits for another to change the file
_Write = Callable[[Setup, Record], None]
_FAR = 5.0  # spreads from the centre beyond which a reward is asked about


class DoneBut(UserWarning):
    """A warning that something failed after a study was changed: the change counts, and is not to be repeated."""


class Study:
    """The study kept at ``path``, begun with ``options`` if no file is there.

    Every change is one transaction on the file that the path leads to: the study reads the file, changes what it says
    and writes it, and no other process or thread changes it meanwhile. Looking at a study changes no file and needs no
    permission to write. What an argument says is compared with what the study was begun with; what is not given is as
    the study was begun, and these are fixed but for ``options`` and ``noise``.

    Args:
        path: The file, or a link to it.
        options: A CSV's path or a pandas frame: a header, then a name and numbers for each option. Rows may be added at
            its end at any time. A study that exists needs none.
        trials: About how many trials you can afford. The number decides how boldly options are tried that nobody has
            tried. More may follow; from then on the number of trials that were made decides.
        noise: σ, the standard deviation of a reward. Before you begin, try one option five times and take the standard
            deviation; then tell the study those five. A study without ``reach`` that is opened with another ``noise``
            keeps it, with a warning, and makes its next plan by a new fit.
        method: "advised" unless given, "ucb1", "every arm once", or a `Surrogate` of your own, which is played like
            the advised one, and which has to be given whenever the study is opened.
        sites: The names of those who try, if several do.
        centre: What you expect of a usual reward; if it is not given, the mean of the first rewards, where needed.
        spread: By how much you expect options to differ; if it is not given, the standard deviation of the first
            rewards, where needed.
        reach: A bound on |f − ``centre``| for every option: then a guard gives every option a certificate.
        seed: Decides the order of the first options, and ties; 0 unless given.
        differ: Whether what is good at one site need not be good at another: then every site has its own estimates,
            which learn from those of the others as far as they are alike, and is sent to its own best option. Sites may
            join at any time: give all of them, the new ones last. It pays on long runs; see the chapter "Sites that
            differ".

    Raises:
        TypeError: An argument is of another kind.
        ValueError: An argument or the file says something that is not allowed, or the two differ. The message names it,
            and the remedy; nothing is changed.
        OSError: The file cannot be written; nothing is changed. If something fails after the change, there is a
            `DoneBut` warning instead.
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
        before = new or self.content[0]
        after = before.changed(table, given)
        if new or after != before:
            with self._changing("begun" if new else "changed", new) as (setup, record, write):
                after = setup.changed(table, given)
                write(after, pure.plan_anew(after, record))
        if after.noise != before.noise:
            words = f"the noise of {self.path} was {before.noise} and is {after.noise} from now on"
            warnings.warn(words, stacklevel=2)

    def _begun(self, table: Options, given: dict[str, Any]) -> Setup:
        """Return the setup of a new study with the options of the ``table``, and what is ``given`` by name."""
        for name, meaning in (("trials", "about how many you can afford"), ("noise", "σ of a reward")):
            if name not in given:
                raise ValueError(f"{name} is missing: give {meaning}, {name}=… or in a shell --{name} …")
        if all(map(is_number, table.names)):
            words = f"the names are numbers, as {table.names[0]!r}: the first column has the names and is no feature"
            warnings.warn(f"{words}; if it is one, put a column of names before it", stacklevel=3)
        return Setup(table, len(table.names), surrogate=self._surrogate, **given)

    # asking and telling

    def ask(self, site: str | None = None) -> str:
        """Return the option to try next.

        Args:
            site: Who tries, in a study with sites.

        Returns:
            The name of the option that is open at the site, if there is one, else of a new one, which is open then.

        Raises:
            ValueError: The study has no such ``site``.
            OSError: The file cannot be written; nothing is changed.
        """
        return self.batch(1, site)[0]

    def batch(self, size: int, site: str | None = None) -> list[str]:
        """Return the options of several trials to be made at once.

        Args:
            size: The number of trials, from 1 to the study's ``trials``.
            site: Who tries, in a study with sites.

        Returns:
            The names of ``size`` options, which may repeat: first those that are open at the site, then new ones, which
            are open then.

        Raises:
            TypeError: ``size`` is no whole number.
            ValueError: ``size`` is out of range, or the study has no such ``site``.
            OSError: The file cannot be written; nothing is changed.
        """
        asked: list[str] = []
        with self._changing("asked") as (setup, record, write):
            asked, after = pure.next_trials(setup, record, size, site)
            if after != record:
                write(setup, after)
        return asked

    def tell(self, option: str, reward: float, site: str | None = None) -> int:
        """Learn the reward of a trial, whether the study asked for it or not.

        A warning says if the reward is far from all others.

        Args:
            option: The name of the option that was tried.
            reward: What came of it, a number within ±1e100 in the user's units.
            site: Who tried it, in a study with sites.

        Returns:
            The number of rewards that are told now.

        Raises:
            TypeError: ``reward`` is no number.
            ValueError: The study has no such ``option`` or ``site``, or ``reward`` is out of range.
            OSError: The file cannot be written; nothing is changed.
        """
        told = 0
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
        """Take back the last reward that was told, and plan the next trial anew.

        Args:
            option: Whose last reward to take back; that of any option unless given.
            site: From which site; from any unless given.

        Returns:
            The name of the option, and the reward.

        Raises:
            ValueError: No such reward is told.
            OSError: The file cannot be written; nothing is changed.
        """
        rows, wanted = [], (composed(option), composed(site))
        with self._changing("taken back") as (setup, record, write):
            rows = [row for row in record.told if wanted[0] in (None, row[0]) and wanted[1] in (None, row[1])]
            require(len(rows) > 0, "what to take back", option or "the last reward", "no such reward is told")
            told = _without(record.told[::-1], rows[-1])[::-1]
            write(setup, pure.plan_anew(setup, replace(record, told=told)))
        return rows[-1][0], rows[-1][2]

    def drop(self, option: str, site: str | None = None) -> None:
        """Give up the open trial of ``option`` (at ``site``, in a study with sites), whose reward will not come.

        A ``ValueError`` says if no such trial is open, an ``OSError`` if the file cannot be written.
        """
        with self._changing("dropped") as (setup, record, write):
            trial = (setup.option(option), setup.place(site))
            require(trial in record.open, "the trial to drop", option, "it is not open; show says which are")
            write(setup, replace(record, open=_without(record.open, trial)))

    def retire(self, option: str, retired: bool = True) -> None:
        """Say whether an option may be proposed. What was learnt of it stays.

        Args:
            option: The name of the option.
            retired: If True, the option is never proposed again and its open trials are given up; if False, it is
                proposed again after all.

        Raises:
            ValueError: The study has no such ``option``, or none would remain.
            OSError: The file cannot be written; nothing is changed.
        """
        with self._changing("retired" if retired else "proposed again") as (setup, record, write):
            name = setup.option(option)
            others = tuple(other for other in record.retired if other != name)
            remain = len(setup.options.names) - len(others) - retired
            require(remain > 0, "the number of options that remain", remain, "keep at least one")
            opened = tuple(trial for trial in record.open if not (retired and trial[0] == name))
            write(setup, replace(record, open=opened, retired=(*others, name) if retired else others))

    # what is known

    @property
    def open(self) -> list[Trial]:
        """The trials that were asked for and have no reward yet, as pairs of option and site ("" without sites)."""
        return list(self.content[1].open)

    @property
    def told(self) -> list[Told]:
        """The rewards told so far, as triples of option, site and reward."""
        return list(self.content[1].told)

    @property
    def sites(self) -> list[str]:
        """The names of the sites, an empty list if the study was begun without sites."""
        return list(self.content[0].sites)

    def standings(self, site: str | None = None) -> list[pure.Standing]:
        """Return the K standings (`fedgo.beyond.study.trials.Standing`), one for each option, the best estimate first.

        ``site`` is the site whose estimates are returned, and is needed if sites differ.
        """
        return pure.standings(*self.content, site)

    def verdict(self, site: str | None = None) -> str:
        """Return a sentence that helps to decide when to stop: a certificate in a study with ``reach``, else an
        estimate of the model, which is not guaranteed.

        ``site`` is the site that the sentence is about, and is needed if sites differ. If a study fits its sites as
        alike and they seem to differ, a second sentence says so.
        """
        return pure.verdict(*self.content, site)

    def to_frame(self, site: str | None = None) -> Any:
        """Return the standings as a pandas frame: a row for each option, whose name is the index.

        ``site`` is the site whose estimates are returned, and is needed if sites differ.
        """
        import pandas as pd

        return pd.DataFrame(self.standings(site)).set_index("option")

    def _repr_html_(self) -> str:
        pages = []
        for site in self.content[0].rows:
            html = self.to_frame(site).to_html(float_format=lambda value: f"{value:.3g}", na_rep="")
            pages.append(f"{escape(site or '')}{html}<p>{escape(self.verdict(site))}</p>")
        return "".join(pages)

    def plot(self, axes: Any = None, site: str | None = None) -> Any:
        """Draw the estimates with their intervals, the means of the rewards, and certificates if the study has a
        ``reach``. The label of each option contains its number of trials.

        Args:
            axes: The matplotlib axes; those of a new figure unless given.
            site: The site whose estimates are drawn, needed if sites differ.

        Returns:
            The axes.
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
        axes.set_yticks(place, labels, parse_math=False)  # a $ in a name begins no formula
        axes.set_title(fill(title, 60), parse_math=False)
        axes.set_xlabel("reward")
        axes.legend()
        return axes

    # the file

    @contextmanager
    def _changing(self, done: str, new: Setup | None = None) -> Iterator[tuple[Setup, Record, _Write]]:
        """Hold the study's lock; give what the file says, and a function that writes to the file what is to replace it.

        If there is no file, the study is a ``new`` one. After an error the file is as before. If the error comes after
        the file was written, a warning says that the change is ``done``, but what failed; Ctrl-C stays an interrupt.
        """
        target, saved = _files.resolved(self.path, "the study"), False

        def write(setup: Setup, record: Record) -> None:
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
                yield *(self.content if new is None or target.exists() else (new, Record.of(new))), write
        except KeyboardInterrupt:
            if saved:
                warnings.warn(f"{done}, but interrupted afterwards", DoneBut, stacklevel=4)
            raise
        except OSError as error:
            if not saved:
                raise type(error)(f"nothing is changed in {str(self.path)!r}: {error}") from error
            warnings.warn(f"{done}, but {error}", DoneBut, stacklevel=4)

    @property
    def content(self) -> tuple[Setup, Record]:
        """What the file says: the setup with which the study was begun, and the record of what has happened since.

        A ``ValueError`` says why the file cannot be read, or what in it is not allowed.
        """
        try:
            return loads(self.path.read_text(encoding="utf-8"), self._surrogate)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            words = f"{str(self.path)!r} cannot be read as a study: {reason}; give another file"
            raise ValueError(f"{words}, or a table to begin one (fedgo begin)") from error


def _without(entries: tuple[Any, ...], entry: Any) -> tuple[Any, ...]:
    """Return the ``entries`` without the first that is equal to ``entry``, if there is one."""
    place = entries.index(entry) if entry in entries else len(entries)
    return entries[:place] + entries[place + 1 :]


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the lock of the study at ``target``, a path without links, so that nobody else changes the study meanwhile.

    The lock is a hidden file beside the study, with the study's mode and group. It says who took it last.

    Raises:
        ValueError: The folder of the study does not exist.
        PermissionError: The user may only read the study.
        TimeoutError: Another process has held the lock for a minute.
        OSError: The lock cannot be taken for another reason.
    """
    with extra("study"):
        from filelock import FileLock, Timeout
    require(target.parent.is_dir(), "the folder of the study", str(target.parent), "make it first")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError("you may only read the study; its owner can share it by chmod g+w")
    place, holder = target.with_name(f".{target.name}.lock"), ""
    try:
        with FileLock(place, timeout=_WAIT):
            with suppress(OSError, AttributeError):  # without this courtesy the lock holds as well
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
