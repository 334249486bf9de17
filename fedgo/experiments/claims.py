"""The paper's empirical claims as data (`CLAIMS`), each decided by a statistic of executed runs.

A claim has parts, one for each problem and each algorithm that it compares with. A part is held if its whole 95 %
bootstrap interval over the runs lies on the claimed side of the threshold, reversed if the whole interval lies on the
other side, and open if the interval contains the threshold. `verdict_on` makes a verdict of the parts.

The runs are a frame with a row for each: problem, player, run, and the columns of `Trace.to_frame`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from IPython.display import Markdown

from fedgo.experiments.results import tuned
from fedgo.experiments.runner import facts
from fedgo.experiments.studies import STUDIES
from fedgo.experiments.summaries import Array, interval, mean_error
from fedgo.experiments.tables import State, in_symbols, quote, table
from fedgo.experiments.world import PROBLEMS
from fedgo.trace import Trace

Verdict = Literal["reproduced", "partly", "mostly contradicted", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class ClaimPart(NamedTuple):
    """One comparison of a claim: the estimate with its 95 % interval, and its ``state`` against the ``limit``."""

    label: str
    estimate: float
    low: float
    high: float
    limit: float
    state: State


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper: where and in which words, the verdict expected, and what decides it.

    That is the mean final ``quantity`` of each of ``ours`` over that of each of the ``others``, on each of the
    ``problems``; or, without ``others``, the share of Phase II's scalars that are sent in its second half: ½ for linear
    growth, less for sub-linear. A part holds on that ``side`` of the ``limit``.
    """

    place: str
    quote: str
    expected: Verdict
    problems: Sequence[str]
    others: Sequence[str] = ()
    ours: Sequence[str] = ("Fed-GO-UCB",)
    quantity: str = "regret"  # or "scalars"
    side: Literal["below", "above"] = "below"
    limit: float = 1.0

    @property
    def rule(self) -> str:
        """What decides it, in words, and the threshold that a part has to keep to."""
        quantity = {"regret": "final regret", "scalars": "scalars"}[self.quantity]
        what = f"mean {quantity} of {' or '.join(self.ours)} over that of {'; '.join(self.others)}"
        if not self.others:
            what = f"share of Phase II's scalars that {' or '.join(self.ours)} sends in its second half"
        return f"{what}; whole interval {self.side} {Fraction(self.limit)}"


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


def judge(claim: Claim, runs: Any) -> tuple[Verdict, list[ClaimPart]]:
    """Return the verdict on ``claim`` from ``runs``, and the parts it rests on."""
    parts = []
    for problem, own, other in product(claim.problems, claim.ours, claim.others or ("",)):
        if claim.others:
            label, compared = f"{own} / {other}", ((own, claim.quantity), (other, claim.quantity))
        else:
            label, compared = "second half / all", ((own, "scalars_late"), (own, "scalars_phase_two"))
        found = interval(_ratio, *(column(runs, problem, *one) for one in compared))
        _, low, high = found
        claimed, opposite = high < claim.limit, low > claim.limit
        if claim.side == "above":
            claimed, opposite = opposite, claimed
        state: State = "held" if claimed else "reversed" if opposite else "open"
        parts.append(ClaimPart(f"{PROBLEMS[problem].title}: {label}", *found, claim.limit, state))
    return verdict_on([part.state for part in parts]), parts


def verdict_on(states: Sequence[State]) -> Verdict:
    """Return the verdict on a claim whose parts have these ``states``.

    It is "reproduced" if all parts are held, "mostly contradicted" if more are reversed than held, "partly" if some
    are held and at most as many reversed, and "undecided" if none is held and none reversed.
    """
    held, reverse = states.count("held"), states.count("reversed")
    if held == len(states):
        return "reproduced"
    if reverse > held:
        return "mostly contradicted"
    return "partly" if held else "undecided"


def count_once(rows: Iterable[tuple[Claim, Verdict, Sequence[ClaimPart]]]) -> list[State]:
    """Return the state of every ratio that the parts of the judged claims, ``rows``, contain.

    A ratio, the same quantity of the same two algorithms on the same problem, may be a part of several claims; it
    counts once, with its state in the first of them.
    """
    found: dict[tuple[str, str], State] = {}
    for claim, _, parts in rows:
        for part in parts:
            found.setdefault((claim.quantity, part.label), part.state)
    return [*found.values()]


class Counterfactual(NamedTuple):
    """The verdict on a ``claim`` and its parts ``before`` and ``after`` some runs were replaced."""

    claim: Claim
    before: tuple[Verdict, list[ClaimPart]]
    after: tuple[Verdict, list[ClaimPart]]


