"""What the runs say together: the standard error by hand, the bootstrap against one written out with numpy."""

import math

import numpy as np
import pytest
from instances import made_trace
from numpy.testing import assert_allclose

from fedgo.experiments.summaries import formatted, interval, paired_difference


def by_hand(statistic, *samples):
    """2,000 resamples of the runs, all samples alike; the middle 95 % of the statistic."""
    runs = len(samples[0])
    drawn = np.random.default_rng(0).integers(0, runs, (2000, runs))
    return np.quantile(statistic(*(sample[drawn] for sample in samples), axis=-1), [0.025, 0.975])


def ratio(ours, other, axis):
    return ours.mean(axis) / other.mean(axis)


def test_an_interval_is_the_middle_of_the_resampled_statistics():
    one, two = np.random.default_rng(1).gamma(2, size=(2, 30))
    assert_allclose(interval(np.mean, one), (one.mean(), *by_hand(np.mean, one)), rtol=1e-12)
    assert_allclose(interval(ratio, one, two), (ratio(one, two, 0), *by_hand(ratio, one, two)), rtol=1e-12)


def test_one_run_says_nothing_about_the_spread_and_two_do():
    assert interval(np.mean, np.array([3.0])) == (3, float("-inf"), float("inf"))
    assert interval(np.mean, np.array([1.0, 3.0])) == (2, 1, 3)


def test_a_paired_difference_cancels_what_the_runs_share():
    common, own = np.random.default_rng(2).uniform([[0], [0.9]], [[1000], [1.1]], (2, 20))
    ours, other = (made_trace(values[:, None]) for values in (common + 5 + own, common))
    estimate, low, high = paired_difference(ours, other)
    assert estimate == pytest.approx((5 + own).mean())
    assert 5.9 < low < estimate < high < 6.1


@pytest.mark.parametrize(
    ("value", "digits", "printed"),
    [
        (0, 2, "0"),
        (0.0012345, 2, "0.0012"),
        (-1.5, 2, "−1.5"),
        (12345, 2, "12,345"),
        (99999.6, 3, r"$1.00\cdot10^{5}$"),
        (-3e-7, 1, r"$-3\cdot10^{-7}$"),
        (math.inf, 2, r"$\infty$"),
        (math.nan, 2, "–"),
    ],
)
def test_a_number_is_printed_as_one_writes_it(value, digits, printed):
    assert formatted(value, digits) == printed
