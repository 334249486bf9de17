"""The paper's empirical claims as data (`data/claims.json`), each decided by a statistic of executed traces.

A claim has parts (a problem, an algorithm to compare with, a caption). A part holds if its whole 95 % bootstrap
interval over the runs is on the claimed side of the threshold. The verdict counts the parts: all hold, "reproduced";
some, "partly"; none, "not reproduced". A sentence that no run can decide is "not testable".
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap

from fedgo.network import Network
from fedgo.paper.experiments import world
from fedgo.simulation import Trace

RESAMPLES = 2000
CLAIMS_FILE = Path(__file__).parent / "data" / "claims.json"
VERDICTS = ("reproduced", "partly", "not reproduced", "not testable")

Traces = Mapping[str, Mapping[str, Trace]]  # experiment, then algorithm
Array = npt.NDArray[np.float64]


class Part(NamedTuple):
    """One comparison of a claim: the estimate with its 95 % interval, and whether the claim holds there."""

    label: str
    estimate: float
    low: float
    high: float
    holds: bool


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: where and in which words, the statistic that decides it, the verdict expected.

    ``decide`` names a function of this file and ``options`` are its arguments; ``chapter`` shows the runs.
    """

    name: str
    place: str
    quote: str
    statistic: str
    threshold: str
    decide: str | None
    options: Mapping[str, Any]
    chapter: str
    expected: str


def claims() -> list[Claim]:
    """The table, in the paper's order."""
    return [Claim(**row) for row in json.loads(CLAIMS_FILE.read_text(encoding="utf-8"))]


def judge(claim: Claim, traces: Traces) -> tuple[str, list[Part]]:
    """The verdict on ``claim`` from executed ``traces``, and the parts it rests on."""
    if claim.decide is None:
        return "not testable", []
    parts = _DECIDE[claim.decide](traces, **claim.options)
    holding = sum(part.holds for part in parts)
    return ("reproduced" if holding == len(parts) else "partly" if holding else "not reproduced"), parts


def interval(statistic: Callable[..., Any], *samples: Array) -> tuple[float, float, float]:
    """Estimate and 95 % percentile bootstrap interval of ``statistic(*samples, axis)`` over paired runs."""
    estimate = float(statistic(*samples, axis=-1))
    if len(samples[0]) < 2:
        return estimate, float("-inf"), float("inf")  # one run says nothing about the spread
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # a resample of runs without regret: the ratio is infinite
        limits = bootstrap(
            samples,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
    return estimate, float(limits.low), float(limits.high)


def paired_difference(ours: Trace, other: Trace) -> tuple[float, float, float]:
    """Mean over the runs of the final regret of ``ours`` minus ``other``, with its interval."""
    return interval(np.mean, _final(ours, "regret") - _final(other, "regret"))


def _final(trace: Trace, quantity: str) -> Array:
    totals = trace.cumulative_regret if quantity == "regret" else trace.communication
    return totals[:, -1].double().numpy()


def _ratio(ours: Array, other: Array, axis: int) -> Any:
    return ours.mean(axis) / other.mean(axis)


def ratios(
    traces: Traces,
    quantity: str,
    experiments: Sequence[str],
    ours: Sequence[str],
    others: Sequence[str],
    below: float | None = None,
    above: float | None = None,
) -> list[Part]:
    """Mean final ``quantity`` of each of ``ours`` over that of each of the ``others``, on each experiment."""
    parts = []
    for experiment in experiments:
        for own in ours:
            for other in others:
                pair = (traces[experiment][own], traces[experiment][other])
                estimate, low, high = interval(_ratio, *(_final(trace, quantity) for trace in pair))
                holds = (below is None or high < below) and (above is None or low > above)
                parts.append(Part(f"{pair[0].problem}: {own} / {other}", estimate, low, high, holds))
    return parts


def late_share(traces: Traces, experiments: Sequence[str], algorithm: str, below: float) -> list[Part]:
    """Share of Phase II's scalars that are sent in its second half: ½ for linear growth, less for sub-linear."""
    parts = []
    for experiment in experiments:
        trace = traces[experiment][algorithm]
        sent = (trace.up + trace.down)[:, trace.phase_one :].double()
        late, whole = (part.sum(1).numpy() for part in (sent[:, sent.shape[1] // 2 :], sent))
        estimate, low, high = interval(_ratio, late, whole)
        parts.append(Part(f"{trace.problem}: second half / all", estimate, low, high, high < below))
    return parts


def sizes(traces: Traces, stated: Mapping[str, int]) -> list[Part]:
    """d_w of the paper's network on each experiment, against the number that a caption states."""
    return [_exact(name, world(name, 1).network.size, value) for name, value in stated.items()]


def orders(traces: Traces, experiments: Sequence[str], d_w: int, d_x: int) -> list[Part]:
    """log₁₀ of d_w² and d_x², rounded, against the stated powers of ten."""
    parts = []
    for name in experiments:
        network: Network = world(name, 1).network
        for label, size, power in (("d_w", network.size, d_w), ("d_x", network.d_x, d_x)):
            parts.append(_exact(f"{name}: log10 {label}²", round(2 * np.log10(size)), power))
    return parts


def _exact(label: str, found: float, stated: float) -> Part:
    return Part(f"{label} (stated: {stated})", float(found), float(found), float(found), found == stated)


_DECIDE: dict[str, Callable[..., list[Part]]] = {
    "ratios": ratios,
    "late_share": late_share,
    "sizes": sizes,
    "orders": orders,
}
