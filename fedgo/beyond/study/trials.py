"""Functions that say what a study proposes next and what it knows, given its setup and its record, which they leave
unchanged.

First the options in `Setup.first` are proposed once each, in random order, until as many rewards are known as there are
such options. Then a surrogate, the model of the rewards, is fitted to all of them and plans the next trials. With the
goal "best" every new result leads to a new fit, and untried options with the largest mean + 2√variance come next, or,
in the last third, those whose repetition is worth more to the final choice (`fedgo.beyond.method.search`). With the
goal "reward" epochs follow, with the options of the largest mean + κ√variance and κ the weight of exploration. The
variance is that after the planned and the open trials. In a study with a ``reach``, the guard proposes the option with
the largest upper end if it does not accept the planned one. Several trials can be open at once, and their results can
be told in any order.

If the sites differ, each site has its own estimates (`fedgo.beyond.method.sites`). After the first options, each
request of a site for a new trial plans this one trial from a fit to all rewards.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, extra, on_cpu
from fedgo._streams import generator, uniform_draws
from fedgo.beyond.guarantees.guarantee import Guarantee
from fedgo.beyond.guarantees.intervals import Interval
from fedgo.beyond.method.process import ProcessFit
from fedgo.beyond.method.search import HALF_WIDTH, Whole, searching, shortfall
from fedgo.beyond.method.sites import cochran
from fedgo.beyond.method.surrogates import Fitted, Noise, Replicates, as_number, fitted, why_it_failed
from fedgo.beyond.study.setup import Record, Setup, Told
from fedgo.confidence import Tally

with extra("study"):
    import pandas as pd

Site = str | None  # None in a study without sites
_TOO_FEW = "fewer than two options have a reward"
_FITS, _FOLDS = 50, 10  # so many options are left out one by one, and more of them in so many groups
_MOST = 1536  # the most trials at once, the wells of the largest plate
_SURE = 0.001  # sites seem to differ below this p; it is small because users look often and trials depend on rewards


class Standing(NamedTuple):
    """The row of one option in the table of results, in the units of the rewards; an unknown number is NaN.

    If the sites differ, a row is about one site; otherwise it is about all sites together.

    Args:
        option: The name of the option.
        pulls: The number of its trials whose reward is known.
        mean: The mean of its rewards.
        estimate: The model's estimate of its mean reward.
        low: The lower end of the model's interval for its mean reward. The interval guarantees nothing.
        high: The upper end of this interval.
        certificate: If the study has a ``reach``, a bound on how much worse its mean reward is than the best option's;
            NaN if the rewards refute ``noise`` or ``reach``. If these two are true bounds, all certificates hold at
            once with probability 0.9, or with a smaller one if options or sites were added. If sites share the row,
            each option's mean reward is weighted by where this option was tried.
        retired: Whether it is not proposed again.
    """

    option: str
    pulls: int
    mean: float
    estimate: float
    low: float
    high: float
    certificate: float
    retired: bool


@lru_cache(maxsize=2)
def posterior(setup: Setup, told: tuple[Told, ...]) -> tuple[Fitted | None, str]:
    """Fit the surrogate of the ``setup``, its model of the rewards, to all rewards; the last two results are cached.

    Args:
        setup: The setup of the study.
        told: The option, the site and the reward of every trial whose reward is known.

    Returns:
        The posterior of the K options' mean rewards, whose ``mean`` and ``variance`` are (K,) each, or None if there is
        no fit; and the reason why there is none, "" if there is one. If the N sites differ, the posterior is that of
        the N·K pairs of a site and an option, all options of the first site first. There is no fit if no reward is
        known or if the fit fails.
    """
    if not told:
        return None, _TOO_FEW
    try:
        data = _of_each_site(setup, told) if setup.differ else _tally(setup, told)
        return fitted(setup.played.surrogate, setup.arms, data, _noise(setup, told)), ""
    except Exception as error:
        reason, options = why_it_failed(error), {option for option, *_ in told}
        return None, f"the fit failed: {reason}" if len(options) > 1 else _TOO_FEW


def _noise(setup: Setup, told: Sequence[Told]) -> Noise:
    """Return the noise of the ``setup``, or what the replicates in ``told`` say about it."""
    if setup.noise is not None:
        return setup.noise
    frame = pd.DataFrame(told, columns=["option", "site", "reward"])
    each = frame.groupby(["option", "site"] if setup.differ else "option")["reward"]
    squares = (frame["reward"] - each.transform("mean")) ** 2
    return Replicates(len(frame) - each.ngroups, float(squares.sum()))


def noise_of(setup: Setup, told: tuple[Told, ...]) -> float:
    """Return the noise σ of the ``setup``, or an estimate by the Gaussian process, or by the replicates with another
    model.
    """
    fit = posterior(setup, told)[0]
    if setup.noise is None and isinstance(fit, ProcessFit):
        return fit.sigma
    return max(as_number(_noise(setup, told), _tally(setup, told)), 1e-100)


@on_cpu
def next_trials(setup: Setup, record: Record, size: int = 1, site: Site = None) -> tuple[list[str], Record]:
    """Return the options to try next, and the record in which these trials are open.

    Args:
        setup: The setup of the study.
        record: The record of what has happened since it began.
        size: The number of trials, from 1 to 1,536, the wells of the largest plate.
        site: The site that makes the trials, in a study with sites; otherwise None.

    Returns:
        The names of the options of ``size`` trials: in a study with sites first those that are open at the site, then
        new ones; and the record in which all of them are open.

    Raises:
        TypeError: ``size`` is not a whole number.
        ValueError: ``size`` is out of range, the study has no such ``site``, or it has sites and ``site`` is None.
    """
    place = setup.place(site)
    count("the number of trials at once", size, f"give a number from 1 to {_MOST}", most=_MOST)
    mine = [option for option, at in record.open if place and at == place and option not in record.retired]
    asked = mine[:size]
    while len(asked) < size:
        options, record = _more(setup, record, place, size - len(asked))
        asked += options
        record = replace(record, open=(*record.open, *((option, place) for option in options)))
    return asked, record


def _more(setup: Setup, record: Record, site: str, most: int) -> tuple[list[str], Record]:
    """Return at least one and at most ``most`` options for new trials at ``site``, and the record without them in its
    plan.
    """
    later, closed = past_first(setup, record), _closed(setup, record)
    done = closed if later else closed | {option for option, *_ in (*record.told, *record.open)}
    plan = tuple(option for option in record.plan if option not in done)
    record = replace(record, plan=plan)
    if not plan or len(record.told) >= record.until or (setup.differ and later):
        record = _planned(setup, record, site, most)
    proposed, guarantee = record.plan[:most], setup.guarantee
    if guarantee is not None and later:
        # a guard decides on the first option of the plan; if it refuses, the plan keeps this option for later
        known = _tally(setup, at_site(setup, record, site), setup.centre)
        now = guarantee.intervals(1).after(known, torch.zeros(()), shared=known)
        if not now.accepts(guarantee.kappa)[setup.number_of[proposed[0]]]:
            upper = now.upper.masked_fill(_among(setup, closed), -math.inf)
            return [setup.options.names[int(upper.argmax())]], record
        proposed = proposed[:1]
    return list(proposed), replace(record, plan=record.plan[len(proposed) :])


def _planned(setup: Setup, record: Record, site: str, wanted: int = 1) -> Record:
    """Return the record with the plan of a new epoch, of the ``wanted`` trials, or of one trial if the sites differ."""
    names, retired = setup.options.names, _among(setup, _closed(setup, record))
    ties = uniform_draws([generator(setup.seed, 0, "order of ties")], len(names))[0]
    tried = _tally(setup, [*record.told, *((*trial, 0.0) for trial in record.open)]).counts
    # without a fit, an option with the fewest trials is next
    arms = (tried + ties).masked_fill(retired, math.inf).argmin().unsqueeze(0)
    told, (fit, _) = record.told, posterior(setup, record.told)
    counts = (_of_each_site(setup, told) if setup.differ else _tally(setup, told)).counts
    if fit is not None:
        opened = [setup.row(place) * len(names) + setup.number_of[option] for option, place in record.open]
        noise, row, sites = noise_of(setup, told), setup.row(site), len(setup.rows)
        with suppress(ValueError):  # a reward may be so far off that no index is a number
            if setup.goal == "best":
                gone = torch.ones(sites, len(names), dtype=torch.bool)
                gone[row] = retired  # so that all trials are at this site
                seen = fit, counts.flatten(), noise, ties.repeat(sites)
                gone = gone.flatten()
                cells = searching(*seen, wanted, opened, gone, budget=setup.trials, old=setup.old)
            else:
                most = 1 if setup.differ else None
                how = noise, ties, opened, retired, most, sites, row, max(setup.trials, len(told))
                cells = setup.played.epoch(fit, counts, *how)[:most]
            arms = cells % len(names)
    plan = tuple(names[arm] for arm in arms.tolist())
    lasting = 1 if setup.goal == "best" else len(plan)  # until a new plan is made
    return replace(record, plan=plan, until=len(record.told) + lasting)


def plan_anew(setup: Setup, record: Record) -> Record:
    """Return ``record`` changed such that the next request for a new trial makes a new plan.

    As long as fewer rewards are known than ``setup.first`` has options, nothing is changed.
    """
    until = min(record.until, len(record.told)) if past_first(setup, record) else record.until
    return replace(record, until=until)


def past_first(setup: Setup, record: Record) -> bool:
    """Return whether ``record`` has at least as many known rewards, of any options, as ``setup.first`` has options."""
    return len(record.told) >= len(setup.first)


@on_cpu
def standings(setup: Setup, record: Record, site: Site = None) -> list[Standing]:
    """Return for every option its number of rewards, mean reward, estimate, interval and certificate.

    Args:
        setup: The setup of the study.
        record: The record of what has happened since it began.
        site: The site whose results are returned, if the sites differ; otherwise None or any site of the study, and the
            results are those of all sites together.

    Returns:
        A row for each of the K options, retired ones included, the best estimate first, or in the order of the setup
        if there is no fit.

    Raises:
        ValueError: The study has no such ``site``, or the sites differ and ``site`` is None.
    """
    told, fit = at_site(setup, record, site), posterior(setup, record.told)[0]
    counts, sums = _tally(setup, told)
    estimate = low = high = certificate = torch.full_like(sums, torch.nan)
    optimism = setup.played.optimism(max(setup.trials, len(record.told)))
    kappa = optimism.of_arms(_tally(setup, record.told).counts)
    if setup.goal == "best":
        kappa = torch.full_like(kappa, HALF_WIDTH)
    mean = setup.sign * sums / counts + 0.0  # never −0
    if isinstance(fit, ProcessFit) and fit.warped is not None:
        estimate, low, high = fit.warped.interval(kappa)
    elif fit is not None:
        whole = Whole.of(fit)
        estimate = whole.mean.view(-1, len(counts))[setup.row(site)]
        variance = whole.variance.view(-1, len(counts))[setup.row(site)]
        half = kappa * variance.clamp(min=0).sqrt()
        low, high = estimate - half, estimate + half
    if setup.guarantee is not None:
        certificate = _certificate(setup, told, setup.guarantee)
    if setup.lower_is_better:
        estimate, low, high = -estimate, -high, -low
    columns = (counts.long(), mean, estimate, low, high, certificate, _among(setup, set(record.retired)))
    values = (column.tolist() for column in columns)
    rows = list(map(Standing._make, zip(setup.options.names, *values, strict=True)))
    return rows if fit is None else sorted(rows, key=lambda row: -setup.sign * row.estimate)


@on_cpu
def summary(setup: Setup, record: Record, site: Site = None) -> list[str]:
    """Return the best option so far, the next one with what the model expects of it, and the noise, in lines."""
    rows = standings(setup, record, site)
    tried, noise = [row for row in rows if row.pulls], noise_of(setup, record.told)
    if not tried:
        return ["no results yet"]
    tried = [row for row in tried if not row.retired] or tried
    by_mean = posterior(setup, record.told)[0] is None
    best = max(tried, key=lambda row: setup.sign * row.mean) if by_mean else tried[0]
    times = f"{best.pulls} result{'s' * (best.pulls > 1)}"
    better = "lower" if setup.lower_is_better else "higher"
    lines = [f"best so far: {_called(best.option)}, mean {best.mean:.4g} of {times}; {better} is better"]
    options, _ = _more(setup, record, site or (setup.sites or ("",))[0], 1)
    row = next(row for row in rows if row.option == options[0])
    if math.isfinite(row.estimate):
        expected = f"{row.estimate:.4g} ({row.low:.4g} ... {row.high:.4g})"
        lines.append(f"next: {_called(row.option)}, expected {expected}")
    return [*lines, f"noise of a result: {noise:.3g}{', estimated' * (setup.noise is None)}"]


def _called(option: str) -> str:
    """Return the name of an option, with the word before it if a number could be taken for a result."""
    return f"option {option}" if option.replace(".", "", 1).isdecimal() else option


def left_out(setup: Setup, record: Record, site: Site = None) -> Iterator[Standing]:
    """Yield the rows of the options that have results, each by a fit without its results, in ten groups if many."""
    options = list(dict.fromkeys(option for option, *_ in at_site(setup, record, site)))
    folds = len(options) if len(options) <= _FITS else _FOLDS
    for group in (options[k::folds] for k in range(folds)):
        kept = tuple(told for told in record.told if told[0] not in group)
        rows = standings(setup, replace(record, told=kept), site)
        yield from (row for row in rows if row.option in group and math.isfinite(row.estimate))


@on_cpu
def verdict(setup: Setup, record: Record, site: Site = None) -> str:
    """Return a text on how good the leading option is, by which the user decides whether to stop.

    It says by how much at most the leading option is below the best one: by its certificate if the study has a
    ``reach``, otherwise by an estimate of the model, which promises nothing. If nothing can be said, the text gives the
    reason. If the sites differ and only other sites have rewards, another sentence says so. If the study has several
    sites, fits them as alike, and they seem to differ, a last sentence says so: if they were alike, they would look so
    different with a chance below 1 in 1,000 (`fedgo.beyond.method.sites.cochran`).

    Args:
        setup: The setup of the study.
        record: The record of what has happened since it began.
        site: The site that the text is about, if the sites differ; otherwise None or any site of the study.

    Raises:
        ValueError: The study has no such ``site``, or the sites differ and ``site`` is None.
    """
    words = _leading(setup, record, site)
    if record.told and not at_site(setup, record, site):
        words += f"\n{site} has no trial yet: all estimates follow from those of the others. Ask for one at {site}."
    alike = len(setup.sites) > 1 and not setup.differ
    if alike and cochran(_of_each_site(setup, record.told), noise_of(setup, record.told)) < _SURE:
        remedy = "nothing above holds for one of them: begin another file with differ, or a larger noise"
        words += f"\nThe sites differ (Cochran's Q has p < {_SURE:g}): {remedy}."
    return words


def _leading(setup: Setup, record: Record, site: Site) -> str:
    """Return the sentence on the leading option at ``site``, or at all sites together if they do not differ."""
    rows, (fit, reason) = standings(setup, record, site), posterior(setup, record.told)
    remain = [row for row in rows if not row.retired]
    if setup.guarantee is not None:
        best, sites = min(remain, key=lambda row: row.certificate), len(setup.rows)
        mixed = len(setup.sites) > sites  # several sites share one certificate
        if math.isnan(best.certificate):
            more = ", or the sites differ" * mixed
            return f"The rewards refute noise or reach{more}: no certificate holds."
        # each option that is added takes a further δ/K, and each site that joins a further δ/N
        grown = len(rows) / setup.begun * sites / (sites - setup.joined)
        share = 1 - setup.guarantee.delta * sites * (1 + math.log(grown))
        words = f"No option beats {_called(best.option)} by more than {best.certificate:.3g}, "
        words += f"with probability {share:.3g} if noise and reach are true bounds."
        if share <= 0:
            return f"{best.option}: so many options or sites were added that no certificate is promised any more."
        if mixed:
            where = Counter(site for option, site, _ in record.told if option == best.option)
            most = ", ".join(f"{site} {pulls}" for site, pulls in where.most_common(3)) or "nowhere yet"
            words += f"\nEach option's mean is weighted by where it was tried ({best.option}: {most})."
            words += "\nFor certificates of one site, begin another file with differ."
        return words
    if fit is None:
        return f"Nothing can be said yet: {reason}."
    best, others = remain[0], [row.low if setup.lower_is_better else row.high for row in remain[1:]]
    if not all(map(math.isfinite, [best.estimate, *others])):
        option, _, reward = max(record.told, key=lambda row: abs(row[2]))
        words = f"{reward:g} of {option} is far from all others; untell it if it is wrong"
        return f"Nothing can be said: {words}."
    gap, sure = max([0.0, *(setup.sign * (other - best.estimate) for other in others)]), ""
    if setup.goal == "best":
        cell = {name: k for k, name in enumerate(setup.options.names, setup.row(site) * len(rows))}
        whole = Whole.of(fit)
        left = torch.zeros(len(whole.mean), dtype=torch.bool)
        left[[cell[row.option] for row in remain]] = True
        gap, sure = shortfall(whole, cell[best.option], left), " with probability 0.95"
    leader = _called(best.option) + " (not tried yet)" * (best.pulls == 0)
    return f"No option beats {leader} by more than {gap:.3g},{sure} if the model is right."


def _among(setup: Setup, options: Collection[str]) -> Tensor:
    """Return for each of the K options of the study whether it is one of the ``options``, (K,) bool."""
    return torch.tensor([name in options for name in setup.options.names])


def _closed(setup: Setup, record: Record) -> set[str]:
    """Return the options that must not be proposed: those retired, and those dropped while others remain."""
    closed = {*record.retired, *record.dropped}
    return closed if len(closed) < len(setup.options.names) else set(record.retired)


def at_site(setup: Setup, record: Record, site: Site) -> tuple[Told, ...]:
    """Return the entries of ``record.told`` whose trials were made at the ``site``, or all if the sites do not differ.

    An entry has the option, the site and the reward of a trial.

    Raises:
        ValueError: The study has no such ``site``, or the sites differ and ``site`` is None.
    """
    row = setup.row(site)
    return tuple(told for told in record.told if setup.row(told[1]) == row)


def _of_each_site(setup: Setup, told: Sequence[Told]) -> Tally:
    """Return for each of the N sites and K options the number of rewards and their sum, (N, K) float64 each."""
    each = [_tally(setup, [row for row in told if row[1] == site]) for site in setup.sites]
    return Tally(*(torch.stack(column) for column in zip(*each, strict=True)))


def _tally(setup: Setup, told: Sequence[Told], centre: float | None = None) -> Tally:
    """Return for each of the K options the number of its rewards and their sum, counted from ``centre``, (K,) each."""
    arm = torch.tensor([setup.number_of[option] for option, *_ in told], dtype=torch.int64)
    reward = torch.tensor([result - (centre or 0.0) for *_, result in told], dtype=torch.float64) * setup.sign
    none = torch.zeros(len(setup.options.names), dtype=torch.float64)
    return Tally(none.index_add(0, arm, torch.ones_like(reward)), none.index_add(0, arm, reward))


def _certificate(setup: Setup, told: Sequence[Told], guarantee: Guarantee) -> Tensor:
    """Return the certificate of each option, (K,) float64, NaN if the rewards refute the noise or the reach."""
    each = [_tally(setup, [trial], setup.centre) for trial in told]
    blank = Tally.blank(len(setup.options.names))
    counts, sums = (torch.stack(column).cumsum(0) for column in zip(blank, *each, strict=True))
    known = Tally(counts, sums)
    # Theorem G′: the intervals after 0, 1, 2, ... rewards hold all at once, so those of an option must intersect
    lower, upper, gain = guarantee.intervals(1).after(known, torch.zeros(len(counts)), shared=known)
    common = Interval(lower.amax(0), upper.amin(0), gain[-1])
    return Interval(lower[-1], upper[-1], gain[-1]).price.where(~common.refuted, torch.nan)


def as_lines(rows: Sequence[Standing], title: str = "option") -> str:
    """Return the ``rows`` as lines of text below a head of columns, with a dash for each unknown number.

    The columns are the fields of a `Standing` with three significant digits, without the certificate if no row has one,
    and without the last one if no row is retired. ``title`` is the head of the column with the names of the options.
    """
    frame = pd.DataFrame(rows, columns=Standing._fields).set_index("option").rename_axis(None)
    frame["retired"] = frame["retired"].map({True: "retired", False: ""})
    less = {"certificate": frame["certificate"].isna(), "retired": frame["retired"] == ""}
    frame = frame.drop(columns=[column for column, unknown in less.items() if unknown.all()])
    return str(frame.rename_axis(columns=title).to_string(float_format="{:.3g}".format, na_rep="-"))
