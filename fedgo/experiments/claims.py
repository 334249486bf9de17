"""The empirical claims of the paper (`CLAIMS`, from ``data/claims.toml``), each decided by executed runs.

A claim has parts: one for each problem, each of the paper's algorithms that it is about, and each algorithm with which
it compares these. A part is held if its whole 95 % bootstrap interval over the runs lies on the claimed side of a
limit, reversed if the whole interval lies on the other side, and open otherwise. `verdict_on` derives the verdict from
the parts.

The runs are a pandas frame with a row for each run: the name of the ``problem``, the name of the algorithm as
``player``, the number or position of the ``run``, and the columns of `fedgo.trace.Trace.to_frame`.
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
from fedgo.experiments.world import PROBLEMS
from fedgo.trace import Trace

Verdict = Literal["reproduced", "partly", "mostly contradicted", "undecided"]
State = Literal["held", "reversed", "open"]  # the states of a part of a claim
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class ClaimPart(NamedTuple):
    """One comparison that a claim rests on.

    Args:
        label: The problem and the two algorithms that are compared, "Hartmann6: Fed-GO-UCB / DisLinUCB", or for a claim
            that compares with no other algorithm "Hartmann6: second half / all".
        estimate: The value that is compared with the limit, a ratio of two means over the runs.
        low: The lower end of its 95 % interval.
        high: The upper end of its 95 % interval.
        limit: The limit of the claim.
        state: "held", "reversed" or "open"; open if the interval contains or touches the limit, or is NaN.
    """

    label: str
    estimate: float
    low: float
    high: float
    limit: float
    state: State


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, and the comparisons that decide whether it holds.

    A comparison divides the mean ``quantity`` of one of ``ours`` by that of one of ``others``. Without ``others`` it
    takes the share of Phase II's scalars that are sent in its second half: ½ for linear growth and less for sub-linear
    growth.

    Args:
        place: Where the sentence stands in the paper.
        quote: The sentence.
        expected: The verdict that the book states.
        problems: The names of the problems.
        others: The names of the algorithms that the paper's are compared with.
        ours: The names of the paper's algorithms that the claim is about.
        quantity: "regret" for the final cumulative regret, or "scalars" for the number of all scalars sent.
        side: The side of the limit on which the interval has to lie, "below" or "above".
        limit: The limit.
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
        """The rule that decides the claim, in words."""
        quantity = {"regret": "final regret", "scalars": "number of scalars"}[self.quantity]
        what = f"mean {quantity} of {' or '.join(self.ours)}, divided by that of {', of '.join(self.others)}"
        if not self.others:
            what = f"share of the scalars of {' or '.join(self.ours)} in Phase II that are sent in its second half"
        return f"{what}: held if the whole interval is {self.side} {Fraction(self.limit)}"


def outcomes(traces: Mapping[str, Mapping[str, Trace]]) -> Any:
    """Return the runs of all ``traces``, by problem and then by algorithm, as a frame of runs."""
    frames = [
        trace.to_frame().assign(problem=problem, player=player)
        for problem, by_algorithm in traces.items()
        for player, trace in by_algorithm.items()
    ]
    return pd.concat(frames, ignore_index=True)


def judge(claim: Claim, runs: Any) -> tuple[Verdict, list[ClaimPart]]:
    """Return the verdict on ``claim`` by the frame ``runs``, and the parts that decide it.

    The runs of two algorithms are paired in the order of their numbers. A part whose first algorithm has fewer than two
    runs is open.
    """
    parts = []
    for problem, ours, other in product(claim.problems, claim.ours, claim.others or ("",)):
        label, above, below = f"{ours} / {other}", (ours, claim.quantity), (other, claim.quantity)
        if not claim.others:
            label, above, below = "second half / all", (ours, "scalars_late"), (ours, "scalars_phase_two")
        samples = (column(runs, problem, player, quantity) for player, quantity in (above, below))
        estimate, low, high = interval(lambda one, two, axis: one.mean(axis) / two.mean(axis), *samples)
        claimed, opposite = high < claim.limit, low > claim.limit
        if claim.side == "above":
            claimed, opposite = opposite, claimed
        state: State = "held" if claimed else "reversed" if opposite else "open"
        title = f"{PROBLEMS[problem].title}: {label}"
        parts.append(ClaimPart(title, estimate, low, high, claim.limit, state))
    return verdict_on([part.state for part in parts]), parts


def verdict_on(states: Sequence[State]) -> Verdict:
    """Return the verdict on a claim whose parts have the given ``states``.

    It is "reproduced" if all parts are held, "mostly contradicted" if more parts are reversed than held, "undecided" if
    none is held and none is reversed, and "partly" otherwise.
    """
    held, reverse = states.count("held"), states.count("reversed")
    if held == len(states):
        return "reproduced"
    if reverse > held:
        return "mostly contradicted"
    return "partly" if held else "undecided"


def count_once(rows: Iterable[tuple[Claim, Verdict, Sequence[ClaimPart]]]) -> list[State]:
    """Return the state of each comparison in the judged claims ``rows``, each comparison once.

    Two parts are the same comparison if they have the same ``label`` and their claims the same ``quantity``. The first
    counts.
    """
    states: dict[tuple[str, str], State] = {}
    for claim, _, parts in rows:
        for part in parts:
            states.setdefault((claim.quantity, part.label), part.state)
    return [*states.values()]


class Counterfactual(NamedTuple):
    """The verdict on a claim, and its parts, ``before`` and ``after`` some of the runs were replaced by others."""

    claim: Claim
    before: tuple[Verdict, list[ClaimPart]]
    after: tuple[Verdict, list[ClaimPart]]


def changes(runs: Any, others: Any, baselines: bool = False) -> list[Counterfactual]:
    """Return how the verdicts on the claims would change if ``others`` replaced some of ``runs``.

    The claims are those about a problem of ``others``, limited to these problems.

    Args:
        runs: The frame of all runs.
        others: The frame of the new runs, which replace those of the same problem and algorithm.
        baselines: Whether they replace the runs of all algorithms; if not, only of those that the claim is about.
    """
    counterfactuals = []
    for claim in CLAIMS:
        problems = [name for name in claim.problems if name in set(others["problem"])]
        if problems:
            limited = replace(claim, problems=problems)
            new = others if baselines else others[others["player"].isin(claim.ours)]
            played = pd.MultiIndex.from_frame(runs[["problem", "player"]])
            replaced = pd.MultiIndex.from_frame(new[["problem", "player"]])
            after = pd.concat([runs[~played.isin(replaced)], new])
            counterfactuals.append(Counterfactual(limited, judge(limited, runs), judge(limited, after)))
    return counterfactuals


def column(runs: Any, problem: str, player: str, name: str) -> Array:
    """Return the column ``name`` of the rows of ``player`` on ``problem``, sorted by run, (S,) for S runs."""
    rows = runs[(runs["problem"] == problem) & (runs["player"] == player)]
    values: Array = rows.sort_values("run")[name].to_numpy(dtype=float)
    return values


# The claims are in the order of the paper. A field that the file leaves out has the default of `Claim`.
_TEXT = (DATA / "claims.toml").read_text(encoding="utf-8")
CLAIMS = [Claim(**values) for values in tomllib.loads(_TEXT)["claim"]]
