"""The paper's empirical claims as data (`CLAIMS`), each decided by a statistic of executed runs.

A claim has parts (a problem, an algorithm to compare with). A part holds if its whole 95 % bootstrap interval over the
runs is on the claimed side of the threshold. The verdict counts the parts: all hold, "reproduced"; some, "partly";
none, "not reproduced".

The runs are a frame with a row for each: problem, player, run, and the columns of `Trace.to_frame`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from IPython.display import Markdown

from fedgo.experiments.regimes import PROBLEMS
from fedgo.experiments.results import tuned
from fedgo.experiments.runner import facts
from fedgo.experiments.studies import STUDIES
from fedgo.experiments.summaries import Array, interval, mean_error
from fedgo.experiments.tables import in_symbols, quote, table
from fedgo.trace import Trace

Quantity = Literal["regret", "scalars"]
Side = Literal["below", "above"]
Verdict = Literal["reproduced", "partly", "not reproduced"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Part(NamedTuple):
    """One comparison of a claim: the estimate with its 95 % interval, and whether it ``holds`` against ``limit``."""

    label: str
    estimate: float
    low: float
    high: float
    limit: float
    holds: bool


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: where and in which words, what decides it, and the verdict expected.

    ``decide`` is a function of this file with all arguments but the runs.
    """

    name: str
    place: str
    quote: str
    decide: partial[list[Part]]
    expected: Verdict

    @property
    def rule(self) -> str:
        """What decides it, in words, and the threshold that a part has to keep to."""
        how = self.decide.keywords
        if self.decide.func is late_share:
            what = f"share of Phase II's scalars that {how['algorithm']} sends in its second half"
        else:
            quantity = {"regret": "final regret", "scalars": "scalars"}[how["quantity"]]
            what = f"mean {quantity} of {' or '.join(how['ours'])} over that of {'; '.join(how['others'])}"
        return f"{what}; whole interval {how.get('side', 'below')} {Fraction(how['limit'])}"


def outcomes(traces: Mapping[str, Mapping[str, Trace]]) -> Any:
    """The runs of ``traces``, by experiment and algorithm, as a frame."""
    return pd.concat(
        [
            trace.to_frame().assign(problem=problem, player=player)
            for problem, of in traces.items()
            for player, trace in of.items()
        ],
        ignore_index=True,
    )


def judge(claim: Claim, runs: Any) -> tuple[Verdict, list[Part]]:
    """The verdict on ``claim`` from ``runs``, and the parts it rests on."""
    parts = claim.decide(runs)
    holding = sum(part.holds for part in parts)
    return ("reproduced" if holding == len(parts) else "partly" if holding else "not reproduced"), parts


def on(claim: Claim, problems: Sequence[str]) -> Claim | None:
    """``claim`` with its parts on ``problems`` alone; None where none of its parts is a run on these."""
    kept = tuple(name for name in claim.decide.keywords["problems"] if name in problems)
    return replace(claim, decide=partial(claim.decide, problems=kept)) if kept else None


class Change(NamedTuple):
    """The verdict on a ``claim`` and its parts ``before`` and ``after`` some runs were replaced."""

    claim: Claim
    before: tuple[Verdict, list[Part]]
    after: tuple[Verdict, list[Part]]

    @property
    def stable(self) -> bool:
        """Whether the verdict is the same."""
        return self.before[0] == self.after[0]

    def turned(self, holds: bool) -> int:
        """How many parts hold only afterwards; or, with False, only before."""
        pairs = zip(self.before[1], self.after[1], strict=True)
        return sum(old.holds != new.holds == holds for old, new in pairs)


