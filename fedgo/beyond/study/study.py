"""A study of your own: options in a table, rewards in your units, one file that remembers all, and no server.

First distinct options are tried once, in random order, as many as `fedgo.beyond.advised.Advised.first` says. Then
epochs, as `fedgo.beyond.epochs.surrogate_ucb` with N = 1 plays them: a surrogate is fitted to all rewards and plans the
next trials by the largest mean + κ√variance, the variance as if what is planned or asked for were observed; so several
trials can be open at once, at several sites, and be told in any order. Column j of the options is scaled to
(v − low_j)/(high_j − low_j), by those with which the study began; a column that does not vary is left out.
"""

import csv
import json
import math
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from html import escape
from pathlib import Path
from textwrap import fill
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo import _files
from fedgo._checks import count, extra, number, on_cpu, require, require_kind
from fedgo._streams import generator
from fedgo.beyond.advised import ADVISED, METHODS, Advised
from fedgo.beyond.epochs import Growing, distinct
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.wire import HUGE
from fedgo.beyond.guard.guarantee import Guarantee
from fedgo.beyond.guard.intervals import Interval
from fedgo.beyond.surrogates.models import Fitted, Surrogate, fitted, why_it_failed
from fedgo.beyond.surrogates.networks import LinearisedOnce
from fedgo.beyond.surrogates.process import InUnits
from fedgo.confidence import Tally
from fedgo.network import Network
from fedgo.phase_one import phase_one_length

PRINTED = "fed-go-ucb"
_LAM, _BETA = 0.01, 0.1  # of the printed method, whose index is the mean + √β·width, in units of the spread
_VERSION = 1  # of the file
_UNSEEN = 200.0  # times the noise, the spread while there are few rewards
_WAIT = 60.0  # seconds for which a process waits for another to change the file
_FAR = 5.0  # spreads from the centre beyond which a reward is asked about


class Options(NamedTuple):
    """``names`` of K options, the ``columns`` of their features, and the ``values`` (K, d) in your units."""

    names: list[str]
    columns: list[str]
    values: Tensor

    @classmethod
    def of(cls, source: Any) -> "Options":
        """From a CSV's path, or a pandas frame: names in its index, or in the first column where it only counts; a
        ``ValueError`` names the line and the remedy."""
        if isinstance(source, str | Path):
            where = str(source)
            try:
                with open(source, newline="", encoding="utf-8-sig") as file:
                    header, *rows = list(csv.reader(file)) or [[]]
            except (UnicodeDecodeError, csv.Error) as error:
                raise ValueError(f"the table is {where!r}: it is no CSV in UTF-8 ({error})") from error
        else:
            remedy = "give a CSV's path, or a pandas frame"
            require_kind(hasattr(source, "itertuples"), "options", source, remedy)
            counted = type(source.index).__name__ == "RangeIndex"
            frame = source.set_index(source.columns[0]) if counted else source
            where, header, rows = "the frame", ["", *frame.columns], list(frame.itertuples())
        columns = [str(name) for name in header[1:]]
        lines = [(line, row) for line, row in enumerate(rows, 2) if len(row)]
        remedy = "separate by commas, with decimal points"
        require(not any(";" in str(name) for name in header), "the header", list(header), remedy)
        require(len(columns) > 0 and len(lines) > 0, "the table", where, "give a header, names and numbers")
        heads = [name for name in columns if _is_number(name)]
        require(not heads, f"the header of {where}", heads, "these are numbers: give the columns names first")
        for line, row in lines:
            fits = len(row) == len(header) and all(map(_is_number, row[1:]))
            remedy = f"give a name and {len(columns)} finite numbers"
            require(fits, f"row {line} of {where}", list(row), remedy)
        names = [unicodedata.normalize("NFC", str(row[0]).strip()) for _, row in lines]
        twice = [name for name, times in Counter(names).items() if times > 1]
        require(not twice, "a name that stands twice", twice[:1], "give each option one of its own")
        values = [[float(entry) for entry in row[1:]] for _, row in lines]
        return cls(names, columns, torch.tensor(values, dtype=torch.float64))

    @property
    def named(self) -> dict[str, list[float]]:
        """The values by the options' names."""
        return dict(zip(self.names, self.values.tolist(), strict=True))

    def scaled(self, first: int) -> Tensor:
        """The features as a model sees them, by the ranges of the ``first`` options, (K, d_x)."""
        low, high = self.values[:first].aminmax(dim=0)
        varies = high > low
        remedy = "no feature varies: give one that tells options apart"
        require(bool(varies.any()), "the columns", self.columns, remedy)
        return ((self.values - low) / (high - low))[:, varies]


