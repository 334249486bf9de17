"""Summaries of S runs: mean and standard error, bootstrap intervals over the runs, and a number as printed text."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedgo.trace import Trace

RESAMPLES = 2000  # the number of resamples of a bootstrap interval

Array = npt.NDArray[np.float64]


def mean_error(values: Tensor | Array) -> tuple[Array, Array]:
    """Return the mean of ``values`` (S, …) over S runs and the standard error of this mean, (…) each; 0 for one run."""
    array = np.asarray(values, dtype=np.float64)
    error = array.std(0, ddof=1) / np.sqrt(len(array)) if len(array) > 1 else np.zeros_like(array[0])
    return array.mean(0), error


def interval(statistic: Callable[..., Any], *samples: Array) -> tuple[float, float, float]:
    """Return the value of a statistic of S runs with its 95 % percentile bootstrap interval over the runs.

    The resamples always have the same random numbers. Fewer than two runs have the interval from −∞ to ∞.

    Args:
        statistic: Called as ``statistic(*samples, axis=-1)``; it maps arrays (..., S) to an array (...).
        samples: Arrays (S,) of the same length; a resample takes all entries of a run together.
    """
    from scipy.stats import bootstrap  # its import takes as long as that of pandas

    samples = tuple(np.asarray(sample, dtype=np.float64) for sample in samples)
    # a ratio whose denominator is 0 in all runs is infinite or NaN, without a warning
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = float(statistic(*samples, axis=-1))
        if len(samples[0]) < 2:
            return estimate, float("-inf"), float("inf")
        how: dict[str, Any] = {"paired": True, "vectorized": True, "method": "percentile"}
        draws = np.random.default_rng(0)
        limits = bootstrap(samples, statistic, n_resamples=RESAMPLES, rng=draws, **how).confidence_interval
    return estimate, float(limits.low), float(limits.high)


def paired_difference(ours: Trace, other: Trace) -> tuple[float, float, float]:
    """Return the mean difference of the final regrets of two traces of the same runs, with its 95 % interval."""
    ours_final, others_final = (trace.cumulative_regret[:, -1].numpy() for trace in (ours, other))
    return interval(np.mean, ours_final - others_final)


def formatted(value: float, digits: int = 2) -> str:
    """Return ``value`` as Markdown with ``digits`` significant digits: plain, or a·10ᵇ if it is small or large."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    if value == 0:
        return "0"
    leading, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -3 <= power < 5:
        return f"{value:,.{max(digits - 1 - power, 0)}f}".replace("-", "−")
    return f"$10^{{{power}}}$" if leading == "1" else rf"${leading}\cdot10^{{{power}}}$"