def changes(runs: Any, others: Any, baselines: bool = False) -> list[Change]:
    """Every claim that runs on the problems of ``others`` decide, judged on ``runs`` and with ``others`` in place of
    those of the algorithm that the claim is about; what it is compared with stays, unless ``baselines``."""
    found = []
    names = others["problem"].unique()
    here = runs[runs["problem"].isin(names)]
    for claim in filter(None, (on(part, tuple(names)) for part in CLAIMS)):
        keywords = claim.decide.keywords
        about = keywords["ours"] if "ours" in keywords else (keywords["algorithm"],)
        new = others if baselines else others[others["player"].isin(about)]
        replaced = {*zip(new["problem"], new["player"], strict=True)}
        stays = [pair not in replaced for pair in zip(here["problem"], here["player"], strict=True)]
        found.append(Change(claim, judge(claim, runs), judge(claim, pd.concat([here[stays], new]))))
    return found


def column(runs: Any, problem: str, player: str, name: str) -> Array:
    """The values of ``name`` in the runs of ``player`` on ``problem``, in their order, (S,)."""
    rows = runs[(runs["problem"] == problem) & (runs["player"] == player)]
    values: Array = rows.sort_values("run")[name].to_numpy(dtype=float)
    return values


def ratios(
    runs: Any,
    quantity: Quantity,
    problems: Sequence[str],
    ours: Sequence[str],
    others: Sequence[str],
    side: Side,
    limit: float,
) -> list[Part]:
    """Mean final ``quantity`` of each of ``ours`` over that of each of the ``others``, on each problem."""
    parts = []
    for problem in problems:
        for own in ours:
            for other in others:
                found = interval(_ratio, *(column(runs, problem, name, quantity) for name in (own, other)))
                parts.append(_against(f"{PROBLEMS[problem].title}: {own} / {other}", found, side, limit))
    return parts


def late_share(runs: Any, problems: Sequence[str], algorithm: str, limit: float) -> list[Part]:
    """Share of Phase II's scalars that are sent in its second half: ½ for linear growth, less for sub-linear."""
    parts = []
    for problem in problems:
        names = ("scalars_late", "scalars_phase_two")
        found = interval(_ratio, *(column(runs, problem, algorithm, name) for name in names))
        parts.append(_against(f"{PROBLEMS[problem].title}: second half / all", found, "below", limit))
    return parts


def _ratio(ours: Array, other: Array, axis: int) -> Any:
    return ours.mean(axis) / other.mean(axis)


def _against(label: str, found: tuple[float, float, float], side: Side, limit: float) -> Part:
    """The part of an estimate with an interval: all of it has to be on the claimed ``side`` of the ``limit``."""
    _, low, high = found
    return Part(label, *found, limit, holds=high < limit if side == "below" else low > limit)


# --- Regrets beside each other: as tuned, and with other settings or another index


def regrets_compared(
    runs: Any, others: Any, study: str, before: str, after: str, suffix: str = ""
) -> Markdown:
    """The mean final regrets ± standard error of ``others``, chosen by the ``study``, beside those of ``runs``.

    In the study a player has the ``suffix`` behind its name.
    """
    rows = []
    for problem, player in others[["problem", "player"]].drop_duplicates().itertuples(index=False):
        one, two = (column(frame, problem, player, "regret") for frame in (runs, others))
        settings = tuned(problem, player), tuned(problem, player + suffix, study)
        cells = []
        for regret, setting in zip((one, two), settings, strict=True):
            mean, error = mean_error(regret)
            cells.append(f"{mean:,.0f} ± {error:,.0f} ({in_symbols(setting)})")
        gap, low, high = map(round, interval(np.mean, two - one))  # there is no −0 among integers
        title = PROBLEMS[problem].title
        rows.append((title, player, *cells, f"{gap:,} ({low:,} to {high:,})"))
    return table(("problem", "regret of", before, after, "difference"), rows, "llllr")


def quote_study(of: str, study: str, found: Sequence[Change]) -> None:
    """Quote what the changes come to, how many settings the ``study`` tried on how many runs, and when."""
    quote(
        "",
        of,
        judged=len(found),
        verdicts=sum(not change.stable for change in found),
        parts=sum(len(change.after[1]) for change in found),
        gained=sum(change.turned(True) for change in found),
        lost=sum(change.turned(False) for change in found),
    )
    ((settings, runs),) = STUDIES[study].rungs(next(iter(STUDIES[study].players)))
    made = facts(study)["made"][-1]
    named = {name: f"`{made[name]}`" for name in ("when", "command", "commit")}
    quote("", of, settings=settings, tuned_on=runs, **named)


