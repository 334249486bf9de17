"""A message (ΔΣ, Δb) reveals how often its client pulled each arm, and the sums of what it observed there."""

import torch

from fedgo import Langevin, Network, Settings, realizable, shared_start
from fedgo.confidence import Tally, statistics
from fedgo.theory.executed.packing import reveal
from fedgo.theory.executed.runs import play_phase_two


def test_a_message_of_a_run_reveals_its_pulls():
    network = Network(2, 4)
    start = shared_start(realizable(network, 2, arms=6, seed=1), network, 3, 8, Langevin(rounds=20, step=0.1))
    runs = play_phase_two(start, Settings(0.5, 0.2, 0.3))
    pulls = torch.nn.functional.one_hot(runs.arm[0, ::3], 6).double().sum(0)  # of the first client
    sums = torch.zeros(6).double().index_add(0, runs.arm[0, ::3], runs.residual[0, ::3])
    gradients = runs.gradients[0]
    # the statistics of data are λI + ΔΣ and Δb; what follows in the test is the client's data of all its pulls
    sigma, vector = statistics(gradients, start.w0[0, 0], 0.5, Tally(pulls, sums))
    found = reveal(gradients, sigma - 0.5 * torch.eye(network.size).double(), vector)
    assert found.counts.round().equal(pulls) and (found.counts - pulls).abs().max() < 1e-4
    values = sums + pulls * (gradients @ start.w0[0, 0])
    torch.testing.assert_close(found.sums, values, rtol=0, atol=1e-4)
