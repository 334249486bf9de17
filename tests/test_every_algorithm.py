"""Every algorithm in the table of experiments: the same noise, alone as in a batch, bad settings refused."""

import pytest
import torch
from instances import INF

from fedgo import (
    Langevin,
    Problem,
    Settings,
    approx_dis_kernel_ucb,
    clustered,
    dis_lin_ucb,
    exact_kernel_ucb,
    fed_glb_ucb,
    gp_ucb,
    hartmann6,
)
from fedgo.experiments.comparison import ALGORITHMS, World
from fedgo.experiments.tuning import GRIDS


@pytest.fixture(scope="module")
def tiny():
    world = World(hartmann6(3, arms=8), 3, 6)
    return world, {name: own.run(world, middle(name)) for name, own in ALGORITHMS.items()}


def middle(name):
    return GRIDS[name][len(GRIDS[name]) // 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_meets_the_same_noise_in_t0_plus_nt_steps(tiny, name):
    world, traces = tiny
    trace, problem = traces[name], world.problem
    assert trace.algorithm == name and trace.problem == "Hartmann6" and trace.clients == 3
    assert trace.arm.shape == (3, 5 + 18) and world.steps == 23  # T₀ = ⌈√18⌉
    noise = trace.reward - problem.means.gather(1, trace.arm)
    torch.testing.assert_close(noise, problem.sigma * problem.tape(23), rtol=0, atol=1e-12)
    torch.testing.assert_close(trace.regret, problem.means.amax(1, True) - problem.means.gather(1, trace.arm))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_of_every_algorithm_alone_is_that_run_in_a_batch(tiny, name):
    world, traces = tiny
    alone = ALGORITHMS[name].run(World(world.problem.only(2), 3, 6), middle(name))
    for part in ("arm", "up", "down", "sync"):
        assert torch.equal(getattr(alone, part)[0], getattr(traces[name], part)[2]), part
    torch.testing.assert_close(alone.reward[0], traces[name].reward[2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [*ALGORITHMS, "GP-UCB (BoTorch)"])
def test_only_the_tape_is_drawn_from_the_generator_of_the_noise(watch, monkeypatch, name):
    monkeypatch.setattr("fedgo.phase_one.Langevin", lambda: Langevin(rounds=3))
    drawn, tapes = watch(Problem, "generators"), watch(Problem, "tape")
    if name in ALGORITHMS:
        ALGORITHMS[name].run(World(hartmann6(1, arms=4), 2, 2), middle(name))
    else:
        gp_ucb(hartmann6(1, arms=8), 2, 6, 2.0, first=5)
    assert [call.args[1] for call in drawn].count("noise") == len(tapes) >= 1


@pytest.mark.slow
def test_baselines_alone_and_in_a_batch_that_synchronises_at_different_times():
    problem, settings = hartmann6(6, arms=9), Settings(0.2, 0.3, 0.5)
    for algorithm in (dis_lin_ucb, fed_glb_ucb, approx_dis_kernel_ucb):
        batch = algorithm(problem, 3, 60, settings)
        assert batch.sync.any(1).all() and len(batch.sync.double().unique(dim=0)) > 1, algorithm
        for run in range(6):
            alone = algorithm(problem.only(run), 3, 60, settings)
            for part in ("arm", "up", "down", "sync"):
                assert torch.equal(getattr(alone, part)[0], getattr(batch, part)[run]), (algorithm, part)


@pytest.mark.slow
def test_every_algorithm_plays_bernoulli_rewards():
    world = World(clustered("magic", 2, reward="bernoulli"), 2, 4)
    for name, algorithm in ALGORITHMS.items():
        reward = algorithm.run(world, middle(name)).reward
        assert set(reward.flatten().tolist()) <= {0.0, 1.0}


BAD = {
    "lengthscale 0": lambda p: approx_dis_kernel_ucb(p, 2, 4, Settings(), 0.0),
    "lengthscale -1": lambda p: exact_kernel_ucb(p, 2, 4, Settings(), -1.0),
    "lengthscale inf": lambda p: exact_kernel_ucb(p, 2, 4, Settings(), INF),
    "lengthscale nan": lambda p: approx_dis_kernel_ucb(p, 2, 4, Settings(), float("nan")),
    "oversampling 0": lambda p: approx_dis_kernel_ucb(p, 2, 4, Settings(), 1.0, 0.0),
    "oversampling nan": lambda p: approx_dis_kernel_ucb(p, 2, 4, Settings(), 1.0, float("nan")),
    "link 'probit'": lambda p: fed_glb_ucb(p, 2, 4, Settings(), "probit"),
    "theorem_delta 0": lambda p: dis_lin_ucb(p, 2, 4, Settings(), 0.0),
    "theorem_delta 1": lambda p: dis_lin_ucb(p, 2, 4, Settings(), 1.0),
    "first 0": lambda p: gp_ucb(p, 2, 4, 1.0, first=0),
    "first 5": lambda p: gp_ucb(p, 2, 4, 1.0, first=5),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_setting_is_named(case):
    name, value = case.split()
    with pytest.raises(ValueError, match=rf"^{name} is {value}(\.0)?: "):
        BAD[case](hartmann6(1, arms=3))
