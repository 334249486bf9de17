"""ApproxDisKernelUCB against a plain transcription, the exact kernel and a ledger counted by hand."""

import numpy as np
import pytest
from instances import INF, assert_same, gaussian_process, random_problem, rewards
from reference.approx_dis_kernel_ucb import plain_kernel_ucb

from fedgo import Settings, approx_dis_kernel_ucb
from fedgo.algorithms.approx_dis_kernel_ucb import NystroemKernel


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
