"""The controls: uniform play, UCB1 and exact kernel UCB by hand and by scikit-learn, and BoTorch's GP-UCB."""

import math

import numpy as np
import torch
from instances import gaussian_process, random_problem

import fedgo


def test_ucb1_shares_noisy_means_of_all_clients_with_the_given_width(watch):
    problem = fedgo.hartmann6(1, arms=4)
    calls = watch(fedgo.Immediate, "index")
    trace = fedgo.shared_ucb1(problem, 3, 40, fedgo.Settings(beta=0.3))
    assert sorted(trace.arm[0, :4].tolist()) == [0, 1, 2, 3]
    for t in range(4, 40):
        arm, reward = trace.arm[0, :t], trace.reward[0, :t]
        pulls = torch.bincount(arm, minlength=4)
        mean = torch.stack([reward[arm == k].mean() for k in range(4)])
        torch.testing.assert_close(calls[t].result[0, 0], mean + (0.6 * math.log(t) / pulls).sqrt())
        assert trace.arm[0, t] == calls[t].result[0, 0].argmax()


def test_exact_kernel_ucb_is_scikit_learns_gaussian_process(watch):
    problem, _ = random_problem(203, runs=1, sizes=(11, 12), least=2)
    calls = watch(fedgo.Immediate, "index")
    trace = fedgo.exact_kernel_ucb(problem, 3, 30, fedgo.Settings(0.1, 0.5), 0.7)
    for t, call in enumerate(calls):
        mean, variance = gaussian_process(problem, 0.7, 0.1, trace.arm[0, :t], trace.reward[0, :t])
        posterior = call.args[1].posterior
        np.testing.assert_allclose(posterior.mean[0, 0].numpy(), mean, rtol=0, atol=1e-9)
        np.testing.assert_allclose(0.1 * posterior.variance[0, 0].numpy(), variance, rtol=0, atol=1e-9)
        index = mean + np.sqrt(0.5 * variance / 0.1)
        np.testing.assert_allclose(call.result[0, 0].numpy(), index, rtol=0, atol=1e-7)
    d_x = problem.arms.shape[-1]
    assert len(set(trace.arm[0].tolist())) > 3 and len(calls) == 30
    assert (trace.up == d_x + 1).all() and (trace.down == 3 * (d_x + 1)).all()


def test_uniform_play_sends_nothing_and_is_uniform():
    trace = fedgo.uniform_random(fedgo.hartmann6(20, arms=10), 4, 1000)
    assert not trace.communication.any() and not trace.sync.any()
    counts = torch.bincount(trace.arm.flatten(), minlength=10)
    assert ((counts - 2000).square() / 2000).sum() < 28  # χ² with 9 degrees of freedom, p ≈ 0.001
    assert not torch.equal(trace.arm[0], trace.arm[1])
