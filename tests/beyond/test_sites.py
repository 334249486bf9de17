"""Sites that differ: the fit of cells and the plan over them against a dense one, and what has to hold of both."""

from copy import copy
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from instances import sample
from scipy.stats import chi2
from test_study_tables import said
from transcriptions import sites as reference

from fedgo import Problem
from fedgo._streams import generator
from fedgo.beyond import Client, Fitting, Plan, Server, Study, converse, play
from fedgo.beyond.evidence import differing as measured
from fedgo.beyond.evidence.differing import HOW, Differing, OwnFromThree, measure_sites, of_sites
from fedgo.beyond.evidence.studies import DIFFER
from fedgo.beyond.method import process
from fedgo.beyond.method.advised import ADVISED
from fedgo.beyond.method.sites import Sites, cochran
from fedgo.beyond.method.surrogates import IndependentArms
from fedgo.confidence import Tally
from fedgo.experiments.runner import Job
from fedgo.experiments.world import Regime

SIGMA = 0.3


def data(seed, sites=4, arms=9, features=2, pulls=40, empty=False):
    """Arms (K, d), counts and sums (N, K) of some random pulls; the last site has none if ``empty``."""
    draw = np.random.default_rng(seed)
    points = draw.uniform(-2, 3, (arms, features))
    slope = draw.normal(size=(sites, features))
    means = np.sin(points.sum(1)) + np.cos(points @ slope.T).T
    n, total = np.zeros((2, sites, arms))
    for _ in range(pulls):
        i, x = draw.integers(sites - empty), draw.integers(arms)
        n[i, x] += 1
        total[i, x] += means[i, x] + SIGMA * draw.normal()
    return tuple(map(torch.from_numpy, (points, n, total)))


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_posterior_is_that_of_the_dense_implementation(seed, output):
    arms, n, total = data(seed, features=1 + seed % 3, empty=seed % 2 == 0)
    fit = Sites(outputscale=output).fit(arms, Tally(n, total), SIGMA)
    cells = torch.arange(n.numel())
    mean, covariance = reference.posterior(arms, n, total, SIGMA, fit.parameters)
    given = (fit.mean, fit.variance, fit.columns(cells, cells), fit.columns(cells[3:7], cells))
    for ours, theirs in zip(given, (mean, covariance.diagonal(), covariance, covariance[3:7]), strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1e-8)
    found = reference.mode(*reference.observations(arms, n, total, SIGMA)[:4], output=output)
    assert len(found) == arms.shape[1] + 3 + output
    assert np.allclose(fit.parameters, found, rtol=0, atol=1e-6)


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_that_of_finite_differences(seed, output):
    points, at, values, noise, *_ = reference.observations(*data(seed), SIGMA)
    within = None if seed % 2 else (3, 0.4)
    seen = process.Data(
        points[0, at % 9], at % 9, values, noise, at // 9, torch.tensor([0, 1]), within, output
    )
    here = torch.tensor([-1, -0.3, 0.4, -1.5, -2, -1.2, 0.3]).double()[: 5 + output + (within is not None)]
    here = here + seed / 4
    for q, step in enumerate(1e-5 * torch.eye(len(here), dtype=torch.float64)):
        above, below = (process.evidence(seen, here + sign * step)[0] for sign in (1, -1))
        slope = process.evidence(seen, here)[1][q]
        assert slope.item() == pytest.approx((above - below).item() / 2e-5, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_the_plan_is_that_of_the_dense_implementation_and_stays_with_the_site(seed):
    arms, n, total = data(seed, pulls=25, empty=seed % 2 == 0)
    n[:, 4], total[:, 4] = 0, 0
    fit, ties = Sites().fit(arms, Tally(n, total), SIGMA), sample(9).sigmoid()
    begun, turn, retired = ([], [3, 30, 3])[seed % 2], seed % 4, torch.arange(9) == (9, seed)[seed % 3 == 0]
    cells = ADVISED.epoch(fit, n, SIGMA, ties, begun, retired, sites=4, turn=turn, budget=9000).tolist()
    belief = fit.mean.numpy(), fit.columns(torch.arange(36), torch.arange(36)).numpy()
    gone = retired.nonzero()[:, 0].tolist()
    assert cells == reference.epoch(*belief, n, SIGMA, len(cells), turn, ties, begun, gone)
    assert [cell // 9 for cell in cells] == [(turn + k) % 4 for k in range(len(cells))]


def test_cochran_is_the_sum_written_out_and_seldom_errs():
    _, n, total = data(8, pulls=60)
    statistic, degrees = 0.0, 0
    for pulls, sums in zip(n.T.numpy(), total.T.numpy(), strict=True):
        tried = pulls > 0
        away = sums[tried] / pulls[tried] - sums.sum() / pulls.sum()
        statistic += pulls[tried] @ away**2 * (tried.sum() >= 2)
        degrees += (tried.sum() - 1) * (tried.sum() >= 2)
    p = chi2.sf(statistic / SIGMA**2, degrees)
    assert cochran(Tally(n, total), SIGMA).item() == pytest.approx(p, rel=1e-6)
    assert cochran(Tally(n * (torch.arange(4) == 1)[:, None], total), SIGMA) == 1
    noise = torch.randn(2000, 4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alarms = cochran(Tally(n.expand_as(noise), SIGMA * n.sqrt() * noise), SIGMA) < 0.05
    assert 70 <= alarms.sum() <= 130  # 100 ± 3 standard deviations


# A federation


def differing(seed, clients=3, rounds=12, **how):
    """Problems of N clients with the same eight arms and noise, and the plan of a federation on them."""
    points = data(seed, arms=8)[0]
    means = torch.from_numpy(np.random.default_rng(seed).normal(size=(clients, 1, 8)))
    problems = [Problem("random", points[None], each, (0,), seed, SIGMA) for each in means]
    return problems, Plan(points, clients=clients, seed=seed, fitting=Fitting(SIGMA, rounds, **how))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_federation_plays_as_the_dense_implementation_and_sends_as_much_as_one_of_clients_alike(seed):
    clients, steps = 3 + seed % 2, 15 * (3 + seed % 2)
    problems, plan = differing(seed, clients, 15, differ=True)
    trace, tape = play(problems, plan, steps), problems[0].tape(plan.length + steps)[0]

    def planned(n, total, pulls, turn):
        belief = reference.posterior(plan.arms, n, total, SIGMA)
        kappa = 0.55 * np.log(15 * clients)
        order = plan.order_of_ties[0]
        return reference.epoch(*belief, n, SIGMA, pulls, turn, order, kappa=kappa, untried=kappa)

    means = torch.cat([each.means for each in problems])
    expected = reference.play(
        planned, plan.first.tolist(), lambda i, x, t: means[i, x] + SIGMA * tape[t], clients, 8, steps
    )
    assert trace.arm[0].tolist() == expected
    turns = torch.cat([torch.arange(plan.length), torch.arange(steps)]) % clients
    assert torch.allclose(trace.regret[0], means.amax(1)[turns] - means[turns, trace.arm[0]])
    alike = play(problems, differing(seed, clients, 15)[1], steps)
    assert not torch.equal(trace.arm, alike.arm)
    assert all(torch.equal(getattr(trace, name), getattr(alike, name)) for name in ("sync", "up", "down"))


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


# A study

PEAKS = {"north": 3, "south": 8}
SITES = ["north", "south"]


def begun(folder, **how):
    """A study of twelve options and two sites."""
    (folder / "options.csv").write_text("name,x\n" + "".join(f"o{x},{x}\n" for x in range(12)))
    how = {"trials": 60, "noise": 0.1, "sites": SITES} | how
    return Study(folder / "study.json", folder / "options.csv", **{"goal": "reward"} | how)


def visit(study, sites, seed=0):
    """The options that the ``sites`` ask for, one after the other, with their rewards told."""
    draw, asked = np.random.default_rng(seed), []
    for site in sites:
        asked.append(study.ask(site))
        away = int(asked[-1][1:]) - PEAKS[site]
        study.tell(asked[-1], 10 + 2 * np.exp(-(away**2) / 8) + 0.1 * draw.normal(), site)
    return asked


def test_a_trial_is_planned_for_its_own_site_as_if_open_ones_were_told(tmp_path):
    study = begun(tmp_path, differ=True)
    visit(study, SITES * 8)
    counts, sums = torch.zeros(2, 2, 12, dtype=torch.float64)
    for option, site, reward in study.told:
        counts[SITES.index(site), int(option[1:])] += 1
        sums[SITES.index(site), int(option[1:])] += reward
    belief = reference.posterior(study.content[0].arms, counts, sums, 0.1)
    ties = torch.rand(12, generator=generator(0, 0, "order of ties"), dtype=torch.float64)
    cells, kappa = [], ADVISED.optimism(60).kappa
    for row in (1, 1, 0, 1, 0):
        option = study.batch(sum(cell // 12 == row for cell in cells) + 1, SITES[row])[-1]
        cells += reference.epoch(*belief, counts, 0.1, 1, row, ties, cells, (), kappa, kappa)
        assert option == f"o{cells[-1] % 12}"


def test_a_certificate_counts_the_trials_of_its_own_site(tmp_path):
    study = begun(tmp_path, differ=True, centre=11.0, reach=1.5)
    visit(study, SITES * 20)
    assert "with probability 0.9 if" in study.verdict("north")
    own = [[r - 11 for *trial, r in study.told if trial == [f"o{x}", "north"]] for x in range(12)]
    n, total = np.array([len(each) for each in own]), np.array([sum(each) for each in own])
    before = []
    for sites in (2, 3):
        with np.errstate(divide="ignore", invalid="ignore"):
            width = 0.1 * np.sqrt((1 + n) * (np.log(1 + n) + 2 * np.log(12 * sites / 0.1))) / n
            low, high = total / n - width, total / n + width
        low, high = (np.clip(np.where(n > 0, end, far), -1.5, 1.5) for end, far in ((low, -9), (high, 9)))
        prices = [max(0, np.delete(high, x).max() - low[x]) for x in range(12)]
        rows = sorted(study.standings("north"), key=lambda row: int(row.option[1:]))
        assert [row.certificate for row in rows] == pytest.approx(prices, abs=1e-12)
        before.append(prices)
        study = Study(study.path, sites=[*SITES, "east"])
    assert all(later >= earlier for earlier, later in zip(*before, strict=True))
    assert f"with probability {1 - 0.1 * (1 + np.log(1.5)):.3g} if" in study.verdict("east")
    table = tmp_path / "options.csv"
    table.write_text(table.read_text() + "".join(f"o{x},{x}\n" for x in range(12, 18)))
    share = 1 - 0.1 * (1 + np.log(18 * 3 / (12 * 2)))
    assert f"with probability {share:.3g} if" in Study(study.path, table).verdict("east")


def test_a_certificate_of_pooled_sites_is_about_no_average_of_them_and_the_verdict_says_so(tmp_path):
    north, south = {"a": 1.0, "b": 0.4}, {"a": -0.9, "b": 0.4}
    (tmp_path / "two.csv").write_text("name,x\na,0\nb,1\n")
    told = {"trials": 60, "noise": 0.1, "sites": SITES, "centre": 0.0, "reach": 1.0, "method": "ucb1"}
    study = Study(tmp_path / "study.json", tmp_path / "two.csv", **told)
    for _ in range(30):
        study.tell("a", north["a"], "north", again=True)
        study.tell("b", south["b"], "south", again=True)
    best = min(study.standings(), key=lambda row: row.certificate)
    average = [(north[x] + south[x]) / 2 for x in "ab"]
    assert best.option == "a" and best.certificate < average[1] - average[0]
    study.tell("a", south["a"], "south", again=True)
    assert "(a: north 30, south 1)" in study.verdict() and "with differ" in study.verdict()
    for _ in range(60):
        study.tell("a", south["a"], "south", again=True)
    assert "refute noise or reach, or the sites differ" in study.verdict()


def test_sites_fitted_as_alike_are_said_to_differ_if_they_do(tmp_path):
    study = begun(tmp_path)
    visit(study, ["north"] * 20)
    assert "differ" not in study.verdict()
    visit(study, ["south"] * 20)
    assert "The sites differ (Cochran's Q has p < 0.001)" in study.verdict()


def test_what_does_not_fit_a_study_leaves_its_file_as_it_was(tmp_path):
    study = begun(tmp_path, differ=True)
    for site in SITES * 2:
        study.tell("o1" if "o1" not in str(study.told[-1:]) else "o2", 0.5, site, again=True)
    assert "all the same have no scale" in study.verdict("north")
    content = study.path.read_text()
    for wrong, match in (
        (lambda: study.ask(), "give the site"),
        (lambda: study.verdict(), "give the site"),
        (lambda: study.standings("west"), "site is 'west'"),
        (lambda: Study(study.path, sites=["east", *SITES]), "those that join after them"),
        (lambda: Study(study.path, sites=["north"]), "those that join after them"),
        (lambda: Study(study.path, differ=False), "begin another file"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()
        assert study.path.read_text() == content


def test_options_may_be_added_and_retired_and_a_shell_shows_site_by_site(tmp_path):
    study = begun(tmp_path, differ=True)
    visit(study, SITES * 10)
    study.retire("o3")
    with (tmp_path / "options.csv").open("a") as file:
        file.write("new,3.1\n")
    names = [word for site in (*SITES, "east") for word in ("--site", site)]
    said(study.path, "begin", tmp_path / "options.csv", *names)
    assert study.sites == [*SITES, "east"] and {study.ask(site) for site in study.sites}.isdisjoint({"o3"})
    shown = said(study.path, "show")
    assert all(shown.index(f"{one} ") < shown.index(f"{two} ") for one, two in pairwise(study.sites))
    assert "east has no trial yet" in study.verdict("east")
    assert shown.count("No option beats") == 3


# The study of the map


@pytest.mark.parametrize("shape", ["smooth", "level", "odd"])
def test_sites_differ_by_tau_in_their_shape(shape):
    problem = Regime("hartmann6", 40).world((0,)).problem
    means = torch.cat([one.means for one in of_sites(problem, Differing("", 0.5, shape), 300)])
    away = (means - problem.means) / problem.means.std()
    assert away.std() == pytest.approx(0.5 if shape != "odd" else 0.5 / 300**0.5, rel=0.6)
    assert (shape == "level") == bool(((away - away[:, :1]).abs() < 1e-12).all())
    assert (shape == "odd") == bool((away[1:] == 0).all())


def test_from_its_third_pull_on_a_site_uses_its_own_rewards_alone():
    arms, n, total = data(4)
    fit, pooled = OwnFromThree().fit(arms, Tally(n, total), SIGMA), Tally(n.sum(0), total.sum(0))
    shared, own = IndependentArms().fit(arms, pooled, SIGMA), n.flatten() >= 3
    assert 0 < own.sum() < 36 and torch.equal(fit.mean[~own], shared.mean.repeat(4)[~own])
    assert torch.equal(fit.mean[own], (total / n).flatten()[own])
    covariance, cell = fit.columns(torch.arange(36), torch.arange(36)), torch.arange(36)
    one = (cell[:, None] % 9 == cell % 9) & ~own & ~own[:, None] | torch.eye(36, dtype=torch.bool)
    assert torch.equal(covariance, fit.variance.expand(36, 36).where(one, 0.0))


def test_every_player_of_the_study_is_measured(monkeypatch):
    regime, case = Regime("hartmann6", 8, 0.3, 4, 3), Differing("hartmann6", 1.0, "smooth")
    monkeypatch.setattr(measured, "CASES", {regime: case})
    monkeypatch.setattr(measured, "JOINED", (regime,))
    rows = {name: measure_sites(Job(DIFFER, regime, name, {}, 0, (0, 1)))[1] for name in HOW}
    assert all(row["regret"] >= row["worst_site"] > 0 for row in rows.values())
    assert 0 <= rows["differ"]["own"] <= 1 and np.isnan(rows["as if alike"]["own"])
    joined = [name for name, row in rows.items() if row["joining"] == row["joining"]]
    assert joined == ["as if alike", "differ", "each alone"]


def test_a_ratio_of_players_counts_the_runs_that_both_have() -> None:
    ours, other = ({"run": [0, 1, 2], "regret": [1.0, 9.0, 5.0]}, {"run": [1, 0], "regret": [1.0, 1.0]})
    found = measured.ratio({"differ": pd.DataFrame(ours), "as if alike": pd.DataFrame(other)})
    assert found == pytest.approx((3, 1, 9))
