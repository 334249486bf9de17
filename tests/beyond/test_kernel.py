"""Theorem K: its intervals are those of a plain transcription with k⁻¹."""

import math

import numpy as np
import pytest
import torch

from fedgo.beyond.guarantees.guarantee import Guarantee
from fedgo.beyond.guarantees.kernel import KernelIntervals
from fedgo.confidence import Tally

SIGMA, NORM, DELTA = 0.3, 2.0, 0.3
POINTS = np.linspace(0, 1, 6)
KERNEL = np.exp(-((POINTS[:, None] - POINTS) ** 2) / 0.18) + 0.01 * np.eye(6)
VALUE = NORM * math.sqrt(KERNEL.diagonal().max())


def plain_intervals(n, total, syncs, clients):
    """[L, U] and √V for counts and sums (S, K): the kernel's interval and the counts', both at δ/2."""
    union = math.pi**2 * clients * (syncs + 1.0) ** 2 / 6 if clients > 1 else np.ones(len(n))
    precision = np.linalg.inv(KERNEL) + n[:, None, :] * np.eye(6) / SIGMA**2
    variance = np.linalg.inv(precision)
    mean = (variance @ total[..., None])[..., 0] / SIGMA**2
    information = np.linalg.slogdet(precision @ KERNEL)[1]
    spread = np.sqrt(variance.diagonal(axis1=1, axis2=2))
    radius = np.sqrt(information + 2 * np.log(2 * union / DELTA)) + NORM
    with np.errstate(divide="ignore", invalid="ignore"):
        h = SIGMA * np.sqrt(np.log1p(n) + 2 * np.log(2 * 6 * union / DELTA)[:, None])
        centre, c = np.nan_to_num(total / n), h * np.sqrt(n + 1) / n
    lower = np.maximum(np.maximum(mean - radius[:, None] * spread, centre - c), -VALUE)
    upper = np.minimum(np.minimum(mean + radius[:, None] * spread, centre + c), VALUE)
    return lower, upper, spread


@pytest.mark.parametrize("clients", [1, 3])
def test_the_intervals_are_their_plain_transcription(clients):
    draw = np.random.default_rng(0)
    n = draw.integers(0, 9, (50, 6)) * draw.integers(0, 2, (50, 6)).astype(float)
    total, syncs = n * draw.uniform(-1, 1, 6) + np.sqrt(n) * draw.normal(size=(50, 6)), np.arange(50) // 5
    lower, upper, spread = plain_intervals(n, total, syncs, clients)
    known = Tally(*(torch.from_numpy(each).unsqueeze(1) for each in (n, total)))
    features = torch.linalg.cholesky(torch.from_numpy(KERNEL))
    ours = KernelIntervals(clients, SIGMA, VALUE, DELTA, features=features, norm=NORM)
    got = ours.after(known, torch.from_numpy(syncs).unsqueeze(1), shared=known)
    for found, theirs in zip(got, (lower, upper, np.log1p(spread**2 / SIGMA**2)), strict=True):
        np.testing.assert_allclose(found[:, 0], theirs, rtol=1e-8, atol=1e-8)
    counted = Guarantee(VALUE, SIGMA, DELTA / 2).intervals(clients)
    plain = counted.after(known, torch.from_numpy(syncs).unsqueeze(1), shared=known)
    assert (got.upper - got.lower <= plain.upper - plain.lower).all()
