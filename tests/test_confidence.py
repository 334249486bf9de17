"""The confidence set: arm space against parameter space."""

import pytest
import torch
from instances import sample

from fedgo.confidence import Tally, ball, compress, condition


@pytest.fixture(params=[(4, 9), (9, 4), (6, 6)], ids=["K<d", "K>d", "K=d"])
def data(request):
    """Gradients G (2, 3, K, d), ŵ₀, offsets f(ŵ₀) and a tally with arms never pulled."""
    arms, size = request.param
    gradients, w0, offsets = sample(2, 3, arms, size), sample(2, 3, size, seed=1), sample(2, 3, arms, seed=2)
    counts = torch.randint(0, 4, (2, 3, arms), generator=torch.Generator().manual_seed(3)).double()
    return gradients, w0, offsets, Tally(counts, counts.sqrt() * sample(2, 3, arms, seed=4))


def test_arm_space_is_parameter_space_seen_from_the_arms(data):
    gradients, w0, offsets, tally = data
    features, basis = compress(gradients)
    torch.testing.assert_close(features @ basis.mT, gradients, rtol=0, atol=1e-12)
    dense = ball(gradients, w0, 0.7, 2.0, tally)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(dense.sigma))
    covariance = gradients @ inverse @ gradients.mT
    mean = offsets + (gradients @ (dense.centre - w0).unsqueeze(-1)).squeeze(-1)
    for seen in (gradients, features):
        posterior = condition(seen, offsets, 0.7, tally)
        torch.testing.assert_close(posterior.covariance, covariance, rtol=0, atol=1e-10)
        torch.testing.assert_close(posterior.mean, mean, rtol=0, atol=1e-10)
