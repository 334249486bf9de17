"""The empirical claims of the paper (`CLAIMS`, from ``data/claims.toml``), each decided by executed runs.

A claim has parts, one for each problem and each algorithm that it compares with. A part is held if its whole 95 %
bootstrap interval over the runs lies on the claimed side of the threshold, reversed if the whole interval lies on the
other side, and open if the interval contains the threshold. `verdict_on` makes a verdict of the parts.

The runs are a frame with a row for each: problem, player, run, and the columns of `Trace.to_frame`.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd

from fedgo.experiments.runner import DATA
from fedgo.experiments.summaries import Array, interval
from fedgo.experiments.tables import State
from fedgo.experiments.world import PROBLEMS
from fedgo.trace import Trace

Verdict = Literal["reproduced", "partly", "mostly contradicted", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class ClaimPart(NamedTuple):
    """One comparison that a claim rests on: its estimate and 95 % interval, and its ``state`` against the ``limit``."""

    label: str
    estimate: float
    low: float
    high: float
    limit: float
    state: State


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper and what decides whether it holds.

    ``place`` and ``quote`` say where it stands and in which words, and ``expected`` is the verdict that the book
    expects. Each part compares the mean final ``quantity`` of one of ``ours`` with that of one of the ``others`` on one
    of the ``problems``, as a ratio. Without ``others`` a part is the share of Phase II's scalars that are sent in its
    second half: ½ for linear growth and less for sub-linear growth. A part holds if it lies on the given ``side`` of
    the ``limit``.
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
        """What decides the claim, in words, with the limit of each part."""
        quantity = {"regret": "final regret", "scalars": "scalars"}[self.quantity]
        what = f"mean {quantity} of {' or '.join(self.ours)} over that of {'; '.join(self.others)}"
        if not self.others:
            what = f"share of Phase II's scalars that {' or '.join(self.ours)} sends in its second half"
        return f"{what}; whole interval {self.side} {Fraction(self.limit)}"


def outcomes(traces: Mapping[str, Mapping[str, Trace]]) -> Any:
    """Return the runs of ``traces``, given by experiment and algorithm, as a frame with a row for each run."""
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
        estimated = interval(_ratio, *(column(runs, problem, *one) for one in compared))
        _, low, high = estimated
        claimed, opposite = high < claim.limit, low > claim.limit
        if claim.side == "above":
            claimed, opposite = opposite, claimed
        state: State = "held" if claimed else "reversed" if opposite else "open"
        parts.append(ClaimPart(f"{PROBLEMS[problem].title}: {label}", *estimated, claim.limit, state))
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
    states: dict[tuple[str, str], State] = {}
    for claim, _, parts in rows:
        for part in parts:
            states.setdefault((claim.quantity, part.label), part.state)
    return [*states.values()]


class Counterfactual(NamedTuple):
    """The verdict on a ``claim`` with its parts, ``before`` and ``after`` some runs were replaced."""

    claim: Claim
    before: tuple[Verdict, list[ClaimPart]]
    after: tuple[Verdict, list[ClaimPart]]


def changes(runs: Any, others: Any, baselines: bool = False) -> list[Counterfactual]:
    """Return the claims that change their runs when ``others`` replace some of ``runs``, judged before and after.

    Only claims on the problems of ``others`` are judged. The runs of the algorithms that a claim is about are replaced,
    and with ``baselines`` also those of the algorithms that it compares with.
    """
    counterfactuals = []
    for claim in CLAIMS:
        here = replace(claim, problems=[name for name in claim.problems if name in set(others["problem"])])
        if here.problems:
            new = others if baselines else others[others["player"].isin(claim.ours)]
            played, replaced = (
                pd.MultiIndex.from_frame(frame[["problem", "player"]]) for frame in (runs, new)
            )
            after = pd.concat([runs[~played.isin(replaced)], new])
            counterfactuals.append(Counterfactual(here, judge(here, runs), judge(here, after)))
    return counterfactuals


def column(runs: Any, problem: str, player: str, name: str) -> Array:
    """Return the values of ``name`` in the runs of ``player`` on ``problem``, in their order, (S,)."""
    rows = runs[(runs["problem"] == problem) & (runs["player"] == player)]
    values: Array = rows.sort_values("run")[name].to_numpy(dtype=float)
    return values


def _ratio(ours: Array, other: Array, axis: int) -> Any:
    """Return the ratio of the means."""
    return ours.mean(axis) / other.mean(axis)


# In the paper's order; where a key is left out, the default of `Claim` holds.
_TEXT = (DATA / "claims.toml").read_text(encoding="utf-8")
CLAIMS = [Claim(**values) for values in tomllib.loads(_TEXT)["claim"]]
