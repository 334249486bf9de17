"""A search of the cube: the linearised network is its posterior, a plan hallucinates means, and scalars are counted."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedgo import Network
from fedgo._streams import generator
from fedgo.beyond import continuum
from fedgo.beyond.continuum import Cube, linearised, search
from fedgo.beyond.surrogates import GaussianProcess, Relinearised, single_task_gp
from fedgo.confidence import Tally
from fedgo.experiments import record, searches

CUBE = Cube("bowl", 2, lambda x: -9 * (x - 0.3).square().sum(-1))


def data(pulls=9):
    source = generator(0, 0, "points")
    points = torch.rand(pulls, 2, generator=source, dtype=torch.float64)
    return points, CUBE.value(points) + 0.1 * torch.randn(pulls, generator=source, dtype=torch.float64)


def test_the_box_doubles_after_three_better_epochs_and_halves_after_as_many_worse_as_it_takes():
    assert continuum.side_length(torch.tensor([1.0, 2, 3, 4]), 6, 5) == 1.6
    assert continuum.side_length(torch.tensor([1.0, 2, 3, 4, 5, 6, 7]), 6, 5) == 1.6  # the largest
    assert continuum.side_length(torch.tensor([1.0, 1, 1.0005]), 6, 5) == 0.4  # ⌈6/5⌉ = 2, by a thousandth
    assert continuum.side_length(torch.tensor([1.0, 1, 2, 2, 2]), 6, 5) == 0.4
    assert continuum.side_length(torch.tensor([1.0, 1]), 3, 5) == 0.4  # ⌈4/5⌉ = 1
    assert continuum.side_length(torch.ones(30), 3, 5) == 0.5**7


def test_a_region_is_a_box_round_the_point_of_the_largest_mean():
    points, rewards = data()
    model = single_task_gp(points, rewards.unsqueeze(-1), torch.full_like(rewards, 0.01).unsqueeze(-1))
    model.covar_module.lengthscale = torch.tensor([[0.2, 0.8]])
    torch.manual_seed(0)
    found = continuum._region(model, 5, 0.2, 3)
    with torch.no_grad():
        centre = points[model.posterior(points).mean.argmax()]
    away = (found - centre).abs().amax(0)
    assert len(found.unique(dim=0)) == 5 and away[0] <= 0.05 and 0.05 < away[1] <= 0.2
    # of so many points some are at the sides
    spread = (continuum._region(model, 400, 0.2, 3) - centre).abs().amax(0)
    assert 0.045 < spread[0] <= 0.05 and 0.18 < spread[1] <= 0.2


def test_the_linearised_network_is_a_botorch_model_with_the_same_posterior():
    points, rewards = data()
    network = Network(2, 3)
    fit = Relinearised(network, effect=False).fit(points, Tally(torch.ones_like(rewards), rewards), 0.1)
    with torch.no_grad():
        found = linearised(network, fit, points, rewards, 0.1).posterior(points)
    assert torch.allclose(found.mean.squeeze(-1), fit.mean, atol=1e-5)
    assert torch.allclose(
        found.distribution.covariance_matrix, fit.covariance(torch.arange(9)), atol=1e-5, rtol=1e-4
    )


def test_an_effect_of_every_arm_is_noise_where_no_point_comes_twice():
    points, rewards = data()
    network = Network(2, 3)
    fit = Relinearised(network).fit(points, Tally(torch.ones_like(rewards), rewards), 0.1)
    model = linearised(network, fit._replace(effect=0.5), points, rewards, 0.1)
    assert torch.allclose(model.likelihood.noise, torch.full((9,), 0.51, dtype=torch.float64))


def test_improvement_is_over_the_largest_mean_of_a_point_pulled(monkeypatch):
    points, rewards = data()
    model = single_task_gp(points, rewards.unsqueeze(-1), torch.full_like(rewards, 0.01).unsqueeze(-1))
    asked = []
    monkeypatch.setattr(continuum, "_optimum", lambda acquisition, *sizes: asked.append((acquisition, sizes)))
    continuum._improvement(model, 4)
    ((acquisition, sizes),) = asked
    with torch.no_grad():
        assert acquisition.best_f == model.posterior(points).mean.max() and sizes == (2, 4)


def test_a_point_planned_is_observed_at_its_mean():
    points, rewards = data()
    seen = []
    model = single_task_gp(points, rewards.unsqueeze(-1), torch.full_like(rewards, 0.01).unsqueeze(-1))

    def optimum(acquisition, dimension, pulls=1):
        assert acquisition.beta == 2.0**2
        x = torch.tensor([[0.2, 0.4], [0.21, 0.4], [0.9, 0.9]])[len(seen)][None].double()
        with torch.no_grad():
            posterior = acquisition.model.posterior(torch.cat([x, x + 0.05]))
            seen.append((posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)))
        return x

    before, continuum._optimum = continuum._optimum, optimum
    try:
        chosen = continuum._bound(model, 3, 2.0)
    finally:
        continuum._optimum = before
    with torch.no_grad():
        fresh = model.posterior(torch.cat([chosen[1:2], chosen[1:2] + 0.05]))
        column = model.posterior(torch.cat([chosen[:1], chosen[1:2]])).distribution.covariance_matrix
    assert torch.allclose(seen[1][0], fresh.mean.squeeze(-1), atol=1e-6)  # means stay
    wanted = column[1, 1] - column[0, 1] ** 2 / (column[0, 0] + 0.01)
    assert seen[1][1][0] == pytest.approx(float(wanted), rel=1e-4)


@pytest.mark.slow
# near the top points are close, for some versions of torch too close
@pytest.mark.filterwarnings("ignore:A not p.d.")
@pytest.mark.parametrize(
    "options",
    [{}, {"choice": "improvement"}, {"choice": "region"}, {"surrogate": Relinearised(Network(2, 3))}],
)
def test_a_search_finds_the_top_of_a_bowl_and_says_what_it_sent(options):
    found = search(CUBE, 3, 2, first=9, **options)
    torch.manual_seed(7)
    again = search(CUBE, 3, 1, first=9, **options)
    assert torch.equal(found.points[:12], again.points) and found.points.shape == (15, 2)
    assert ((found.points >= 0) & (found.points <= 1)).all()
    assert torch.equal(found.values, CUBE.value(found.points))
    uniform = search(CUBE, 3, 2, first=9, choice="uniform")
    assert torch.equal(uniform.points[:9], found.points[:9])
    assert torch.allclose((uniform.rewards - uniform.values), found.rewards - found.values, atol=1e-12)
    assert found.values[9:].mean() > uniform.values[9:].mean()
    # 3 scalars a pull, up once and down to 3 clients, at the end of every epoch
    up = torch.zeros(15, dtype=torch.int64)
    up[8], up[11::3] = 27, 9
    assert torch.equal(found.ledger.up[0], up) and torch.equal(found.ledger.down[0], 3 * up)


def process(**spoilt):
    """A process whose posterior has other moments than the model's."""

    def model(points, means, variances):
        found = single_task_gp(points, means, variances)
        inner = found.posterior

        def posterior(x):
            said = inner(x)
            moments = {"mean": said.mean, "variance": said.variance}
            return SimpleNamespace(
                **moments | {name: change(moments[name]) for name, change in spoilt.items()}
            )

        found.posterior = posterior
        return found

    return GaussianProcess(model)


