"""The paper's empirical claims as data (`CLAIMS`), each decided by a statistic of executed traces.

A claim has parts (a problem, an algorithm to compare with, a caption). A part holds if its whole 95 % bootstrap
interval over the runs is on the claimed side of the threshold. The verdict counts the parts: all hold, "reproduced";
some, "partly"; none, "not reproduced". A sentence that no run can decide is "not testable".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedgo.experiments.comparison import world
from fedgo.experiments.summaries import Array, Quantity, interval, total
from fedgo.trace import Trace

Traces = Mapping[str, Mapping[str, Trace]]  # experiment, then algorithm
Side = Literal["below", "above"]
Verdict = Literal["reproduced", "partly", "not reproduced", "not testable"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Part(NamedTuple):
    """One comparison of a claim: the estimate with its 95 % interval, and whether it ``holds`` against ``limit``,
    the claim's threshold or the number that it states."""

    label: str
    estimate: float
    low: float
    high: float
    limit: float
    holds: bool


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: where and in which words, the statistic that decides it, the verdict expected.

    ``decide`` is a function of this file with all arguments but the traces; ``chapter`` shows the runs.
    """

    name: str
    place: str
    quote: str
    statistic: str
    threshold: str
    decide: partial[list[Part]] | None
    chapter: str
    expected: Verdict

    @property
    def decided_by(self) -> Callable[..., list[Part]] | None:
        """The function in ``decide``."""
        return self.decide.func if self.decide else None


def judge(claim: Claim, traces: Traces) -> tuple[Verdict, list[Part]]:
    """The verdict on ``claim`` from executed ``traces``, and the parts it rests on."""
    if claim.decide is None:
        return "not testable", []
    parts = claim.decide(traces)
    holding = sum(part.holds for part in parts)
    return ("reproduced" if holding == len(parts) else "partly" if holding else "not reproduced"), parts


def on(claim: Claim, experiments: Sequence[str]) -> Claim | None:
    """``claim`` with its parts on ``experiments`` alone; None where none of its parts is a run on these."""
    if claim.decide is None or claim.decided_by not in (ratios, late_share):
        return None
    kept = tuple(name for name in claim.decide.keywords["experiments"] if name in experiments)
    return replace(claim, decide=partial(claim.decide, experiments=kept)) if kept else None


class Change(NamedTuple):
    """The verdict on a ``claim`` and its parts ``before`` and ``after`` some traces were replaced."""

    claim: Claim
    before: tuple[Verdict, list[Part]]
    after: tuple[Verdict, list[Part]]

    @property
    def stable(self) -> bool:
        """Whether the verdict is the same."""
        return self.before[0] == self.after[0]

    @property
    def gained(self) -> int:
        """How many parts hold only afterwards."""
        return sum(
            new.holds and not old.holds for old, new in zip(self.before[1], self.after[1], strict=True)
        )

    @property
    def lost(self) -> int:
        """How many parts held only before."""
        return sum(
            old.holds and not new.holds for old, new in zip(self.before[1], self.after[1], strict=True)
        )


def changes(traces: Traces, others: Traces, baselines: bool = False) -> list[Change]:
    """Every claim that runs on the experiments of ``others`` decide, judged on ``traces`` and with ``others`` in place
    of those of the algorithm that the claim is about; what it is compared with stays, unless ``baselines``."""
    found = []
    for claim in filter(None, (on(part, tuple(others)) for part in CLAIMS)):
        keywords = claim.decide.keywords if claim.decide else {}
        about = keywords["ours"] if "ours" in keywords else (keywords["algorithm"],)
        mixed = {
            name: {**traces[name], **{a: t for a, t in others[name].items() if baselines or a in about}}
            for name in others
        }
        found.append(Change(claim, judge(claim, traces), judge(claim, mixed)))
    return found


def ratios(
    traces: Traces,
    quantity: Quantity,
    experiments: Sequence[str],
    ours: Sequence[str],
    others: Sequence[str],
    side: Side,
    limit: float,
) -> list[Part]:
    """Mean final ``quantity`` of each of ``ours`` over that of each of the ``others``, on each experiment."""
    parts = []
    for experiment in experiments:
        for own in ours:
            for other in others:
                pair = (traces[experiment][own], traces[experiment][other])
                found = interval(_ratio, *(total(trace, quantity) for trace in pair))
                parts.append(_against(f"{pair[0].problem}: {own} / {other}", found, side, limit))
    return parts


def late_share(traces: Traces, experiments: Sequence[str], algorithm: str, limit: float) -> list[Part]:
    """Share of Phase II's scalars that are sent in its second half: ½ for linear growth, less for sub-linear."""
    parts = []
    for experiment in experiments:
        trace = traces[experiment][algorithm]
        sent = (trace.up + trace.down)[:, trace.phase_one :].double()
        late, whole = (part.sum(1).numpy() for part in (sent[:, sent.shape[1] // 2 :], sent))
        found = interval(_ratio, late, whole)
        parts.append(_against(f"{trace.problem}: second half / all", found, "below", limit))
    return parts


def sizes(traces: Traces, stated: Mapping[str, int]) -> list[Part]:
    """d_w of the paper's network on each experiment, against the number that a caption states."""
    return [_exact(name, world(name, 1).network.size, value) for name, value in stated.items()]


def orders(traces: Traces, experiments: Sequence[str], d_w: int, d_x: int) -> list[Part]:
    """log₁₀ of d_w² and d_x², rounded, against the stated powers of ten."""
    parts = []
    for name in experiments:
        network = world(name, 1).network
        for label, size, power in (("d_w", network.size, d_w), ("d_x", network.d_x, d_x)):
            parts.append(_exact(f"{name}: log10 {label}²", round(2 * np.log10(size)), power))
    return parts


def _ratio(ours: Array, other: Array, axis: int) -> Any:
    return ours.mean(axis) / other.mean(axis)


def _against(label: str, found: tuple[float, float, float], side: Side, limit: float) -> Part:
    """The part of an estimate with an interval: all of it has to be on the claimed ``side`` of the ``limit``."""
    _, low, high = found
    return Part(label, *found, limit, holds=high < limit if side == "below" else low > limit)


def _exact(label: str, found: float, stated: float) -> Part:
    return Part(f"{label} (stated: {stated})", found, found, found, stated, holds=found == stated)


_SYNTHETIC, _REAL = ("hartmann6", "cosine8"), ("magic", "shuttle")

# In the paper's order.
CLAIMS = [
    Claim(
        name="effective",
        place="Abstract",
        quote="Empirical evaluations also demonstrate the effectiveness of the proposed algorithm.",
        statistic="mean final regret of Fed-GO-UCB over that of uniform play, on each problem",
        threshold="whole interval below 1/2",
        decide=partial(
            ratios,
            quantity="regret",
            experiments=(*_SYNTHETIC, *_REAL),
            ours=("Fed-GO-UCB",),
            others=("Uniform",),
            side="below",
            limit=0.5,
        ),
        chapter="results",
        expected="reproduced",
    ),
    Claim(
        name="much-smaller-regret",
        place="Section 6, synthetic",
        quote="Fed-GO-UCB and One-GO-UCB have much smaller regret than other baseline algorithms",
        statistic="mean final regret of Fed-GO-UCB and of One-GO-UCB over that of each other baseline, on each "
        "synthetic problem",
        threshold="whole interval below 1/2",
        decide=partial(
            ratios,
            quantity="regret",
            experiments=_SYNTHETIC,
            ours=("Fed-GO-UCB", "One-GO-UCB"),
            others=("DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB", "N-GO-UCB"),
            side="below",
            limit=0.5,
        ),
        chapter="results",
        expected="partly",
    ),
    Claim(
        name="superiority",
        place="Section 6, synthetic",
        quote="demonstrating the superiority of neural network approximation for the global non-linear optimization",
        statistic="mean final regret of Fed-GO-UCB over that of the baselines without a network, the two controls "
        "included",
        threshold="whole interval below 1",
        decide=partial(
            ratios,
            quantity="regret",
            experiments=_SYNTHETIC,
            ours=("Fed-GO-UCB",),
            others=("DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB", "Kernel UCB, at once", "UCB1, shared"),
            side="below",
            limit=1.0,
        ),
        chapter="results",
        expected="partly",
    ),
    Claim(
        name="higher-cost",
        place="Section 6, synthetic",
        quote="inevitably this comes at the expense of higher communication cost",
        statistic="mean scalars of Fed-GO-UCB and of One-GO-UCB over those of each baseline that communicates without "
        "a network",
        threshold="whole interval above 1",
        decide=partial(
            ratios,
            quantity="communication",
            experiments=_SYNTHETIC,
            ours=("Fed-GO-UCB", "One-GO-UCB"),
            others=("DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB"),
            side="above",
            limit=1.0,
        ),
        chapter="results",
        expected="reproduced",
    ),
    Claim(
        name="statistics-size",
        place="Section 6, synthetic",
        quote=r"statistics of size $d_w^2 \approx 10^4$ (compared with $d_x^2 \approx 10^2$ for the baselines)",
        statistic=r"$\log_{10}$ of $d_w^2$ and of $d_x^2$, rounded",
        threshold="4 and 2",
        decide=partial(orders, experiments=_SYNTHETIC, d_w=4, d_x=2),
        chapter="problem",
        expected="partly",
    ),
    Claim(
        name="cheaper-than-one",
        place="Section 6, synthetic",
        quote="the communication cost of Fed-GO-UCB is significantly lower than One-GO-UCB",
        statistic="mean scalars of Fed-GO-UCB over those of One-GO-UCB",
        threshold="whole interval below 1/2",
        decide=partial(
            ratios,
            quantity="communication",
            experiments=_SYNTHETIC,
            ours=("Fed-GO-UCB",),
            others=("One-GO-UCB",),
            side="below",
            limit=0.5,
        ),
        chapter="results",
        expected="reproduced",
    ),
    Claim(
        name="sub-linear",
        place="Section 6, synthetic",
        quote="it grows at a sub-linear rate over time",
        statistic="share of Phase II's scalars that Fed-GO-UCB sends in its second half (linear growth: 1/2)",
        threshold="whole interval below 1/2",
        decide=partial(late_share, experiments=_SYNTHETIC, algorithm="Fed-GO-UCB", limit=0.5),
        chapter="results",
        expected="reproduced",
    ),
    Claim(
        name="conforms",
        place="Section 6, synthetic",
        quote="which conforms with our theoretical results in Theorem 1",
        statistic="none: the experiments lie outside the theorem's conditions ($T_0 = 45 < d_w = 201$, and fewer arms "
        "than parameters leave no strong convexity)",
        threshold="–",
        decide=None,
        chapter="phase_one",
        expected="not testable",
    ),
    Claim(
        name="outperforms",
        place="Section 6, real data",
        quote="Fed-GO-UCB outperforms the baselines",
        statistic="mean final regret of Fed-GO-UCB over that of each of the five baselines, on each data set",
        threshold="whole interval below 1",
        decide=partial(
            ratios,
            quantity="regret",
            experiments=_REAL,
            ours=("Fed-GO-UCB",),
            others=("One-GO-UCB", "DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB", "N-GO-UCB"),
            side="below",
            limit=1.0,
        ),
        chapter="results",
        expected="partly",
    ),
    Claim(
        name="low-cost",
        place="Section 6, real data",
        quote="with relatively low communication cost",
        statistic="mean scalars of Fed-GO-UCB over those of each baseline that communicates",
        threshold="whole interval below 1",
        decide=partial(
            ratios,
            quantity="communication",
            experiments=_REAL,
            ours=("Fed-GO-UCB",),
            others=("One-GO-UCB", "DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB"),
            side="below",
            limit=1.0,
        ),
        chapter="results",
        expected="partly",
    ),
    Claim(
        name="caption-synthetic",
        place="Caption of Figure 2",
        quote="Hartmann function f₁ ($d_x=6, d_w=201$ …), Cosine8 function f₂ ($d_x=8, d_w=301$ …)",
        statistic="$d_w = 25 d_x + 51$ of the network that Section 6 describes",
        threshold="equal to the caption",
        decide=partial(sizes, stated={"hartmann6": 201, "cosine8": 301}),
        chapter="problem",
        expected="partly",
    ),
    Claim(
        name="caption-real",
        place="Caption of Figure 3",
        quote="Magic Telescope ($d_x=10, d_w=201$ …), Shuttle ($d_x=10, d_w=201$ …)",
        statistic="$d_w = 25 d_x + 51$ of the network that Section 6 describes",
        threshold="equal to the caption",
        decide=partial(sizes, stated={"magic": 201, "shuttle": 201}),
        chapter="problem",
        expected="not reproduced",
    ),
]