def _is_number(entry: Any) -> bool:
    """Whether ``entry`` is a finite number, or text that is one; an underscore is for programmers."""
    try:
        return math.isfinite(float(entry)) and "_" not in str(entry) and str(entry).isascii()
    except (TypeError, ValueError):
        return False


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


@dataclass
class _Kept:
    """All that the file holds; options are known by their names."""

    about: dict[str, Any]  # what is fixed when the study begins
    columns: list[str]
    options: dict[str, list[float]]
    begun: int  # with how many options
    retired: list[str] = field(default_factory=list)
    open: list[tuple[str, str]] = field(default_factory=list)  # asked for and not told: option, site
    told: list[tuple[str, str, float]] = field(default_factory=list)  # option, site, reward
    plan: list[str] = field(default_factory=list)  # what is asked for next
    until: int = 0  # how many have been told when it is planned anew
    weights: list[float] = field(default_factory=list)  # ŵ₀ of the paper's method


class Study:
    """The study kept at ``path``, begun with ``options`` if no file is there; every change is saved at once.

    ``options`` are a CSV or a pandas frame: a header, then names and numbers; rows may be added at its end at any time,
    and a study that is there needs none. ``trials`` are about how many you can afford, and more may follow; ``noise``
    is σ of a reward: before you begin, try one option five times and take the standard deviation, then tell the study
    those five. The ``method`` is "advised", "ucb1", "every arm once", "fed-go-ucb" (the paper's, around a network
    fitted once), or a `Surrogate` of your own, played like the advised one. ``sites`` name who tries, if several do.
    With ``reach``, a bound on |f − ``centre``|, it is guarded: every option has a certificate. ``centre`` and
    ``spread`` are what you expect of a usual reward, and by how much options differ; without them they follow from the
    first rewards where they are needed at all. These are fixed when the study begins, but for ``noise``: a study
    without ``reach`` that is opened with another one keeps it, with a warning, and plans its next trial by a new fit.
    A ``ValueError`` names what does not fit, and nothing is changed by it.
    """

    @on_cpu
    def __init__(
        self,
        path: str | Path,
        options: Any = None,
        *,
        trials: int | None = None,
        noise: float | None = None,
        method: str | Surrogate = "advised",
        sites: Sequence[str] = (),
        centre: float | None = None,
        spread: float | None = None,
        reach: float | None = None,
        seed: int = 0,
    ) -> None:
        self.path = Path(path)
        self._alone = RLock()  # threads that share this object take turns
        self._last: tuple[Any, Fitted | None, str] = (None, None, "")
        given: dict[str, Any] = {"trials": trials, "noise": noise, "sites": list(sites) or None}
        given |= {"centre": centre, "spread": spread, "reach": reach, "seed": seed or None}
        self._own = None if isinstance(method, str) else replace(ADVISED, surrogate=method)
        name = method if isinstance(method, str) else f"a {type(method).__name__} of your own"
        given["method"] = None if name == "advised" else name
        as_lines = None if options is None else Options.of(options)
        with self._changing(missing=True):
            if self.path.exists():
                about = self._kept.about
                different = {k: v for k, v in given.items() if v is not None and v != about[k]}
                sigma = different.pop("noise", None)
                before = {k: about[k] for k in different}
                remedy = f"not {different}; begin another file for that"
                require(not different, f"what {self.path} was begun with", before, remedy)
                remedy = "give the same surrogate again: a file cannot hold it"
                require(self._own is not None or not about["own"], "the method", about["method"], remedy)
                self._change_noise(sigma)
                self._extend(as_lines)
            else:
                self._begin(as_lines, given | {"method": name, "own": self._own is not None})

    def _begin(self, as_lines: Options | None, about: dict[str, Any]) -> None:
        if as_lines is None:
            raise ValueError(f"the study is {str(self.path)!r}: it is not there: begin it with options")
        count("trials", about["trials"], "give how many trials you can afford")
        about["noise"] = number("noise", about["noise"], "give σ > 0, the noise of a reward", above=0)
        for name in ("spread", "reach"):
            if about[name] is not None:
                about[name] = number(name, about[name], "give a positive number in your units", above=0)
        if about["reach"] is not None:
            number("centre", about["centre"], "give the middle: reach is counted from there")
        about["sites"], about["seed"] = about["sites"] or [], about["seed"] or 0
        known = about["own"] or about["method"] in (*METHODS, PRINTED)
        require(known, "method", about["method"], f"choose one of {[*METHODS, PRINTED]}, or give a Surrogate")
        if about["method"] == PRINTED:
            warnings.warn(
                "fed-go-ucb is the paper's algorithm, kept for comparison: over the book's map its regret is several"
                " times that of the advised method, which is the default",
                stacklevel=4,
            )
        as_lines.scaled(len(as_lines.names))
        self._kept = _Kept(about, as_lines.columns, as_lines.named, len(as_lines.names))
        self._kept.plan = [as_lines.names[arm] for arm in self._first().tolist()]
        self._kept.until = len(self._kept.plan)

    def _change_noise(self, sigma: float | None) -> None:
        """Keep another σ = ``sigma``, if given, from now on, and leave the plan for a new fit; a ``ValueError`` where
        certificates rest on the σ that was given first."""
        if sigma is None:
            return
        about, before = self._kept.about, self._kept.about["noise"]
        remedy = f"not {sigma}: every certificate rests on it; begin another file, and tell it these trials"
        require(about["reach"] is None, f"the noise that {self.path} was begun with", before, remedy)
        about["noise"] = number("noise", sigma, "give σ > 0, the noise of a reward", above=0)
        warnings.warn(f"the noise of {self.path} was {before} and is {sigma} from now on", stacklevel=4)
        self._plan_anew()

    def _first(self) -> Tensor:
        """The arms that begin: distinct ones, or uniform draws for the paper's method."""
        about, arms = self._kept.about, self._kept.begun
        if about["method"] == PRINTED:
            return self._printed_plan.first
        length = self._how.first(1, arms, about["trials"])
        return distinct(arms, length, generator(about["seed"], 0, "each arm"))

    def _extend(self, as_lines: Options | None) -> None:
        """Take in what was added at the end of the ``as_lines``."""
        if as_lines is None:
            return
        kept, known = self._kept, list(self._kept.options)
        require(
            as_lines.columns == kept.columns, "the columns", as_lines.columns, f"the study has {kept.columns}"
        )
        same = as_lines.names[: len(known)] == known
        require(same, "the names", as_lines.names, f"the first are {known}; add rows at the end")
        options = as_lines.named
        changed = [name for name in known if options[name] != kept.options[name]]
        remedy = "give a changed option a name of its own"
        require(not changed, "the options with other numbers", changed, remedy)
        if len(options) > len(known):
            kept.options = options
            self._plan_anew()

    # asking and telling

    def ask(self, site: str | None = None) -> str:
        """The option to try next: the one that is open at ``site``, if any, else a new one."""
        return self.batch(1, site)[0]

    @on_cpu
    def batch(self, size: int, site: str | None = None) -> list[str]:
        """The options of ``size`` trials to be made at once: those that are open at ``site``, then new ones."""
        with self._changing():
            kept, place = self._kept, self._place(site)
            most = kept.about["trials"]
            count("size", size, f"give how many trials at once; the study was begun for {most}", most=most)
            there = [option for option, at in kept.open if at == place][:size]
            while len(there) < size:
                there.append(self._next())
                kept.open.append((there[-1], place))
        return there

    @on_cpu
    def tell(self, option: str, reward: float, site: str | None = None) -> None:
        """Learn that ``option``, asked for or not, gave ``reward``."""
        value = number("reward", reward, f"give a number within ±{HUGE:g}", above=-HUGE, below=HUGE)
        with self._changing():
            kept, place = self._kept, self._place(site)
            self._require_known(option)
            centre, spread = self._units(_UNSEEN * kept.about["noise"])
            if kept.told and abs(value - centre) > _FAR * spread:
                warnings.warn(
                    f"the reward of {option!r} is {value:g}, more than {_FAR:g} spreads of {spread:.3g} from"
                    f" {centre:.3g}: if it is a mistake, untell it",
                    stacklevel=3,
                )
            if (option, place) in kept.open:
                kept.open.remove((option, place))
            kept.told.append((option, place, value))

    def untell(self, option: str | None = None, site: str | None = None) -> tuple[str, float]:
        """Take back the last reward, of ``option`` or at ``site`` if given; what it was."""
        with self._changing():
            kept = self._kept
            trials = enumerate(kept.told)
            rows = [k for k, (name, at, _) in trials if option in (None, name) and site in (None, at)]
            require(len(rows) > 0, "the reward to take back", option, "there is none")
            name, _, reward = kept.told.pop(rows[-1])
            kept.weights = []
            self._plan_anew()
            return name, reward

    def drop(self, option: str, site: str | None = None) -> None:
        """Give up an open trial of ``option``, whose reward will not come."""
        with self._changing():
            trial = (option, self._place(site))
            require(trial in self._kept.open, "the trial to drop", trial, f"open are {self._kept.open}")
            self._kept.open.remove(trial)

    def retire(self, option: str, retired: bool = True) -> None:
        """Never propose ``option`` again, or again after all; what was learnt of it stays."""
        with self._changing():
            kept = self._kept
            self._require_known(option)
            kept.retired = [name for name in kept.retired if name != option] + [option] * retired
            remain = len(kept.options) - len(kept.retired)
            require(remain > 0, "the options that remain", remain, "keep at least one")

    def _plan_anew(self) -> None:
        """Leave what is planned for the next trial, unless the first ones go on."""
        if self._past_first:
            self._kept.until = min(self._kept.until, len(self._kept.told))

    def _place(self, site: str | None) -> str:
        sites = self._kept.about["sites"]
        remedy = f"give the site (--site in a shell), one of {sites}" if sites else "this study has no sites"
        require(site in sites if sites else site is None, "site", site, remedy)
        return site or ""

    def _require_known(self, option: str) -> None:
        names = list(self._kept.options)
        if option not in names:
            near = get_close_matches(str(option), names, 2) or names[:2]
            require(False, "option", option, f"did you mean {' or '.join(map(repr, near))}?")

    def _units(self, unseen: float = 1.0) -> tuple[float, float]:
        """Centre and spread: as given, else the mean and the standard deviation of the first rewards; ``unseen`` is the
        spread of fewer than five."""
        about, first = self._kept.about, [reward for _, _, reward in self._kept.told[: self._kept.begun]]
        rewards = torch.tensor(first, dtype=torch.float64)
        varies = len(rewards) >= 5 and bool((rewards != rewards[0]).any())
        centre = about["centre"] if about["centre"] is not None else float(rewards.mean()) if first else 0.0
        estimated = max(float(rewards.std()), about["noise"]) if varies else unseen
        return centre, about["spread"] if about["spread"] is not None else estimated

    @property
    def open(self) -> list[tuple[str, str]]:
        """The trials that were asked for and not told: option and site ("" without sites)."""
        return self._read().open

    @property
    def told(self) -> list[tuple[str, str, float]]:
        """What was told: option, site and reward."""
        return self._read().told

    @property
    def sites(self) -> list[str]:
        """Those who try; none unless the study was begun with sites."""
        return list(self._read().about["sites"])

    # the model

    @property
    def _how(self) -> Advised:
        about = self._kept.about
        if about["method"] != PRINTED:
            return self._own or METHODS[about["method"]]
        kappa = math.sqrt(_BETA) * self._units()[1] / about["noise"]
        return Advised(kappa=kappa, untried=kappa, until=Growing(1 + 1e-9, 1))  # one trial at a time

    @property
    def _past_first(self) -> bool:
        return len(self._kept.told) >= len(self._first())

    def _sums(self, told: Sequence[tuple[str, str, float]], centre: float = 0.0) -> Tally:
        """Counts (K,) of what was ``told``, and sums of what is above ``centre``."""
        arm, reward = self._numbers(told)
        none = torch.zeros(len(self._kept.options), dtype=torch.float64)
        return Tally(none.index_add(0, arm, torch.ones_like(reward)), none.index_add(0, arm, reward - centre))

    def _numbers(self, told: Sequence[tuple[str, str, float]]) -> tuple[Tensor, Tensor]:
        """The arms and the rewards (n,) of what was ``told``."""
        number_of = {name: arm for arm, name in enumerate(self._kept.options)}
        arm = torch.tensor([number_of[option] for option, *_ in told], dtype=torch.int64)
        return arm, torch.tensor([reward for *_, reward in told], dtype=torch.float64)

    @property
    def _arms(self) -> Tensor:
        values = torch.tensor(list(self._kept.options.values()), dtype=torch.float64)
        return Options([], self._kept.columns, values).scaled(self._kept.begun)

    @property
    def _alive(self) -> Tensor:
        """Which options are not retired, (K,) bool."""
        retired = set(self._kept.retired)
        return torch.tensor([name not in retired for name in self._kept.options])

    @property
    def _guarantee(self) -> Guarantee | None:
        about = self._kept.about
        return None if about["reach"] is None else Guarantee(about["reach"], about["noise"])

    def _certificate(self, guarantee: Guarantee) -> Tensor:
        """By how much each option is at most worse than the best one, (K,); NaN where the intervals of Theorem G′ since
        the first reward have nothing in common: they hold all at once, or the bounds are no bounds."""
        arm, reward = self._numbers(self._kept.told)
        each = Tally.blank(len(arm) + 1, len(self._kept.options)).counts
        each[torch.arange(len(arm)) + 1, arm] = 1
        above = torch.nn.functional.pad(reward - self._kept.about["centre"], (1, 0)).unsqueeze(-1)
        known = Tally(each.cumsum(0), (each * above).cumsum(0))
        lower, upper, gain = guarantee.intervals(1).after(known, torch.zeros(len(each)), shared=known)
        left = Interval(lower.amax(0), upper.amin(0), gain[-1])
        return Interval(lower[-1], upper[-1], gain[-1]).price.where(~left.refuted, torch.nan)

    def _fitted(self) -> tuple[Fitted | None, str]:
        """The fit of all that was told, or None and why; it is made once for the same data."""
        kept = self._kept
        made_of = (tuple(kept.told), tuple(kept.options), kept.about["noise"])
        if self._last[0] != made_of:
            try:
                fit: Fitted | None = None
                if kept.about["method"] == PRINTED:
                    fit = self._printed() if self._past_first else None
                elif kept.told:
                    fit = fitted(self._how.surrogate, self._arms, self._sums(kept.told), kept.about["noise"])
                self._last = (made_of, fit, "" if fit else "there are too few rewards")
            except Exception as error:
                self._last = (made_of, None, f"the fit failed: {why_it_failed(error)}")
        return self._last[1:]

    @property
    def _printed_plan(self) -> Plan:
        about, arms = self._kept.about, self._arms
        network, length = Network(arms.shape[1], 25), phase_one_length(1, about["trials"])
        return Plan(arms, network=network, length=length, seed=about["seed"])

    def _printed(self) -> Fitted:
        """The paper's model around the ŵ₀ of the uniform trials, both fitted in units of centre and spread."""
        kept, plan, (centre, spread) = self._kept, self._printed_plan, self._units()
        assert plan.network is not None

        def scaled(told: Sequence[tuple[str, str, float]]) -> Tally:
            counts, sums = self._sums(told)
            return Tally(counts, (sums - centre * counts) / spread)

        if not kept.weights:
            kept.weights = plan.oracle(torch.stack(scaled(kept.told[: plan.length]))).tolist()
        once = LinearisedOnce(plan.network, torch.tensor(kept.weights, dtype=torch.float64), _LAM)
        fit = once.fit(plan.arms, scaled(kept.told[plan.length :]), kept.about["noise"] / spread)
        mean, features, half = centre + spread * fit.mean, spread * fit.features, spread * fit.half
        return fit._replace(mean=mean, features=features, half=half)

    # what is tried

    def _next(self) -> str:
        """A new trial: the next of the plan, or under a guard, where that is not certified, the most optimistic one."""
        kept, guarantee = self._kept, self._guarantee
        kept.plan = [name for name in kept.plan if name not in kept.retired]
        if not kept.plan or len(kept.told) >= kept.until:
            self._plan()
        if guarantee is not None and self._past_first:
            names, known = list(kept.options), self._sums(kept.told, kept.about["centre"])
            now = guarantee.intervals(1).after(known, torch.zeros(()), shared=known)
            proposed = torch.tensor(names.index(kept.plan[0]))
            if now.certificate(proposed) > guarantee.kappa * (now.upper - now.lower)[proposed]:
                return names[int(now.upper.masked_fill(~self._alive, -math.inf).argmax())]
        return kept.plan.pop(0)

    def _plan(self) -> None:
        """Plan an epoch. While nothing can be fitted it is one trial, of an option with the fewest, at random."""
        kept, names, alive = self._kept, list(self._kept.options), self._alive
        source = generator(kept.about["seed"], 0, "order of ties")
        ties = torch.rand(len(names), generator=source, dtype=torch.float64)
        opened = [names.index(option) for option, _ in kept.open]
        counts, fit = self._sums(kept.told).counts, self._fitted()[0]
        tried = counts + torch.bincount(torch.tensor(opened, dtype=torch.int64), minlength=len(counts))
        arms = (tried + ties).masked_fill(~alive, math.inf).argmin().unsqueeze(0)
        if fit is not None:
            with suppress(ValueError):  # a reward so far off that no index is a number
                arms = self._how.epoch(fit, counts, kept.about["noise"], ties, opened, ~alive)
        kept.plan, kept.until = [names[arm] for arm in arms.tolist()], len(kept.told) + len(arms)

    # what is known

    @on_cpu
    def standings(self) -> list[Standing]:
        """Every option, the best estimate first."""
        with self._alone:
            self._kept = self._read()
            return self._standings()

    def _standings(self) -> list[Standing]:
        """Return the standings of what was read last."""
        kept, (counts, sums), (model, _) = self._kept, self._sums(self._kept.told), self._fitted()
        estimate = low = high = certificate = torch.full_like(sums, torch.nan)
        kappa = torch.where(counts > 0, self._how.kappa, self._how.untried)
        if isinstance(model, InUnits):
            estimate, low, high = model.interval(kappa)
        elif model is not None:
            half = kappa * model.variance.clamp(min=0).sqrt()
            estimate, low, high = model.mean, model.mean - half, model.mean + half
        if self._guarantee is not None:
            certificate = self._certificate(self._guarantee)
        columns = (counts.long(), sums / counts, estimate, low, high, certificate, ~self._alive)
        rows = zip(kept.options, *(column.tolist() for column in columns), strict=True)
        standings = [Standing(*row) for row in rows]
        return standings if model is None else sorted(standings, key=lambda row: -row.estimate)

    def verdict(self) -> str:
        """One sentence to stop by: with a guard its certificate, else what the model thinks, which promises nothing."""
        rows = self.standings()
        there = [row for row in rows if not row.retired]
        model, why = self._fitted()
        if self._guarantee is not None:
            best = min(there, key=lambda row: row.certificate)
            if math.isnan(best.certificate):
                return "The rewards refute noise or reach: no certificate holds."
            grown = len(rows) / self._kept.begun  # an option that is added costs δ/K more
            share = 1 - self._guarantee.delta * (1 + math.log(grown))
            return (
                f"{best.option} is at most {best.certificate:.3g} below the best, with probability {share:.3g},\n"
                "if noise and reach are true bounds."
            )
        if model is None:
            return f"Nothing can be said yet: {why}."
        best, others = there[0], [row.high for row in there[1:]]
        if not all(map(math.isfinite, [best.estimate, *others])):
            option, _, reward = max(self._kept.told, key=lambda row: abs(row[2]))
            return f"Nothing can be said: {reward:g} of {option} is far from all others; untell it if it is wrong."
        gap = max(0.0, max(others, default=best.estimate) - best.estimate)
        return f"No option beats {best.option} by more than {gap:.3g}, says the model, which may err."

    def to_frame(self) -> Any:
        """The standings as a pandas frame, a row for each option."""
        import pandas as pd

        return pd.DataFrame(self.standings()).set_index("option")

    def _repr_html_(self) -> str:
        html: str = self.to_frame().to_html(float_format=lambda value: f"{value:.3g}", na_rep="")
        return f"{html}<p>{escape(self.verdict())}</p>"

    def plot(self, axes: Any = None) -> Any:
        """Estimates with their intervals, the means of what was told with their number, and certificates if guarded."""
        import matplotlib.pyplot as plt

        rows = self.to_frame()
        axes = axes or plt.subplots(figsize=(7, 0.3 * len(rows) + 1.2), layout="constrained")[1]
        place = range(len(rows))[::-1]
        ends = [rows["estimate"] - rows["low"], rows["high"] - rows["estimate"]]
        axes.errorbar(rows["estimate"], place, xerr=ends, fmt="o", capsize=3, label="estimate")
        axes.plot(rows["mean"], place, "s", fillstyle="none", label="mean of its trials")
        if self._guarantee is not None:
            top = rows["estimate"] + rows["certificate"]
            axes.plot(top, place, "|", markersize=12, label="certificate: at most so far below the best")
        axes.set_yticks(place, [f"{option} ({pulls})" for option, pulls in rows["pulls"].items()])
        axes.set(xlabel="reward", title=fill(self.verdict(), 60))
        axes.legend()
        return axes

    # the file

    @contextmanager
    def _changing(self, missing: bool = False) -> Iterator[None]:
        """Read the file, let what it says be changed, and write it, alone; after an error it is as before."""
        with extra("study"):
            from filelock import FileLock, Timeout
        require(self.path.parent.is_dir(), "the folder of the study", str(self.path.parent), "make it first")
        target = self.path.resolve()  # so that all links to a study share one lock
        lock = FileLock(target.with_name(f".{target.name}.lock"), timeout=_WAIT)
        try:
            held = lock.acquire()
        except Timeout:
            remedy = f"another process has held it for {_WAIT:g} s: end that process, or try again"
            raise TimeoutError(f"the lock of the study is {lock.lock_file!r}: {remedy}") from None
        with self._alone, held:
            if self.path.exists() or not missing:
                self._kept = self._read()
            yield
            content = {"fedgo study": _VERSION} | asdict(self._kept)
            with _files.whole(self.path, "the study") as file:
                file.write(json.dumps(content, ensure_ascii=False, indent=1).encode())

    def _read(self) -> _Kept:
        with _files.refused_by_name(self.path, "the study", "a study, or a copy of it"):
            found = json.loads(self.path.read_text(encoding="utf-8"))
            version = found.pop("fedgo study", None) if isinstance(found, dict) else None
            require(version == _VERSION, "the version", version, f"give a study of version {_VERSION}")
            found |= {name: [tuple(row) for row in found[name]] for name in ("open", "told")}
            return _Kept(**found)


def as_lines(standings: Sequence[Standing]) -> str:
    """The standings as lines of text; what is not known is a dash."""
    size = max((len(row.option) for row in standings), default=6)
    guarded = any(row.certificate == row.certificate for row in standings)
    head = f"{'option':{size}}  pulls     mean  estimate  from ... to{'        at most below best' * guarded}"
    lines = []
    for row in standings:
        mean, estimate, low, high, certificate = (f"{value:.3g}".replace("nan", "-") for value in row[2:7])
        last = f"{f'{low} ... {high}':17}  {certificate}" if guarded else f"{low} ... {high}"
        line = f"{row.option:{size}}  {row.pulls:5d}  {mean:>7}  {estimate:>8}  {last}"
        lines.append(line + "  retired" * row.retired)
    return "\n".join([head, *lines])
