"""The content of a study: the setup with which it begins, the record of what has happened since, and their file.

The setup consists of the options (`fedgo.beyond.study.table`) and of the settings. Results are in the unit and the
direction of the user; a model receives them as rewards, which are larger the better.

The first line of the file has a checksum of all other lines. The file holds one JSON object. Its entry ``fedgo study``
is the version of this format, 4. ``columns`` has the role of each column of the table by its header, ``options`` the
cells of each option by its name, and ``begun`` the number of options with which the study began. ``about`` has the
other fields of the `Setup`, except a model of the user's own. All other entries are the fields of the `Record`. A site
is "" in a study without sites.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from torch import Tensor

from fedgo._checks import MOST, count, number, on_cpu, require, require_kind
from fedgo._streams import generator
from fedgo.beyond.federation.wire import HUGE, checked_reward
from fedgo.beyond.guarantees.guarantee import Guarantee
from fedgo.beyond.method.advised import METHODS, SEARCH, Advised, Goal
from fedgo.beyond.method.epochs import distinct
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.sites import Sites
from fedgo.beyond.method.surrogates import IndependentArms, Surrogate
from fedgo.beyond.study.cells import checked_names, composed, short
from fedgo.beyond.study.table import Options

Trial = tuple[str, str]
Told = tuple[str, str, float]

_VERSION = 4
_FASTEST = 10.0  # the largest factor by which trials may grow in an epoch


@dataclass(frozen=True)
class Setup:
    """The data with which a study begins; the constructor checks every field except ``options``.

    Args:
        options: The K options and their features.
        begun: The number of options with which the study began, from 1 to K; the options after them were added later.
        trials: The approximate number of trials that the user can afford, at least 1; more may follow.
        noise: σ, the standard deviation of a result's noise, at least 1e-100 and below 1e100; None means that the model
            estimates it. ``reach`` needs it.
        goal: "best" if only the option that is chosen at the end counts, or "reward" if every trial's result does.
        method: "advised", "ucb1" or "every arm once"; with a ``surrogate``, any name for it.
        surrogate: A model of the user's own, which takes the place of the method's model; or None.
        sites: The names of the places that make trials, each once; none if the study does not distinguish places.
        centre: A usual reward, above −1e100 and below 1e100, from which ``reach`` is counted; or None.
        reach: A bound on |f − ``centre``| for the mean reward f of every option, at least 1e-100 and below 1e100; or
            None. If it is given, the study bounds how far each option is below the best one (a certificate).
        seed: The seed of the order of the first options, and of the order in which ties are broken, at least 0.
        differ: Whether each site has a reward function of its own, which is then fitted for it. This needs two sites or
            more, another ``method`` than "ucb1", and no ``surrogate``.
        joined: The number of sites that joined later, at least 0; they are the last of ``sites``, but not all of them.
        lower_is_better: Whether lower results are better.
        old: The number of results with which the study began, which ``trials`` does not contain.
        decimal_comma: Whether the owner's table has decimal commas; plates have them then, and semicolons.
        setting: The numbers that say how much is explored, by the names that `Advised.setting` has. None means those of
            ``method``, or of "advised" if ``method`` is a name for a ``surrogate``. The field holds them then.

    Raises:
        TypeError: ``begun``, ``trials``, ``old``, ``seed`` or ``joined`` is not a whole number; ``noise``, ``centre``
            or ``reach`` is not a number; ``sites`` is not a list or a tuple; ``differ`` is not a bool; a value in
            ``setting`` is not a number; or ``surrogate`` has no method ``fit``.
        ValueError: A field has a value that is not allowed; ``reach`` is given without ``centre``; ``differ`` is given
            without its conditions; or no feature varies among the options with which the study began, and the model
            is not that of "ucb1", `IndependentArms`. The message names the field and the remedy.
    """

    options: Options
    begun: int
    trials: int
    noise: float | None = None
    goal: Goal = "best"
    method: str = "advised"
    surrogate: Surrogate | None = field(default=None, hash=False)
    sites: tuple[str, ...] = ()
    centre: float | None = None
    reach: float | None = None
    seed: int = 0
    differ: bool = False
    joined: int = 0
    lower_is_better: bool = False
    old: int = 0
    decimal_comma: bool = False
    setting: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        options, sites = len(self.options.names), checked_names("site", self.sites)
        checked: dict[str, Any] = {"sites": sites}
        limits = {"begun": (1, options), "trials": (1, MOST), "old": (0, MOST), "seed": (0, MOST)}
        limits["joined"] = (0, max(0, len(sites) - 1))  # at least one site begins the study
        for name, (least, most) in limits.items():
            checked[name] = count(name, getattr(self, name), f"give {least} or more", least, most)
        remedy = f"give a number above 0 in the units of results, from {1 / HUGE:g} to {HUGE:g}"
        for name in ("noise", "reach"):
            if getattr(self, name) is not None:
                checked[name] = number(name, getattr(self, name), remedy, least=1 / HUGE, below=HUGE)
        if self.centre is not None:
            checked["centre"] = number("centre", self.centre, "give a usual reward", above=-HUGE, below=HUGE)
        needed = self.reach is None or None not in (self.centre, self.noise)
        require(needed, "centre or noise", None, "reach needs both: a usual result, and σ of a result")
        vars(self).update(checked)  # they are now numbers, tuples and text that JSON can hold
        for name in ("differ", "lower_is_better", "decimal_comma"):
            flag = getattr(self, name)
            require_kind(isinstance(flag, bool), name, flag, "give True or False")
        remedy = f"choose one of {list(METHODS)}; in Python, give a Surrogate of your own at each opening"
        fits = self.surrogate is not None or self.method in list(METHODS)
        require(fits, "method", self.method, remedy)
        if self.setting is None:
            vars(self).update(setting=METHODS.get(self.method, METHODS["advised"]).setting)
        if self.differ:
            require(len(sites) > 1, "sites", list(sites), "give two at least, or leave differ out")
            remedy = "sites that differ have their own model: give 'advised', or leave differ out"
            require(self.surrogate is None and self.method != "ucb1", "method", self.method, remedy)
        growth = self.played.until.factor
        require(growth <= _FASTEST, "growth", growth, f"give at most {_FASTEST:g}, as long plans take long")
        played = self.played.surrogate
        require_kind(hasattr(played, "fit"), "method", played, "give the name of a method, or a Surrogate")
        remedy = "none varies: give a feature that tells options apart, or play 'ucb1'"
        fits = self.arms.shape[1] > 0 or isinstance(played, IndependentArms)
        require(fits, "the list of features", list(self.options.columns), remedy)

    @cached_property
    def played(self) -> Advised:
        """The method that the study plays: the numbers in ``setting`` together with a surrogate, the model of rewards.

        The surrogate is the user's own if there is one, otherwise that of the ``method``. With "advised" it is `Sites`,
        on the pairs of a site and an option if the sites differ, and with an output scale if the goal is "best".
        Columns that come from one category share their length scale.
        """
        method = METHODS.get(self.method, METHODS["advised"])
        if self.goal == "best" and isinstance(method.surrogate, GaussianProcess):
            method = replace(method, surrogate=SEARCH.surrogate)
        elif self.differ:
            method = replace(method, surrogate=Sites())
        surrogate = self.surrogate or method.grouped(self._encoded[1]).surrogate
        return replace(method, surrogate=surrogate, goal=self.goal).set(self.setting or {})

    @cached_property
    def _encoded(self) -> tuple[Tensor, tuple[int, ...]]:
        return self.options.encoded(self.begun)

    @property
    def arms(self) -> Tensor:
        """The features of the K options as the model receives them, (K, d_x) float64.

        Each of the d_x columns in which the options with which the study began vary is scaled such that their smallest
        value is 0 and their largest 1. Columns in which these options do not vary are left out.
        """
        return self._encoded[0]

    @property
    def sign(self) -> float:
        """The factor by which a result becomes a reward: −1 if lower is better, otherwise 1."""
        return -1.0 if self.lower_is_better else 1.0

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
        # the command `ask` prints a tab and the features behind a name
        name = composed(received.split("\t")[0]) if isinstance(received, str) else received
        if isinstance(name, str) and name in self.number_of:
            return name
        near = get_close_matches(str(name)[:200], self.options.names, 2) or self.options.names[:2]
        raise ValueError(f"option is {str(name)[:60]!r}: did you mean {' or '.join(map(repr, near))}?")

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
        return None if self.reach is None or self.noise is None else Guarantee(self.reach, self.noise, delta)

    def changed(self, options: Options, given: Mapping[str, Any]) -> "Setup":
        """Return a setup with further ``options`` after those of this one, and with the values that are ``given``.

        The trials may change, the noise too if there is no ``reach``, and sites may join if ``differ`` is True. Any
        other value that is given has to be equal to that of this setup.

        Raises:
            TypeError: The new trials or noise are not numbers, or the sites are not a list or a tuple.
            ValueError: The new sites do not begin with those of this setup, or a value is not allowed.
        """
        sites, before = checked_names("site", given.get("sites", self.sites)), list(self.sites)
        given = {**given, "sites": sites}
        free = ("trials", *("noise",) * (self.reach is None), *("sites",) * self.differ)
        kept = given.keys() - free
        was = {name: value for name, value in vars(self).items() if name in kept and value != given[name]}
        remedy = f"not { {name: given[name] for name in was} }; begin another file from a fedgo export"
        require(not was, "what the study was begun with", was, remedy)
        remedy = f"give first {before}, then those that join after them"
        require(list(sites[: len(before)]) == before, "the list of sites", list(sites), remedy)
        return replace(self, **given, options=options, joined=self.joined + len(sites) - len(before))


@dataclass(frozen=True)
class Record:
    """What has happened since a study began, and what is planned.

    Options and sites are given by their names; a site is "" in a study without sites. Nothing is checked here.

    Args:
        told: The option, the site and the reward of each trial whose reward is known, in the order of their entry.
        open: The option and the site of each trial that was asked for and whose reward is not known, in the order of
            the requests.
        retired: The options that are not proposed again.
        dropped: The options whose trial was given up since the last result; they are proposed after all others.
        plan: The options that are proposed next, in this order.
        until: A number of rewards. Once ``told`` has so many or more, the next request for a new trial makes a new
            plan; an empty ``plan`` causes this too.
    """

    told: tuple[Told, ...] = ()
    open: tuple[Trial, ...] = ()
    retired: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    until: int = 0


_ABOUT = [each.name for each in fields(Setup) if each.name not in ("options", "begun", "surrogate")]
_LISTS = ("told", "open", "retired", "dropped", "plan")
_FIELDS = ["fedgo study", "about", "columns", "options", "begun", *(each.name for each in fields(Record))]


def dumps(setup: Setup, record: Record) -> str:
    """Return the text of the file that holds ``setup`` and ``record``, which `loads` reads.

    If the setup has a ``surrogate`` of the user's own, the text has only the name of the ``method``, not the model.
    """
    about, options = {name: getattr(setup, name) for name in _ABOUT}, setup.options
    content = {"fedgo study": _VERSION, "about": about, "begun": setup.begun, "columns": options.role_of}
    content["options"] = dict(zip(options.names, options.rows, strict=True))
    # one entry a line; `indent` would take ten times as long
    lines = json.dumps(content | vars(record), ensure_ascii=False, separators=(",\n", ": "))[1:]
    return f'{{"checksum": "{_checksum(lines)}",\n{lines}'


def _checksum(lines: str) -> str:
    """Return 16 hexadecimal digits that depend on every character of the ``lines``."""
    return hashlib.sha256(lines.encode(errors="surrogatepass")).hexdigest()[:16]


def loads(text: str, surrogate: Surrogate | None = None) -> tuple[Setup, Record]:
    """Return the setup and the record that the text of a study's file holds, after a check of the fields.

    Args:
        text: The text that `dumps` returned. Without its checksum it may have been edited.
        surrogate: The user's own model, if the study was begun with one, because a file cannot hold it.

    Raises:
        TypeError: A field is of another kind, for instance a result that is not a number.
        ValueError: The text is not JSON, does not fit its checksum, or has a field that is missing, unknown, double or
            not allowed. If the study was begun with a ``surrogate``, one has to be given.
    """
    lines = text.partition("\n")[2]
    content = json.loads(text, object_pairs_hook=_once)
    seal = content.pop("checksum", None) if isinstance(content, dict) else None
    remedy = "the file was edited or damaged; if you edited it, remove the entry 'checksum'"
    require(seal in (None, _checksum(lines)), "the checksum", short(str(seal)), remedy)
    json.dumps(content, ensure_ascii=False).encode()  # half of a character is refused
    content, about = _fields("the file", content, _FIELDS), _fields("about", content.get("about"), _ABOUT)
    version, remedy = content["fedgo study"], "an earlier fedgo began this study: begin another file"
    require(version == _VERSION, "the version", version, remedy)
    for name, kind in (("columns", dict), ("options", dict), *((name, list) for name in _LISTS)):
        require(isinstance(content[name], kind), name, short(str(content[name])), f"give a {kind.__name__}")
    rows, roles = content["options"], content["columns"]
    options = Options(tuple(rows), tuple(roles), tuple(rows.values()), tuple(roles.values()))
    setup = Setup(options, content["begun"], surrogate=surrogate, **about)
    told = tuple((setup.option(name), setup.place(at), checked_reward(y)) for name, at, y in content["told"])
    opened = tuple((setup.option(name), setup.place(at)) for name, at in content["open"])
    lists = {name: tuple(map(setup.option, content[name])) for name in ("retired", "dropped", "plan")}
    remain = len(rows) - len(set(lists["retired"]))
    require(remain > 0, "the number of options that are not retired", remain, "keep at least one")
    until = count("until", content["until"], "give the number of results at which a plan ends", least=0)
    return setup, Record(told, opened, until=until, **lists)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the ``pairs`` of a JSON object as a dictionary, or raise a ``ValueError`` if a key occurs twice."""
    keys = [key for key, _ in pairs]
    twice = [key for key, times in Counter(keys).items() if times > 1]
    require(not twice, "what an object has twice", twice[:5], "remove one of them")
    return dict(pairs)


def _fields(where: str, content: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the ``content`` if it is a dictionary with the keys in ``names``; otherwise raise a ``ValueError``."""
    found = content if isinstance(content, dict) else {}
    fits = set(names) == set(found)
    require(fits, f"what {where} has", list(found)[:20], f"give {', '.join(sorted(names))}")
    return found
