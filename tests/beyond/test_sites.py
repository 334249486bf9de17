"""Sites that differ: the fit of cells and the plan over them against a dense one, and what has to hold of both."""

import json
from copy import copy

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from reference import sites as reference
from scipy.stats import chi2

from fedgo import Problem
from fedgo._streams import generator
from fedgo.beyond import Client, Fitting, Plan, Server, Study, converse, play
from fedgo.beyond.advised import ADVISED, METHODS
from fedgo.beyond.map import sites as measured
from fedgo.beyond.map.sites import Differing, OwnFromThree, measure_sites, of_sites
from fedgo.beyond.map.studies import DIFFER
from fedgo.beyond.planning import plan
from fedgo.beyond.study.cli import main
from fedgo.beyond.surrogates import process
from fedgo.beyond.surrogates.models import IndependentArms
from fedgo.beyond.surrogates.sites import Sites, cochran
from fedgo.confidence import Tally
from fedgo.experiments.world import Regime

SIGMA = 0.3


def data(seed, sites=4, arms=9, features=2, pulls=40, tau=1.0, empty=False):
    """Arms (K, d), counts and sums (N, K) of some random pulls; the last site has none if ``empty``."""
    draw = np.random.default_rng(seed)
    points = draw.uniform(-2, 3, (arms, features))
    slope = draw.normal(size=(sites, features))
    means = np.sin(points.sum(1)) + tau * np.cos(points @ slope.T).T
    n, total = np.zeros((2, sites, arms))
    for _ in range(pulls):
        i, x = draw.integers(sites - empty), draw.integers(arms)
        n[i, x] += 1
        total[i, x] += means[i, x] + SIGMA * draw.normal()
    return tuple(map(torch.from_numpy, (points, n, total)))


@pytest.fixture
def fixed(monkeypatch):
    """The posterior with given parameters: ln ℓ_q, one for all features, ln ℓ and ln v."""

    def fit(arms, n, total, parameters, units=None):
        mode = torch.tensor([*[parameters[0]] * arms.shape[1], *parameters[1:]]).double()
        monkeypatch.setattr(process, "_mode", lambda *_: mode)
        points = reference.observations(arms, n, total, SIGMA)[0].flatten(0, 1)
        at, site = n.flatten().nonzero()[:, 0], torch.arange(len(n)).repeat_interleave(len(arms))
        means, variances = (total.flatten() / n.flatten())[at], SIGMA**2 / n.flatten()[at]
        units = torch.tensor(units or reference.units(n, total)).double()
        return process.squared_exponential(points, at, means, variances, site, tuple(units))

    return fit


