"""The empirical claims of the paper (`CLAIMS`, from ``data/claims.toml``), each decided by executed runs.

A claim has parts, one for each problem and each algorithm that it compares with. A part is held if its whole 95 %
bootstrap interval over the runs lies on the claimed side of a limit, reversed if the whole interval lies on the other
side, and open if the interval contains the limit. `verdict_on` derives the verdict from the parts.

The runs are a frame with a row for each run: problem, player, run, and the columns of `fedgo.trace.Trace.to_frame`.
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
    """One comparison that a claim rests on.

    ``label`` names the algorithms and the problem. ``estimate`` is a ratio or a share, as `Claim` says, and ``low`` and
    ``high`` are the ends of its 95 % interval. ``state`` says on which side of the ``limit`` the interval lies.
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

    ``quote`` is the sentence, ``place`` its place in the paper, and ``expected`` the verdict that the book states. Each
    part is the mean final ``quantity`` of one of ``ours``, divided by that of one of the ``others``, on one of the
    ``problems``. Without ``others`` a part is the share of Phase II's scalars that are sent in its second half: ½ for
    linear growth and less for sub-linear growth. A part is held if its interval lies on the given ``side`` of the
    ``limit``.
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
        quantity = {"regret": "final regret", "scalars": "scalars"}[self.quantity]
        what = f"mean {quantity} of {' or '.join(self.ours)} over that of {'; '.join(self.others)}"
        if not self.others:
            what = f"share of Phase II's scalars that {' or '.join(self.ours)} sends in its second half"
        return f"{what}; whole interval {self.side} {Fraction(self.limit)}"


def outcomes(traces: Mapping[str, Mapping[str, Trace]]) -> Any:
    """Return the runs of ``traces``, by the name of an experiment and by algorithm, as a frame with a row for each."""
    frames = [
        trace.to_frame().assign(problem=problem, player=player)
        for problem, by_algorithm in traces.items()
        for player, trace in by_algorithm.items()
    ]
    return pd.concat(frames, ignore_index=True)


def judge(claim: Claim, runs: Any) -> tuple[Verdict, list[ClaimPart]]:
    """Return the verdict on ``claim`` and the parts that decide it, given the frame ``runs`` of `outcomes`."""
    parts = []
    for problem, ours, other in product(claim.problems, claim.ours, claim.others or ("",)):
        label, above, below = f"{ours} / {other}", (ours, claim.quantity), (other, claim.quantity)
        if not claim.others:
            label, above, below = "second half / all", (ours, "scalars_late"), (ours, "scalars_phase_two")
        samples = (column(runs, problem, player, quantity) for player, quantity in (above, below))
        estimate, low, high = interval(_ratio, *samples)
        claimed, opposite = high < claim.limit, low > claim.limit
        if claim.side == "above":
            claimed, opposite = opposite, claimed
        state: State = "held" if claimed else "reversed" if opposite else "open"
        title = f"{PROBLEMS[problem].title}: {label}"
        parts.append(ClaimPart(title, estimate, low, high, claim.limit, state))
    return verdict_on([part.state for part in parts]), parts


def verdict_on(states: Sequence[State]) -> Verdict:
    """Return the verdict on a claim whose parts have these ``states``.

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
    """Return the state of each ratio in the parts of the judged claims, each ratio once.

    The same quantity of the same two algorithms on the same problem may be a part of several claims. It counts once,
    with its state in the first of them. ``rows`` has a claim, its verdict and its parts.
    """
    states: dict[tuple[str, str], State] = {}
    for claim, _, parts in rows:
        for part in parts:
            states.setdefault((claim.quantity, part.label), part.state)
    return [*states.values()]


class Counterfactual(NamedTuple):
    """The verdict on a ``claim`` and its parts, ``before`` and ``after`` some of the runs were replaced by others."""

    claim: Claim
    before: tuple[Verdict, list[ClaimPart]]
    after: tuple[Verdict, list[ClaimPart]]


def changes(runs: Any, others: Any, baselines: bool = False) -> list[Counterfactual]:
    """Return the claims on the problems of ``others``, judged before and after ``others`` replace some of ``runs``.

    Only the runs of the algorithms that a claim is about are replaced, and with ``baselines`` also those of the
    algorithms that it compares with. ``runs`` and ``others`` are frames (`outcomes`).
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
    """Return the values of ``name`` in the runs of ``player`` on ``problem``, in their order, (S,)."""
    rows = runs[(runs["problem"] == problem) & (runs["player"] == player)]
    values: Array = rows.sort_values("run")[name].to_numpy(dtype=float)
    return values


def _ratio(ours: Array, other: Array, axis: int) -> Any:
    """Return the mean of ``ours`` divided by the mean of ``other`` along ``axis``."""
    return ours.mean(axis) / other.mean(axis)


# In the order of the paper; for a key that is left out the default of `Claim` holds.
_TEXT = (DATA / "claims.toml").read_text(encoding="utf-8")
CLAIMS = [Claim(**values) for values in tomllib.loads(_TEXT)["claim"]]
