"""The learner without a K × K matrix makes the choices of the one with it, which equals the plain transcription."""

import pytest
import torch
from instances import BRIEF, GAMMAS, random_world, sample

import fedgo
from fedgo.confidence import Tally
from fedgo.many_arms import columns


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_both_spaces_pull_the_same_arms_and_send_as_much(seed):
    """With fewer arms than parameters, or more."""
    *world, draw = random_world(seed, (2, 60), (1, 7), (2, 25))
    start = fedgo.shared_start(*world, BRIEF)
    lam, beta = 10.0 ** draw.uniform(-2, 1), 10.0 ** draw.uniform(-2, 1)
    settings = fedgo.Settings(lam, beta, GAMMAS[seed % len(GAMMAS)])
    arms, parameters = (fedgo.fed_go_ucb(start, settings, space=s) for s in ("arms", "parameters"))
    assert arms == parameters


@pytest.mark.parametrize(("lam", "ages"), [(0.1, [1, 2, 3, 4, 5, 0, 1]), (1e-6, [0] * 7)])
def test_what_a_synchronisation_takes_from_the_variances_is_what_a_fresh_start_finds(lam, ages):
    """With a prior as good as none what is left would be rounding, and nothing is taken away at first."""
    features, offsets, tally, seen = sample(2, 1, 50, 30, seed=1), sample(2, 1, 50), Tally.blank(2, 50), []
    found = columns(features, offsets, lam, tally)
    for k in range(20):
        before = (found, tally)
        for m in range(24 if k == 5 else 4):  # arms for more than half of 30 dimensions: begun anew
            arm = torch.randint(50, (2,), generator=torch.Generator().manual_seed(20 * k + m))
            tally = tally.record(arm, sample(2, seed=k), torch.ones(2, dtype=torch.float64))
        found, exact = (columns(features, offsets, lam, tally, b) for b in (before, None))
        seen.append(int(found.age[0, 0]))
        torch.testing.assert_close(found.variance, exact.variance, rtol=1e-11, atol=1e-10)
        torch.testing.assert_close(found.mean, exact.mean, rtol=0, atol=1e-9)
    assert seen[: len(ages)] == ages and max(seen) == 8


def test_many_arms_need_no_matrix_of_arms_by_arms():
    """A matrix of 100,000 × 100,000 would be 80 GB."""
    network = fedgo.Network(2, 2)
    problem = fedgo.realizable(network, 1, arms=100_000, scale=2.0)
    start = fedgo.shared_start(problem, network, 2, 4, BRIEF)
    trace = fedgo.fed_go_ucb(start, fedgo.Settings(0.1, 0.1, 0.5), space="parameters")
    assert trace.regret[:, trace.phase_one :].mean() < trace.regret[:, : trace.phase_one].mean()
