"""Problems: the printed functions, the noise tape, and runs that do not depend on their company."""

import numpy as np
import pytest
import torch

from fedgo import Network, clustered, cosine8, hartmann6, realizable
from fedgo._streams import generator, normal_tape

ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P = 1e-4 * np.array(  # the factor is missing in the paper
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def test_hartmann_is_minus_the_papers_f1_with_its_factor():
    problem = hartmann6(2)
    x = problem.arms.numpy()
    f1 = -(ALPHA * np.exp(-(A * (x[..., None, :] - P) ** 2).sum(-1))).sum(-1)
    np.testing.assert_allclose(problem.means.numpy(), -f1, rtol=0, atol=1e-14)
    assert problem.arms.shape == (2, 50, 6)
    assert problem.arms.min() >= 0 and problem.arms.max() <= 1


@pytest.mark.parametrize(("negated", "sign"), [(True, -1), (False, 1)])
def test_cosine_is_the_papers_f2_with_the_chosen_sign(negated, sign):
    problem = cosine8(2, negated=negated)
    x = problem.arms.numpy()
    f2 = 0.1 * np.cos(5 * np.pi * x).sum(-1) - (x**2).sum(-1)
    np.testing.assert_allclose(problem.means.numpy(), sign * f2, rtol=0, atol=1e-13)
    assert -1 <= problem.arms.min() < 0 and problem.arms.max() <= 1


@pytest.mark.parametrize("make", [hartmann6, cosine8, lambda runs: realizable(Network(2, 3), runs)])
def test_a_run_alone_is_that_run_in_a_batch(make):
    batch, alone = make(5), make([3])
    for one in (alone, batch.only(3)):
        assert torch.equal(one.arms[0], batch.arms[3])
        assert torch.equal(one.means[0], batch.means[3])
        assert torch.equal(one.tape(77)[0], batch.tape(77)[3])


@pytest.mark.parametrize("steps", [1, 15, 16, 17, 100])
def test_a_short_tape_is_a_prefix_of_a_long_one(steps):
    long = normal_tape(generator(0, 0, "noise"), 300)
    assert torch.equal(normal_tape(generator(0, 0, "noise"), steps), long[:steps])


def test_rewards_have_the_stated_mean_and_noise():
    problem = hartmann6(3, sigma=0.5)
    arm = torch.arange(3).unsqueeze(1).expand(3, 20_000)
    error = problem.observe(arm, problem.tape(20_000)) - problem.means.gather(1, arm)
    assert error.mean(1).abs().max() < 4 * 0.5 / 20_000**0.5
    assert (error.std(1) / 0.5 - 1).abs().max() < 0.02


def test_bernoulli_rewards_are_0_or_1_with_the_arms_mean():
    problem = clustered("magic", 2, reward="bernoulli")
    arm = torch.tensor([[3], [7]]).expand(2, 20_000)
    reward = problem.observe(arm, problem.tape(20_000))
    assert set(reward.unique().tolist()) <= {0.0, 1.0}
    assert (reward.mean(1) - problem.means.gather(1, arm)[:, 0]).abs().max() < 4 * 0.5 / 20_000**0.5