BAD = {
    r"mean reward of every arm is 1e\+20: rewards that are constant": lambda: search(
        Cube("x", 2, lambda x: torch.full((len(x),), 1e20, dtype=torch.float64)), 3, 4
    ),
    r"mean reward of every arm is 1e\+20: rewards that are const": lambda: search(
        Cube("x", 2, lambda x: torch.full((len(x),), 1e20, dtype=torch.float64)),
        3,
        4,
        surrogate=Relinearised(Network(2, 3)),
    ),
    r"value\[0\] is nan: ": lambda: search(Cube("x", 2, lambda x: x[:, 0] * torch.nan), 3, 4),
    r"the mean by SingleTaskGP\[0\] is nan: the fit broke down": lambda: search(
        CUBE, 3, 4, surrogate=process(mean=lambda mean: mean * torch.nan)
    ),
    r"the variance by SingleTaskGP\[0\] is -.*: it is negative beyond": lambda: search(
        CUBE, 3, 4, surrogate=process(variance=lambda variance: -variance)
    ),
    r"the shape of the mean by SingleTaskGP is \(5,\): give \(K,\) = \(10,\)": lambda: search(
        CUBE, 3, 4, surrogate=process(mean=lambda mean: mean[:5])
    ),
    r"choice is 'best': ": lambda: search(CUBE, 3, 4, choice="best"),
    r"kappa is -1: ": lambda: search(CUBE, 3, 4, kappa=-1),
    r"first is 1: ": lambda: search(CUBE, 3, 4, first=1),
    r"sigma is 0: ": lambda: Cube("x", 2, lambda x: x, 0),
    r"shape of value is \(10, 2\): give \(10,\)": lambda: search(Cube("x", 2, lambda x: x), 3, 4),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


@pytest.mark.parametrize("problem", searches.CUBES)
def test_the_record_says_what_is_played(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "DATA", tmp_path)
    monkeypatch.setattr(searches, "SEEDS", 2)
    monkeypatch.setattr(searches, "WAYS", {"uniform": {"choice": "uniform"}})
    monkeypatch.setattr("sys.argv", ["searches", problem])
    inner = searches.play
    calls = []
    monkeypatch.setattr(searches, "play", lambda *a: calls.append(a) or inner(*a, 1))
    searches.main()
    searches.main()  # finds all seeds
    assert len(calls) == 2
    outcome = searches.recorded(problem)["uniform"]
    for seed in range(2):
        found = inner(problem, "uniform", seed, 1)
        assert outcome.best[seed] == pytest.approx(
            [found.values[:10].max().item(), found.values.max().item()], rel=1e-5
        )
        assert np.isclose(outcome.average[seed], found.values.mean().item())


def test_an_unknown_function_is_refused():
    with pytest.raises(ValueError, match=r"^problem is 'no': "):
        searches.recorded("no")
    with pytest.raises(ValueError, match=r"^name is 'no': "):
        searches.cube("no", 0)


def test_the_cubes_are_botorchs_with_their_known_tops():
    top = searches.cube("ackley10", 0)
    assert top.value(torch.full((1, 10), 0.5, dtype=torch.float64)).abs() < 1e-9
    at = torch.tensor([[0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]], dtype=torch.float64)
    assert searches.cube("hartmann6", 0).value(at).item() == pytest.approx(3.32237, abs=1e-4)
    assert searches.cube("network15", 0).value(at.new_zeros(1, 15)) != searches.cube("network15", 1).value(
        at.new_zeros(1, 15)
    )
