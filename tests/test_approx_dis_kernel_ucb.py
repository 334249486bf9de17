"""ApproxDisKernelUCB against a plain transcription, the exact kernel and a ledger counted by hand."""

import math

import numpy as np
import pytest
import torch
from instances import INF, assert_same, gaussian_process, random_problem, rewards
from reference.approx_dis_kernel_ucb import plain_kernel_ucb
from sklearn.gaussian_process.kernels import RBF

from fedgo import Problem, Settings, approx_dis_kernel_ucb, hartmann6
from fedgo.algorithms.approx_dis_kernel_ucb import NystroemKernel, nystroem, rbf
from fedgo.star import Ledger, Star, When


def test_nystroem_with_the_full_dictionary_is_the_kernel():
    kernel = rbf(hartmann6(3, arms=12).arms, 0.6)
    features = nystroem(kernel, torch.ones(3, 12).double())
    torch.testing.assert_close(features @ features.mT, kernel, rtol=0, atol=1e-8)
    x = hartmann6(3, arms=12).arms[1].numpy()
    np.testing.assert_allclose(kernel[1].numpy(), RBF(0.6)(x), rtol=1e-12)


def test_nystroem_with_a_part_is_the_projection_on_its_span():
    kernel = rbf(hartmann6(1, arms=12).arms, 0.6)[0]
    inside = torch.arange(12) % 3 == 0
    features = nystroem(kernel, inside.double())
    dense = kernel[:, inside] @ torch.linalg.inv(kernel[inside][:, inside]) @ kernel[inside]
    torch.testing.assert_close(features @ features.mT, dense, rtol=0, atol=1e-8)
    assert not features[:, ~inside].any()
    assert not nystroem(kernel, torch.zeros(12).double()).any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_approx_dis_kernel_ucb_is_its_plain_transcription(seed):
    problem, draw = random_problem(200 + seed, sizes=(4, 12))
    clients, steps = int(draw.integers(1, 6)), 31
    lam, oversampling = 10.0 ** draw.uniform(-1, 0), 10.0 ** draw.uniform(-2, 0.5)
    settings = Settings(lam, 10.0 ** draw.uniform(-2, 0.5), (0.0, 0.3, 2.0, 2.0, 8.0, INF)[seed % 6])
    trace = approx_dis_kernel_ucb(problem, clients, steps, settings, 0.4, oversampling)
    for row in range(3):
        reward_of = rewards(problem, row, steps)
        expected = plain_kernel_ucb(problem, row, reward_of, clients, steps, settings, 0.4, oversampling)
        assert_same(trace, row, expected)
    assert trace.phase_one == 0


def test_dictionaries_of_the_transcription_are_neither_empty_nor_full():
    problem, _ = random_problem(201, sizes=(11, 12))
    settings = Settings(0.3, 0.5, 1.0)
    plain = plain_kernel_ucb(problem, 0, rewards(problem, 0, 60), 4, 60, settings, 0.4, 0.3)
    counts = np.bincount(plain.arm)
    assert any(0 < len(members) < (counts > 0).sum() for _, members in plain.members)


@pytest.mark.parametrize("clients", [1, 3])
def test_with_the_full_dictionary_the_posterior_and_index_are_the_exact_ones(watch, clients):
    problem, _ = random_problem(202, runs=1, sizes=(10, 11), least=2)
    calls = watch(NystroemKernel, "index")
    trace = approx_dis_kernel_ucb(problem, clients, 30, Settings(0.2, 0.5, 0.0), 0.5, 1e12)
    assert trace.sync.all() and len(calls) == 30
    for t, call in enumerate(calls):
        state, i = call.args[1], t % clients
        mean, variance = gaussian_process(problem, 0.5, 0.2, trace.arm[0, :t], trace.reward[0, :t])
        found = (state.posterior.variance + state.rest)[0, i].numpy()
        np.testing.assert_allclose(state.posterior.mean[0, i].numpy(), mean, rtol=0, atol=1e-7)
        np.testing.assert_allclose(0.2 * found, variance, rtol=0, atol=1e-7)
        index = mean + np.sqrt(0.5 * variance / 0.2)
        np.testing.assert_allclose(call.result[0, i].numpy(), index, rtol=0, atol=1e-6)


def test_a_well_explored_arm_has_a_small_chance_in_the_dictionary():
    runs, lam, oversampling = 300, 0.1, 0.1
    arms = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]]).double().expand(runs, 3, 2)
    problem = Problem("apart", arms, torch.zeros(runs, 3).double(), tuple(range(runs)))
    learner = NystroemKernel(1, problem, rbf(arms, 1.0), Settings(lam), oversampling)
    star, every = Star(1, Ledger.blank(runs, 500)), torch.arange(runs)
    arm, one = torch.zeros(runs, 1, dtype=torch.int64), torch.ones(runs, 1).double()
    state = learner.learn(learner.begin(), arm, one, one)
    state = learner.synchronise(state, star, When(every, torch.full((runs,), 0)))
    assert (
        star.ledger.up[:, 0] == 2 + 2
    ).all()  # σ² = 1/λ: drawn for sure; one member of d_x = 2 and m(m+1) = 2
    for _ in range(400):
        state = learner.learn(state, arm, one, one)
    learner.synchronise(state, star, When(every, torch.full((runs,), 450)))
    # 401 data with σ² = 1/(401 + λ) each are all missed with probability (1 − 0.1/401.1)^401 ≈ exp(−0.1)
    share = (star.ledger.up[:, 450] > 0).double().mean().item()
    assert abs(share - (1 - math.exp(-0.1))) < 4 * math.sqrt(0.095 * 0.905 / runs)