_SYNTHETIC, _REAL = ("hartmann6", "cosine8"), ("magic", "shuttle")


def _compared(
    quantity: Quantity,
    problems: Sequence[str],
    ours: Sequence[str],
    others: Sequence[str],
    side: Side,
    limit: float,
) -> partial[list[Part]]:
    return partial(
        ratios, quantity=quantity, problems=problems, ours=ours, others=others, side=side, limit=limit
    )


_ALL = (*_SYNTHETIC, *_REAL)
_OURS, _SHARED = ("Fed-GO-UCB",), ("Fed-GO-UCB", "One-GO-UCB")
_FEDERATED = ("DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB")

# In the paper's order.
CLAIMS = [
    Claim(
        name="effective",
        place="Abstract",
        quote="Empirical evaluations also demonstrate the effectiveness of the proposed algorithm.",
        decide=_compared("regret", _ALL, _OURS, ("Uniform",), "below", 0.5),
        expected="reproduced",
    ),
    Claim(
        name="contribution",
        place="Introduction, third contribution",
        quote="Our empirical evaluations show Fed-GO-UCB outperforms existing federated bandit algorithms",
        decide=_compared("regret", _ALL, _OURS, _FEDERATED, "below", 1.0),
        expected="partly",
    ),
    Claim(
        name="much-smaller-regret",
        place="Section 6, synthetic",
        quote="Fed-GO-UCB and One-GO-UCB have much smaller regret than other baseline algorithms",
        decide=_compared("regret", _SYNTHETIC, _SHARED, (*_FEDERATED, "N-GO-UCB"), "below", 0.5),
        expected="partly",
    ),
    Claim(
        name="superiority",
        place="Section 6, synthetic",
        quote="demonstrating the superiority of neural network approximation for the global non-linear optimization",
        decide=_compared(
            "regret", _SYNTHETIC, _OURS, (*_FEDERATED, "Kernel UCB, at once", "UCB1, shared"), "below", 1.0
        ),
        expected="partly",
    ),
    Claim(
        name="higher-cost",
        place="Section 6, synthetic",
        quote="inevitably this comes at the expense of higher communication cost",
        decide=_compared("scalars", _SYNTHETIC, _SHARED, _FEDERATED, "above", 1.0),
        expected="reproduced",
    ),
    Claim(
        name="cheaper-than-one",
        place="Section 6, synthetic",
        quote="the communication cost of Fed-GO-UCB is significantly lower than One-GO-UCB",
        decide=_compared("scalars", _SYNTHETIC, _OURS, ("One-GO-UCB",), "below", 0.5),
        expected="reproduced",
    ),
    Claim(
        name="sub-linear",
        place="Section 6, synthetic",
        quote="it grows at a sub-linear rate over time",
        decide=partial(late_share, problems=_SYNTHETIC, algorithm="Fed-GO-UCB", limit=0.5),
        expected="reproduced",
    ),
    Claim(
        name="outperforms",
        place="Section 6, real data",
        quote="Fed-GO-UCB outperforms the baselines",
        decide=_compared("regret", _REAL, _OURS, ("One-GO-UCB", *_FEDERATED, "N-GO-UCB"), "below", 1.0),
        expected="partly",
    ),
    Claim(
        name="low-cost",
        place="Section 6, real data",
        quote="with relatively low communication cost",
        decide=_compared("scalars", _REAL, _OURS, ("One-GO-UCB", *_FEDERATED), "below", 1.0),
        expected="partly",
    ),
    Claim(
        name="conclusion",
        place="Conclusion",
        quote="the effectiveness of our algorithm, especially its ability in approximating nonlinear functions",
        decide=_compared("regret", _ALL, _OURS, _FEDERATED[:2], "below", 1.0),
        expected="partly",
    ),
]