def changes(runs: Any, others: Any, baselines: bool = False) -> list[Counterfactual]:
    """Every claim that runs on the problems of ``others`` decide, judged on ``runs`` and with ``others`` in place of
    those of the algorithm that the claim is about; what it is compared with stays, unless ``baselines``."""
    found = []
    for claim in CLAIMS:
        here = replace(claim, problems=[name for name in claim.problems if name in set(others["problem"])])
        if here.problems:
            new = others if baselines else others[others["player"].isin(claim.ours)]
            played, replaced = (
                pd.MultiIndex.from_frame(frame[["problem", "player"]]) for frame in (runs, new)
            )
            after = pd.concat([runs[~played.isin(replaced)], new])
            found.append(Counterfactual(here, judge(here, runs), judge(here, after)))
    return found


def column(runs: Any, problem: str, player: str, name: str) -> Array:
    """The values of ``name`` in the runs of ``player`` on ``problem``, in their order, (S,)."""
    rows = runs[(runs["problem"] == problem) & (runs["player"] == player)]
    values: Array = rows.sort_values("run")[name].to_numpy(dtype=float)
    return values


def _ratio(ours: Array, other: Array, axis: int) -> Any:
    return ours.mean(axis) / other.mean(axis)


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


def quote_study(of: str, study: str, found: Sequence[Counterfactual]) -> None:
    """Quote what the changes come to, how many settings the ``study`` tried on how many runs, and when."""
    turned = [
        (old.state == "held", new.state == "held")
        for change in found
        for old, new in zip(change.before[1], change.after[1], strict=True)
    ]
    verdicts = sum(change.before[0] != change.after[0] for change in found)
    gained, lost = turned.count((False, True)), turned.count((True, False))
    quote("", of, judged=len(found), verdicts=verdicts, parts=len(turned), gained=gained, lost=lost)
    ((settings, runs),) = STUDIES[study].rungs(next(iter(STUDIES[study].players)))
    made = facts(study)["made"][-1]
    named = {name: f"`{made[name]}`" for name in ("when", "command", "commit")}
    quote("", of, settings=settings, tuned_on=runs, **named)


_SYNTHETIC, _REAL = ("hartmann6", "cosine8"), ("magic", "shuttle")
_ALL = (*_SYNTHETIC, *_REAL)
_FEDERATED = ("DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB")
_SHARED = ("Fed-GO-UCB", "One-GO-UCB")

# In the paper's order.
CLAIMS = [
    Claim(
        place="Abstract",
        quote="Empirical evaluations also demonstrate the effectiveness of the proposed algorithm.",
        expected="reproduced",
        problems=_ALL,
        others=("Uniform",),
        limit=0.5,
    ),
    Claim(
        place="Introduction, third contribution",
        quote="Our empirical evaluations show Fed-GO-UCB outperforms existing federated bandit algorithms",
        expected="mostly contradicted",
        problems=_ALL,
        others=_FEDERATED,
    ),
    Claim(
        place="Section 6, synthetic",
        quote="Fed-GO-UCB and One-GO-UCB have much smaller regret than other baseline algorithms",
        expected="partly",
        problems=_SYNTHETIC,
        others=(*_FEDERATED, "N-GO-UCB"),
        ours=_SHARED,
        limit=0.5,
    ),
    Claim(
        place="Section 6, synthetic",
        quote="demonstrating the superiority of neural network approximation for the global non-linear optimization",
        expected="mostly contradicted",
        problems=_SYNTHETIC,
        others=(*_FEDERATED, "Kernel UCB, at once", "UCB1, shared"),
    ),
    Claim(
        place="Section 6, synthetic",
        quote="inevitably this comes at the expense of higher communication cost",
        expected="reproduced",
        problems=_SYNTHETIC,
        others=_FEDERATED,
        ours=_SHARED,
        quantity="scalars",
        side="above",
    ),
    Claim(
        place="Section 6, synthetic",
        quote="the communication cost of Fed-GO-UCB is significantly lower than One-GO-UCB",
        expected="reproduced",
        problems=_SYNTHETIC,
        others=("One-GO-UCB",),
        quantity="scalars",
        limit=0.5,
    ),
    Claim(
        place="Section 6, synthetic",
        quote="it grows at a sub-linear rate over time",
        expected="reproduced",
        problems=_SYNTHETIC,
        quantity="scalars",
        limit=0.5,
    ),
    Claim(
        place="Section 6, real data",
        quote="Fed-GO-UCB outperforms the baselines",
        expected="mostly contradicted",
        problems=_REAL,
        others=("One-GO-UCB", *_FEDERATED, "N-GO-UCB"),
    ),
    Claim(
        place="Section 6, real data",
        quote="with relatively low communication cost",
        expected="reproduced",
        problems=_REAL,
        others=("One-GO-UCB",),  # of the other baselines the paper itself says that they send less
        quantity="scalars",
    ),
    Claim(
        place="Conclusion",
        quote="the effectiveness of our algorithm, especially its ability in approximating nonlinear functions",
        expected="mostly contradicted",
        problems=_ALL,
        others=_FEDERATED[:2],
    ),
]