@pytest.mark.parametrize("seed", range(8))
def test_the_posterior_is_that_of_the_dense_implementation(seed):
    arms, n, total = data(seed, features=1 + seed % 3, empty=seed % 2 == 0)
    fit = Sites().fit(arms, Tally(n, total), SIGMA)
    mean, covariance = reference.posterior(arms, n, total, SIGMA, fit.parameters)
    everything = torch.arange(n.numel())
    assert np.allclose(fit.mean, mean, rtol=0, atol=1e-8)
    assert np.allclose(fit.variance, covariance.diagonal(), rtol=0, atol=1e-8)
    assert np.allclose(fit.columns(everything[3:7], everything), covariance[3:7], rtol=0, atol=1e-8)
    assert np.allclose(fit.covariance(everything), covariance, rtol=0, atol=1e-8)
    found = reference.mode(*reference.observations(arms, n, total, SIGMA))
    assert np.allclose(fit.parameters, found, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_that_of_finite_differences(seed):
    arms, n, total = data(seed)
    points, at, values, noise = reference.observations(arms, n, total, SIGMA)

    def value(parameters):
        seen = points[0, at % 9], values, noise, at // 9
        return process.evidence(*seen, parameters)

    here = torch.tensor([-1.0, -0.3, 0.4, -1.5], dtype=torch.float64) + seed / 4
    for q, step in enumerate(1e-5 * torch.eye(4, dtype=torch.float64)):
        slope = (value(here + step)[0] - value(here - step)[0]) / 2e-5
        assert value(here)[1][q].item() == pytest.approx(slope.item(), rel=1e-6, abs=1e-7)


def test_without_parts_of_their_own_it_is_the_process_on_pooled_counts(fixed):
    arms, n, total = data(0)
    points = reference.observations(arms, n, total, SIGMA)[0][0]
    pooled, tried = n.sum(0), n.sum(0) > 0
    fit = fixed(arms, n, total, (-0.7, 20.0, -60.0))
    process._mode = lambda *_: torch.full(
        (2,), -0.7, dtype=torch.float64
    )  # the fixture's patch is undone later
    means, variances = (total.sum(0) / pooled)[tried], SIGMA**2 / pooled[tried]
    alike = process.squared_exponential(points, tried.nonzero()[:, 0], means, variances)
    for i in range(4):
        assert torch.allclose(fit.mean.view(4, -1)[i], alike.mean, rtol=0, atol=1e-8)
        assert torch.allclose(fit.variance.view(4, -1)[i], alike.variance, rtol=0, atol=1e-8)


def test_with_parts_of_their_own_alone_each_site_is_by_itself(fixed):
    arms, n, total = data(1)
    points, at, values, noise = reference.observations(arms, n, total, SIGMA)
    fit = fixed(arms, n, total, (-0.7, -20.0, -60.0))
    prior = reference.covariance(points[:1], torch.tensor([-0.7, -0.7, -20.0, -60.0]).double())
    gains, above, below = [], 0.0, 0.0
    for i in range(4):
        its = at // 9 == i
        x = at[its] % 9
        inverse = torch.linalg.inv(prior[x][:, x] + noise[its].diag())
        gains.append((prior[:, x] @ inverse, values[its]))
        above, below = above + inverse.sum(0) @ values[its], below + inverse.sum()
    centre, scale = reference.units(n, total)
    for (gain, its), mean in zip(gains, fit.mean.view(4, -1), strict=True):
        expected = centre + scale * (above / below + gain @ (its - above / below))
        assert torch.allclose(mean, expected, rtol=0, atol=1e-8)


def test_the_order_of_the_sites_and_the_units_of_rewards_do_not_matter():
    arms, n, total = data(2)
    fit = Sites().fit(arms, Tally(n, total), SIGMA)
    turned = torch.tensor([2, 0, 3, 1])
    other = Sites().fit(arms, Tally(n[turned], total[turned]), SIGMA)
    assert torch.allclose(other.mean.view(4, -1), fit.mean.view(4, -1)[turned], rtol=0, atol=1e-4)
    assert torch.allclose(other.parameters, fit.parameters, rtol=0, atol=1e-4)
    for a, b in ((5.0, 2.0), (-1.0, -0.1)):
        other = Sites().fit(arms, Tally(n, a * n + b * total), abs(b) * SIGMA)
        assert torch.allclose(other.mean, a + b * fit.mean, rtol=0, atol=1e-4)
        assert torch.allclose(other.variance, b**2 * fit.variance, rtol=0, atol=1e-4)


def test_what_a_site_measures_higher_by_a_constant_moves_its_own_means_only(fixed):
    arms, n, total = data(3)
    higher = total + 3.0 * n * (torch.arange(4) == 2)[:, None]
    units = reference.units(n, total)
    fits = [fixed(arms, n, sums, (-0.7, 0.5, 16.0), units) for sums in (total, higher)]
    moved = (fits[1].mean - fits[0].mean).view(4, -1)
    expected = torch.tensor([0.0, 0.0, 3.0, 0.0]).double()[:, None].expand(4, 9)
    assert torch.allclose(moved, expected, rtol=0, atol=1e-4)
    ties = torch.rand(9, generator=torch.Generator().manual_seed(0)).double()
    plans = [ADVISED.epoch(fit, n.sum(0), SIGMA, ties, sites=4, most=20) for fit in fits]
    assert torch.equal(*plans)


@pytest.mark.parametrize("seed", range(6))
def test_the_plan_is_that_of_the_dense_implementation_and_stays_with_the_site(seed):
    arms, n, total = data(seed, pulls=25, empty=seed % 2 == 0)
    n[:, 4], total[:, 4] = 0, 0
    fit = Sites().fit(arms, Tally(n, total), SIGMA)
    ties = torch.rand(9, generator=torch.Generator().manual_seed(seed)).double()
    begun, turn = ([], [3, 30, 3])[seed % 2], seed % 4
    retired = torch.arange(9) == (seed if seed % 3 == 0 else -1)
    cells = ADVISED.epoch(fit, n.sum(0), SIGMA, ties, begun, retired, sites=4, turn=turn)
    covariance = fit.covariance(torch.arange(n.numel())).numpy()
    expected = reference.epoch(
        fit.mean.numpy(),
        covariance,
        n,
        SIGMA,
        len(cells),
        turn,
        ties,
        begun,
        retired.nonzero()[:, 0].tolist(),
    )
    assert cells.tolist() == expected
    assert (cells // 9).tolist() == [(turn + k) % 4 for k in range(len(cells))]
    assert not bool(retired[cells % 9].any())


def test_a_long_plan_over_many_cells_asks_for_columns(monkeypatch):
    arms, n, total = data(5, sites=5, arms=60, pulls=30)
    fit = Sites().fit(arms, Tally(n, total), SIGMA)
    kappa, ties = torch.full((1, 300), 3.0), torch.rand(1, 300, generator=torch.Generator().manual_seed(0))
    whole = plan([fit], kappa.double(), ties.double(), SIGMA, 80, sites=5)
    monkeypatch.setattr("fedgo.beyond.planning._DENSE", 10)
    monkeypatch.setattr("fedgo.beyond.planning._BLOCK", 16)
    assert torch.equal(plan([fit], kappa.double(), ties.double(), SIGMA, 80, sites=5)[0], whole[0])


def test_a_site_without_trials_takes_what_the_others_share(fixed):
    arms, n, total = data(6, empty=True)
    fit = fixed(arms, n, total, (-0.5, 0.5, -2.0))
    mean, variance = fit.mean.view(4, -1), fit.variance.view(4, -1)
    prior = fit.scale**2 * (1 + fit.prior.level)
    assert bool((variance[3] < prior).all()) and bool((variance[3] > variance[:3].amin(0)).all())
    assert torch.corrcoef(torch.stack([mean[3], mean[:3].mean(0)]))[0, 1] > 0.9
    alone = fixed(arms, n, total, (-0.5, -20.0, -2.0))
    assert torch.allclose(
        alone.variance.view(4, -1)[3], alone.scale**2 * (1 + torch.tensor(-2.0).double().exp())
    )


def test_equal_rewards_and_too_few_are_refused():
    arms, n, _ = data(7)
    with pytest.raises(ValueError, match="all the same have no scale"):
        Sites().fit(arms, Tally(n, 0.5 * n), SIGMA)
    one = torch.zeros_like(n).index_put((torch.tensor([0]), torch.tensor([1])), torch.tensor(2.0).double())
    with pytest.raises(ValueError, match="two arms at least"):
        Sites().fit(arms, Tally(one, one), SIGMA)


def test_cochran_is_the_sum_written_out_and_seldom_errs():
    _, n, total = data(8, pulls=60)
    statistic, degrees = 0.0, 0
    for x in range(9):
        tried = [i for i in range(4) if n[i, x] > 0]
        if len(tried) >= 2:
            middle = total[:, x].sum() / n[:, x].sum()
            statistic += sum(float(n[i, x] * (total[i, x] / n[i, x] - middle) ** 2) for i in tried)
            degrees += len(tried) - 1
    assert cochran(Tally(n, total), SIGMA) == pytest.approx(chi2.sf(statistic / SIGMA**2, degrees), rel=1e-6)
    assert cochran(Tally(n * (torch.arange(4) == 1)[:, None], total), SIGMA) == 1
    normal = torch.randn(2000, *n.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alarms = sum(cochran(Tally(n, SIGMA * n.sqrt() * noise), SIGMA) < 0.05 for noise in normal)
    assert 70 <= alarms <= 130  # 100 ± 3 standard deviations


# A federation


def differing(seed, clients=3, arms=8, rounds=12, **how):
    """Problems of N clients with the same arms and noise, and the plan of a federation on them."""
    draw = np.random.default_rng(seed)
    points = data(seed, arms=arms)[0]
    means = torch.from_numpy(draw.normal(size=(clients, 1, arms)))
    problems = [Problem("random", points[None], each, (0,), seed, SIGMA) for each in means]
    plan = Plan(points, clients=clients, seed=seed, fitting=Fitting(SIGMA, rounds, **how))
    return problems, plan


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_federation_plays_as_the_dense_implementation_and_sends_as_much_as_one_of_clients_alike(seed):
    sizes = {"clients": 3 + seed % 2, "arms": 8, "rounds": 15}
    problems, plan = differing(seed, differ=True, **sizes)
    steps = sizes["clients"] * sizes["rounds"]
    trace = play(problems, plan, steps)
    tape, ties = problems[0].tape(plan.length + steps)[0], plan.order_of_ties[0]

    def reward_of(i, x, t):
        return float(problems[i].means[0, x] + SIGMA * tape[t])

    def planned(n, total, pulls, turn):
        believed = reference.posterior(plan.arms, n, total, SIGMA)
        return reference.epoch(*believed, n, SIGMA, pulls, turn, ties)

    expected = reference.play(planned, plan.first.tolist(), reward_of, plan.clients, 8, steps)
    assert trace.arm[0, plan.length :].tolist() == expected
    turns = torch.cat([torch.arange(plan.length), torch.arange(steps)]) % plan.clients
    regret = [
        float(problems[i].means.max() - problems[i].means[0, x])
        for i, x in zip(turns, trace.arm[0], strict=True)
    ]
    assert trace.regret[0].tolist() == pytest.approx(regret)
    alike = play(problems, differing(seed, **sizes)[1], steps)
    assert torch.equal(trace.sync, alike.sync) and trace.arm.tolist() != alike.arm.tolist()
    assert torch.equal(trace.up, alike.up) and torch.equal(trace.down, alike.down)


def test_a_client_that_was_silent_is_planned_for_and_a_server_from_a_file_goes_on(tmp_path):
    problems, plan = differing(1, differ=True)
    clients, server = [Client(plan, i) for i in range(3)], Server(plan)
    for client in clients:
        for _ in range(len(plan.first_share(client.me)[0])):
            client.tell(client.ask(), float(problems[client.me].means[0, client.ask()]))
    converse(server, clients, lambda i, number: i == 2)
    own = [account.own for account in server.desk.accounts]
    assert [int(counts.sum()) for counts, _ in own] == [3, 3, 0]
    assert torch.equal(sum(own), server.desk.total)
    server.save(tmp_path / "server.npz")
    again = Server.load(tmp_path / "server.npz", plan)
    for one in (server, again):
        converse(one, [copy(client) for client in clients])
    assert torch.equal(server.desk.planned.arms, again.desk.planned.arms)
    assert [int(account.own[0].sum()) for account in again.desk.accounts] == [3, 3, 2]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Fitting(0.3, 5, differ=1), "differ is 1"),
        (lambda: Fitting(0.3, 5, METHODS["ucb1"], True), "have their own model"),
        (
            lambda: Plan(torch.rand(4, 2).double(), fitting=Fitting(0.3, 5, differ=True)),
            "two clients at least",
        ),
        (lambda: play(differing(0)[0][:2], differing(0)[1], 4), "number of problems is 2"),
        (lambda: play([*differing(0)[0][:2], differing(1)[0][0]], differing(0)[1], 4), "the arms"),
    ],
)
def test_what_does_not_fit_is_refused(make, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make()


# A study

PEAKS = {"north": 3, "south": 8, "east": 3}
SITES = ["north", "south"]


def begun(folder, **how):
    """A study of twelve options and two sites."""
    (folder / "options.csv").write_text("name,x\n" + "".join(f"o{x},{x}\n" for x in range(12)))
    how = {"trials": 60, "noise": 0.1, "sites": SITES} | how
    return Study(folder / "study.json", folder / "options.csv", **how)


def visit(study, sites, seed=0):
    """The options that the ``sites`` ask for, one after the other, with their rewards told."""
    draw, asked = np.random.default_rng(seed), []
    for site in sites:
        asked.append(study.ask(site))
        away = int(asked[-1][1:]) - PEAKS[site]
        study.tell(asked[-1], 10 + 2 * np.exp(-(away**2) / 8) + 0.1 * draw.normal(), site)
    return asked


@pytest.mark.parametrize("seed", range(3))
def test_each_site_is_sent_to_its_own_best_option_and_one_that_joins_soon_knows_its_own(tmp_path, seed):
    study = begun(tmp_path, differ=True, seed=seed)
    asked = visit(study, SITES * 25, seed)
    assert set(asked[-8::2]) <= {"o2", "o3", "o4"} and set(asked[-7::2]) <= {"o7", "o8", "o9"}
    assert [study.standings(site)[0].option for site in SITES] == ["o3", "o8"]
    joined = Study(study.path, sites=[*SITES, "east"])
    assert "east has no trial yet" in joined.verdict("east")
    visit(joined, ["east"] * 5, seed)
    assert joined.standings("east")[0].option in {"o2", "o3", "o4"}
    assert joined.standings("east")[0].estimate == pytest.approx(12, abs=0.6)
    assert "o3" in joined.verdict("north") and "no trial" not in joined.verdict("east")


def test_a_trial_is_planned_for_its_own_site_as_if_open_ones_were_told(tmp_path):
    study = begun(tmp_path, differ=True)
    visit(study, SITES * 8)
    setup, record = study.content
    counts, sums = torch.zeros(2, 2, 12, dtype=torch.float64)
    for option, site, reward in record.told:
        counts[SITES.index(site), int(option[1:])] += 1
        sums[SITES.index(site), int(option[1:])] += reward
    mean, covariance = reference.posterior(setup.arms, counts, sums, 0.1)
    ties = torch.rand(12, generator=generator(0, 0, "order of ties"), dtype=torch.float64)
    begun_cells = []
    for site in ["south", "south", "north", "south", "north"]:
        row, size = SITES.index(site), sum(cell // 12 == SITES.index(site) for cell in begun_cells) + 1
        option = study.batch(size, site)[-1]
        (*_, cell) = reference.epoch(mean, covariance, counts, 0.1, 1, row, ties, begun_cells)
        begun_cells.append(cell)
        assert option == f"o{cell % 12}" and cell // 12 == row


def test_a_certificate_counts_the_trials_of_its_own_site(tmp_path):
    study = begun(tmp_path, differ=True, centre=11.0, reach=1.5)
    visit(study, SITES * 20)
    assert "with probability 0.9," in study.verdict("north")
    before = {row.option: row.certificate for row in study.standings("north")}
    for joined in (False, True):
        if joined:
            study = Study(study.path, sites=[*SITES, "east"])
        lower, upper = {}, {}
        for x in range(12):
            own = [reward - 11 for option, site, reward in study.told if (option, site) == (f"o{x}", "north")]
            n, cells = len(own), 12 * (2 + joined)
            root = 0.1 * np.sqrt((1 + n) * (np.log(1 + n) + 2 * np.log(cells / 0.1))) / max(n, 1)
            middle, width = (sum(own) / n, root) if n else (0, np.inf)
            lower[x], upper[x] = max(-1.5, middle - width), min(1.5, middle + width)
        for row in study.standings("north"):
            x = int(row.option[1:])
            price = max(0, max(upper[z] for z in upper if z != x) - lower[x])
            assert row.certificate == pytest.approx(price, abs=1e-12)
    assert all(row.certificate >= before[row.option] for row in study.standings("north"))
    assert f"with probability {1 - 0.1 * (1 + np.log(1.5)):.3g}," in study.verdict("east")


def test_sites_fitted_as_alike_are_said_to_differ_if_they_do(tmp_path):
    study = begun(tmp_path)
    visit(study, ["north"] * 20)
    assert "differ" not in study.verdict()
    visit(study, ["south"] * 20)
    assert "The sites differ (Cochran's Q has p < 0.001)" in study.verdict()


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"sites": ["north"]}, "give two at least"),
        ({"sites": None}, "give two at least"),
        ({"method": "ucb1"}, "have their own model"),
        ({"method": Sites()}, "have their own model"),
        ({"differ": 1}, "differ is 1"),
    ],
)
def test_a_study_whose_sites_cannot_differ_is_not_begun(tmp_path, how, match):
    with pytest.raises((ValueError, TypeError), match=match):
        begun(tmp_path, **{"differ": True} | how)
    assert not (tmp_path / "study.json").exists()


def test_what_does_not_fit_a_study_leaves_its_file_as_it_was(tmp_path):
    study = begun(tmp_path, differ=True)
    for site in SITES:
        for option in ("o1", "o2"):
            study.tell(option, 0.5, site)
    assert "all the same have no scale" in study.verdict("north")
    visit(study, SITES * 9)
    content = study.path.read_text()
    for wrong, match in (
        (lambda: study.ask(), "give the site"),
        (lambda: study.verdict(), "give the site"),
        (lambda: study.standings("west"), "site is 'west'"),
        (lambda: Study(study.path, sites=["east", *SITES]), "give those that join after them"),
        (lambda: Study(study.path, sites=["north"]), "give those that join after them"),
        (lambda: Study(study.path, differ=False), "begin another file"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()
        assert study.path.read_text() == content


def test_a_file_of_an_earlier_fedgo_is_fitted_as_alike(tmp_path):
    study = begun(tmp_path)
    visit(study, SITES * 9)
    verdict, content = study.verdict(), json.loads(study.path.read_text())
    for name in ("differ", "joined"):
        del content["about"][name]
    study.path.write_text(json.dumps(content))
    assert Study(study.path).verdict() == verdict
    with pytest.raises(ValueError, match="begin another file"):
        Study(study.path, differ=True)


def test_options_may_be_added_and_retired_and_a_shell_shows_site_by_site(tmp_path):
    study = begun(tmp_path, differ=True)
    visit(study, SITES * 10)
    study.retire("o3")
    with (tmp_path / "options.csv").open("a") as file:
        file.write("new,3.1\n")
    shell = ["--study", str(study.path), "begin", str(tmp_path / "options.csv"), "--site", "north"]
    assert CliRunner().invoke(main, [*shell, "--site", "south", "--site", "east"]).exit_code == 0
    assert study.sites == [*SITES, "east"] and {study.ask(site) for site in study.sites}.isdisjoint({"o3"})
    shown = CliRunner().invoke(main, ["--study", str(study.path), "show"]).output
    places = [shown.index(f"{site} ") for site in study.sites]
    assert places == sorted(places) and shown.count("No option beats") == 3
    assert study._repr_html_().count("<table") == 3


# The study of the map


@pytest.mark.parametrize("shape", ["smooth", "level", "odd"])
def test_sites_differ_by_tau_in_their_shape(shape):
    problem = Regime("hartmann6", 40).world((0,)).problem
    problems = of_sites(problem, Differing("hartmann6", 0.5, shape), 300)
    away = torch.cat([each.means for each in problems]) - problem.means
    assert away.std() / problem.means.std() == pytest.approx(
        0.5 if shape != "odd" else 0.5 / 300**0.5, rel=0.6
    )
    assert bool(((away - away[:, :1]).abs() < 1e-12).all()) == (shape == "level")
    assert bool((away[1:] == 0).all()) == (shape == "odd")
    assert all(
        torch.equal(each.means, problem.means) for each in of_sites(problem, Differing("", 0, shape), 2)
    )


def test_from_its_third_pull_on_a_site_uses_its_own_rewards_alone():
    arms, n, total = data(4)
    fit, pooled = OwnFromThree().fit(arms, Tally(n, total), SIGMA), Tally(n.sum(0), total.sum(0))
    shared, own = IndependentArms().fit(arms, pooled, SIGMA), n.flatten() >= 3
    assert 0 < own.sum() < 36 and torch.equal(fit.mean[~own], shared.mean.repeat(4)[~own])
    assert torch.equal(fit.mean[own], (total / n).flatten()[own])
    covariance = fit.covariance(torch.arange(36))
    assert torch.equal(covariance.diagonal(), fit.variance)
    for i, x in ((0, 2), (1, 2), (3, 5)):
        same = [j for j in range(36) if j == 9 * i + x or (j % 9 == x and not own[j] and not own[9 * i + x])]
        assert covariance[9 * i + x].nonzero()[:, 0].tolist() == same


def test_every_player_plays_as_many_pulls_on_the_same_sites(monkeypatch):
    regime, case = Regime("hartmann6", 8, 0.3, 4, 3), Differing("hartmann6", 1.0, "smooth")
    monkeypatch.setattr(measured, "CASES", {regime: case})
    monkeypatch.setattr(measured, "JOINED", (regime,))
    rows = {name: measure_sites(DIFFER.job(regime, name, {}, 0, (0, 1)))[1] for name in measured.HOW}
    assert len({row["scalars"] for name, row in rows.items() if name != "each alone"}) == 1
    assert all(row["regret"] >= row["worst_site"] > 0 for row in rows.values())
    assert 0 <= rows["differ"]["own"] <= 1 and np.isnan(rows["as if alike"]["own"])
    joined = [name for name, row in rows.items() if row["joining"] == row["joining"]]
    assert joined == ["as if alike", "differ", "each alone"]
