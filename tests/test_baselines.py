"""The baselines and controls against closed forms, scikit-learn, plain transcriptions and ledgers counted by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression, Ridge

from fedgo import EventTriggered, Langevin, Problem, Settings, clustered, cosine8, hartmann6
from fedgo._streams import generator
from fedgo.algorithms.approx_dis_kernel_ucb import NystroemKernel, approx_dis_kernel_ucb, nystroem, rbf
from fedgo.algorithms.controls import exact_kernel_ucb, shared_ucb1, uniform_random
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.fed_glb_ucb import LINKS, GeneralisedLinear, fed_glb_ucb
from fedgo.algorithms.gp_ucb import gp_ucb
from fedgo.confidence import Tally
from fedgo.paper.experiments import ALGORITHMS, World
from fedgo.star import Ledger, Star, When

INF = float("inf")


def random_problem(seed, runs=3, reward="gaussian", sizes=(2, 12), least=1):
    """Uniform arms in the centred cube and means that are not linear in them, all sizes random; and a draw."""
    draw = np.random.default_rng(seed)
    arms, d_x = int(draw.integers(*sizes)), int(draw.integers(least, 5))
    points = torch.from_numpy(draw.uniform(-1, 1, (runs, arms, d_x)))
    slope = torch.from_numpy(draw.normal(size=(d_x,)))
    means = torch.sigmoid(2 * points @ slope + points.square().sum(-1) - 0.5)
    return Problem("random", points, means, tuple(range(runs)), seed, 0.3, reward), draw


def rewards(problem, row, steps):
    """The reward of (arm, t) in the run at ``row``."""
    tape = problem.tape(steps)[row : row + 1]

    def reward_of(arm, t):
        return problem.only(row).observe(torch.tensor([[arm]]), tape[:, t : t + 1]).item()

    return reward_of


def assert_same(trace, row, expected):
    assert trace.phase_one == 0
    for name in ("arm", "sync", "up", "down"):
        assert getattr(trace, name)[row].tolist() == getattr(expected, name), name


@pytest.fixture
def watch(monkeypatch):
    """Collects the results of a method, with its arguments."""

    def start(owner, name):
        calls, method = [], getattr(owner, name)

        def watched(*args, **options):
            result = method(*args, **options)
            calls.append(SimpleNamespace(args=args, kwargs=options, result=result))
            return result

        monkeypatch.setattr(owner, name, watched)
        return calls

    return start


# DisLinUCB


def theorem_radius(d_x, known, lam, sigma, delta):
    return sigma * math.sqrt(d_x * math.log(1 + known / (d_x * lam)) + 2 * math.log(1 / delta)) + math.sqrt(
        lam
    )


def plain_dis_lin_ucb(arms, reward_of, clients, steps, lam, gamma, alpha):
    """One client after the other; ``alpha(n)`` is the radius of a client that knows n data."""
    d = arms.shape[1]
    a, b, known = [lam * np.eye(d)] * clients, [np.zeros(d)] * clients, [0] * clients
    new_a, new_b, new = [np.zeros((d, d))] * clients, [np.zeros(d)] * clients, [0] * clients
    server_a, server_b, total = lam * np.eye(d), np.zeros(d), 0
    out = SimpleNamespace(arm=[], sync=[], up=[], down=[])
    for t in range(steps):
        i = t % clients
        inverse = np.linalg.inv(a[i])
        theta = inverse @ b[i]
        index = [x @ theta + alpha(known[i]) * np.sqrt(x @ inverse @ x) for x in arms]
        arm = int(np.argmax(index))
        x, y = arms[arm], reward_of(arm, t)
        a[i], b[i], known[i] = a[i] + np.outer(x, x), b[i] + y * x, known[i] + 1
        new_a[i], new_b[i], new[i] = new_a[i] + np.outer(x, x), new_b[i] + y * x, new[i] + 1
        fired = bool(new[i] * np.log(np.linalg.det(a[i]) / np.linalg.det(a[i] - new_a[i])) > gamma)
        up = down = 0
        if fired:
            for j in range(clients):
                up += new_a[j].size + new_b[j].size
                server_a, server_b, total = server_a + new_a[j], server_b + new_b[j], total + new[j]
            for j in range(clients):
                down += server_a.size + server_b.size
                a[j], b[j], known[j] = server_a, server_b, total
                new_a[j], new_b[j], new[j] = np.zeros((d, d)), np.zeros(d), 0
        for name, value in (("arm", arm), ("sync", fired), ("up", up), ("down", down)):
            getattr(out, name).append(value)
    return out


GAMMAS = (0.0, 0.05, 0.3, 1.0, 5.0, INF)


@pytest.mark.parametrize("delta", [None, 0.1])
@pytest.mark.parametrize("seed", range(12))
def test_dis_lin_ucb_is_its_plain_transcription(seed, delta):
    problem, draw = random_problem(seed)
    clients, steps = int(draw.integers(1, 6)), 41
    settings = Settings(10.0 ** draw.uniform(-2, 1), 10.0 ** draw.uniform(-2, 0.5), GAMMAS[seed % 6])
    trace = dis_lin_ucb(problem, clients, steps, settings, delta)
    d_x = problem.arms.shape[-1]

    def alpha(known):
        if delta is None:
            return math.sqrt(settings.beta)
        return theorem_radius(d_x, known, settings.lam, problem.sigma, delta)

    for row in range(3):
        arms, reward_of = problem.arms[row].numpy(), rewards(problem, row, steps)
        expected = plain_dis_lin_ucb(arms, reward_of, clients, steps, settings.lam, settings.gamma, alpha)
        assert_same(trace, row, expected)


def test_the_random_problems_synchronise_never_sometimes_and_always():
    shares = [
        dis_lin_ucb(random_problem(1)[0], 3, 40, Settings(gamma=g)).sync.double().mean() for g in GAMMAS
    ]
    assert shares[0] == 1 and shares[-1] == 0 and 0.01 < shares[3] < shares[2] < 0.99


@pytest.mark.parametrize(("clients", "gamma"), [(1, INF), (3, 0.0)])
def test_dis_lin_ucb_is_ridge_regression_at_every_step(watch, clients, gamma):
    problem, _ = random_problem(3, runs=1, sizes=(9, 10), least=3)
    arms = problem.arms[0].numpy()
    calls = watch(EventTriggered, "index")
    trace = dis_lin_ucb(problem, clients, 25, Settings(0.7, 0.5, gamma))
    assert len(calls) == 25
    for t, call in enumerate(calls):
        posterior = call.args[1].posterior
        mean, variance = (part[0, t % clients].numpy() for part in (posterior.mean, posterior.variance))
        x, y = arms[trace.arm[0, :t].numpy()], trace.reward[0, :t].numpy()
        theta = Ridge(alpha=0.7, fit_intercept=False).fit(x, y).coef_ if t else np.zeros(arms.shape[1])
        inverse = np.linalg.inv(0.7 * np.eye(arms.shape[1]) + x.T @ x)
        np.testing.assert_allclose(mean, arms @ theta, rtol=0, atol=1e-12)
        np.testing.assert_allclose(variance, np.einsum("kd,de,ke->k", arms, inverse, arms), rtol=1e-11)
        index = call.result[0, t % clients].numpy()
        np.testing.assert_allclose(index, mean + np.sqrt(0.5 * variance), rtol=1e-12)


def test_the_theorem_radius_of_dis_lin_ucb_by_hand(watch):
    arms = torch.tensor([[[1.0, 0.0], [0.0, 0.5]]]).double()
    problem = Problem("two", arms, torch.tensor([[1.0, 0.0]]).double(), (0,), sigma=0.1)
    calls = watch(EventTriggered, "index")
    dis_lin_ucb(problem, 1, 3, Settings(1.0, 99.0, INF), theorem_delta=math.exp(-2))
    radius = []
    for call in calls:
        posterior = call.args[1].posterior
        radius.append(((call.result - posterior.mean) / posterior.variance.sqrt())[0, 0])
    # σ = 0.1, d = 2, λ = 1, 2 ln(1/δ) = 4: 0.1·√4 + 1 at n = 0, 0.1·√(2 ln(1 + 2/2) + 4) + 1 at n = 2
    torch.testing.assert_close(radius[0], torch.full((2,), 1.2).double())
    torch.testing.assert_close(radius[2], torch.full((2,), 1 + 0.1 * math.sqrt(2 * math.log(2) + 4)).double())


def test_a_sync_of_dis_lin_ucb_costs_2n_times_dx_squared_plus_dx():
    trace = dis_lin_ucb(hartmann6(2, arms=5), 4, 8, Settings(gamma=0.0))
    assert (trace.up == 4 * 42).all() and (trace.down == 4 * 42).all()


# Fed-GLB-UCB

MEAN = {"identity": lambda z: z, "logistic": expit}
POTENTIAL = {"identity": lambda z: z**2 / 2, "logistic": lambda z: np.logaddexp(0, z)}  # m with m' = μ
SLOPES = {"identity": (1.0, 1.0), "logistic": (0.1, 0.25)}  # c_μ and the bound on μ'


def plain_descent(data, start, lam, clients, link):
    """Accelerated gradient descent with restart; each client answers with its own sum. Returns θ and rounds."""
    n, d = sum(len(own) for own in data), len(start)
    gram = sum((np.outer(x, x) for own in data for x, _ in own), np.zeros((d, d)))
    smooth = (SLOPES[link][1] * np.linalg.eigvalsh(gram)[-1] + lam) / n
    theta, ahead, weight, rounds = start, start, 1.0, 0
    while True:
        rounds += 1
        gradient = lam * ahead
        for own in data:
            for x, y in own:
                gradient = gradient + x * (MEAN[link](x @ ahead) - y)
        gradient = gradient / n
        # suboptimality ≤ |gradient|²/(2λ/n) ≤ 1/(Nt)²
        if gradient @ gradient / (2 * lam / n) <= 1 / (clients * n) ** 2:
            return ahead, rounds
        new = ahead - gradient / smooth
        if gradient @ (new - theta) > 0:
            weight = 1.0
        following = (1 + math.sqrt(1 + 4 * weight**2)) / 2
        ahead = new + (weight - 1) / following * (new - theta)
        theta, weight = new, following


def plain_fed_glb_ucb(arms, reward_of, clients, steps, lam, beta, gamma, link, warm):
    """One client after the other. ``warm(theta, fitted)``: where the descent starts."""
    d = arms.shape[1]
    eye, zero = np.eye(d), np.zeros((d, d))
    a, b, theta = [lam * eye] * clients, [np.zeros(d)] * clients, [np.zeros(d)] * clients
    new_a, new, data = [zero] * clients, [0] * clients, [[] for _ in range(clients)]
    server_a = lam * eye
    out = SimpleNamespace(arm=[], sync=[], up=[], down=[], theta=[])
    for t in range(steps):
        i = t % clients
        inverse = np.linalg.inv(a[i])
        arm = int(np.argmax([x @ inverse @ b[i] + np.sqrt(beta * (x @ inverse @ x)) for x in arms]))
        x, y = arms[arm], reward_of(arm, t)
        a[i], b[i] = a[i] + np.outer(x, x), b[i] + x * (x @ theta[i])
        theta[i] = theta[i] - np.linalg.solve(a[i], x) * (MEAN[link](x @ theta[i]) - y) / SLOPES[link][0]
        new_a[i], new[i] = new_a[i] + np.outer(x, x), new[i] + 1
        data[i].append((x, y))
        fired = bool(new[i] * np.log(np.linalg.det(a[i]) / np.linalg.det(a[i] - new_a[i])) > gamma)
        up = down = 0
        if fired:
            for j in range(clients):
                up += d * d
                server_a = server_a + new_a[j]
            found, rounds = plain_descent(data, warm(theta, out.theta), lam, clients, link)
            up, down = up + rounds * clients * d, down + rounds * clients * d
            server_b = (server_a - lam * eye) @ found
            for j in range(clients):
                down += server_a.size + server_b.size + found.size
                a[j], b[j], theta[j], new_a[j], new[j] = server_a, server_b, found, zero, 0
            out.theta.append(found)
        for name, value in (("arm", arm), ("sync", fired), ("up", up), ("down", down)):
            getattr(out, name).append(value)
    return out


def warm_start(theta, fitted):
    """The server knows the θ that it fitted last, and nothing of the clients' own."""
    return fitted[-1] if fitted else np.zeros_like(theta[0])


def objective(theta, x, y, lam, link):
    """The regularised loss per datum that a synchronisation minimises."""
    z = x @ theta
    return (POTENTIAL[link](z) - y * z).sum() / len(y) + lam * theta @ theta / (2 * len(y))


def minimiser(x, y, lam, link):
    def slope(theta, *_):
        return (x.T @ (MEAN[link](x @ theta) - y) + lam * theta) / len(y)

    found = minimize(objective, np.zeros(x.shape[1]), (x, y, lam, link), "L-BFGS-B", slope, tol=1e-15)
    assert np.abs(slope(found.x)).max() < 1e-6
    return found.x


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("seed", range(12))
def test_fed_glb_ucb_is_its_plain_transcription(seed, link):
    problem, draw = random_problem(50 + seed, reward="bernoulli" if seed % 2 else "gaussian")
    clients, steps = int(draw.integers(1, 6)), 31
    settings = Settings(10.0 ** draw.uniform(-1, 1), 10.0 ** draw.uniform(-2, 0.5), GAMMAS[seed % 6])
    trace = fed_glb_ucb(problem, clients, steps, settings, link)
    for row in range(3):
        arms, reward_of = problem.arms[row].numpy(), rewards(problem, row, steps)
        lam, beta, gamma = settings.lam, settings.beta, settings.gamma
        expected = plain_fed_glb_ucb(arms, reward_of, clients, steps, lam, beta, gamma, link, warm_start)
        assert_same(trace, row, expected)


@pytest.mark.parametrize("link", LINKS)
def test_every_fit_is_within_its_tolerance_of_the_optimum(watch, link):
    problem, _ = random_problem(77, runs=2, reward="bernoulli", sizes=(9, 10), least=3)
    calls = watch(GeneralisedLinear, "synchronise")
    trace = fed_glb_ucb(problem, 3, 60, Settings(0.5, 0.3, 0.5), link)
    checked = 0
    for call in calls:
        when = call.args[3]
        for run, step in zip(*(part.tolist() for part in when), strict=True):
            x = problem.arms[run, trace.arm[run, : step + 1]].numpy()
            y = trace.reward[run, : step + 1].numpy()
            theta, best = call.result.theta[run, 0].numpy(), minimiser(x, y, 0.5, link)
            excess = objective(theta, x, y, 0.5, link) - objective(best, x, y, 0.5, link)
            assert excess <= 1 / (3 * (step + 1)) ** 2
            if step > 5:  # the tolerance is not met by chance: zero, say, is further off
                assert objective(0 * theta, x, y, 0.5, link) - objective(best, x, y, 0.5, link) > excess
            checked += 1
    assert checked > 6


@pytest.mark.parametrize(
    ("link", "lam"), [("identity", 0.5), ("identity", 5.0), ("logistic", 0.5), ("logistic", 5.0)]
)
def test_the_descent_reaches_the_optimum_of_scikit_learn(watch, link, lam):
    problem, _ = random_problem(78, runs=2, reward="bernoulli", sizes=(9, 10), least=3)
    calls = watch(GeneralisedLinear, "synchronise")
    trace = fed_glb_ucb(problem, 3, 60, Settings(lam, 10.0, 30.0), link)
    run, step = (part[0].item() for part in calls[0].args[3])
    assert 5 < step < 59
    arm, reward = trace.arm[run, : step + 1], trace.reward[run, : step + 1].numpy()
    x, n = problem.arms[run, arm].numpy(), step + 1
    assert set(reward) == {0.0, 1.0}
    if link == "identity":
        theta = Ridge(alpha=lam, fit_intercept=False).fit(x, reward).coef_
    else:
        model = LogisticRegression(C=1 / lam, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
        theta = model.fit(x, reward).coef_[0]
    # |∇F| ≤ √(2(λ/n))/(Nn) where it stops, and the Hessian of F is at least (λ + c·λ_min(XᵀX))/n
    slope = 1.0 if link == "identity" else (expit(x @ theta) * (1 - expit(x @ theta))).min() / 2
    hessian = (lam + slope * np.linalg.eigvalsh(x.T @ x)[0]) / n
    found = calls[0].result.theta[run, 0].numpy()
    assert np.linalg.norm(found - theta) <= np.sqrt(2 * lam / n) / (3 * n) / hessian
    # the same data fitted as by 10⁵ clients, whose tolerance is 10⁻¹⁰/n²
    state, star = calls[0].args[1], Star(3, Ledger.blank(2, 60))
    own = state.own.of(torch.tensor([run]))
    gram = torch.from_numpy(x.T @ x + lam * np.eye(x.shape[1]))[None]
    learner = GeneralisedLinear(10**5, problem.arms, Settings(lam), LINKS[link])
    when = When(torch.tensor([run]), torch.tensor([step]))
    tight = learner._fit(own, gram, torch.zeros(1, x.shape[1]).double(), star.at, when)[0].numpy()
    np.testing.assert_allclose(tight, theta, rtol=0, atol=2e-5)


@pytest.mark.parametrize("link", LINKS)
def test_the_ledger_of_fed_glb_ucb_by_hand(watch, link):
    problem, _ = random_problem(79, runs=1, sizes=(9, 10), least=3)
    asks = watch(Star, "ask")
    trace = fed_glb_ucb(problem, 4, 40, Settings(1.0, 0.3, 1.0), link)
    d, syncs = problem.arms.shape[-1], int(trace.sync.sum())
    booked = torch.zeros(40, dtype=torch.int64)
    for call in asks:
        booked[call.kwargs["when"].step] += 4 * d
    assert syncs > 2 and len(asks) > syncs
    assert torch.equal(trace.up[0], booked + trace.sync[0] * 4 * d * d)
    assert torch.equal(trace.down[0], booked + trace.sync[0] * 4 * (d * d + 2 * d))


# ApproxDisKernelUCB


def gaussian_process(problem, lengthscale, lam, arm, reward):
    """scikit-learn's posterior mean and variance at the arms of run 0."""
    x = problem.arms[0].numpy()
    if not len(arm):
        return np.zeros(len(x)), np.ones(len(x))
    model = GaussianProcessRegressor(RBF(lengthscale, "fixed"), alpha=lam, optimizer=None)
    mean, deviation = model.fit(x[arm.numpy()], reward.numpy()).predict(x, return_std=True)
    return mean, deviation**2


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


def plain_posterior(kernel, members, counts, sums, lam):
    """Mean and σ² of all arms in the features K_ZZ^{-1/2}k_Z, dense."""
    if not len(members):
        return np.zeros(len(kernel)), np.full(len(kernel), 1 / lam)
    values, vectors = np.linalg.eigh(kernel[np.ix_(members, members)])
    phi = kernel[:, members] @ vectors @ np.diag(values**-0.5) @ vectors.T
    a = lam * np.eye(len(members)) + sum(n * np.outer(p, p) for n, p in zip(counts, phi, strict=True))
    mean = phi @ np.linalg.solve(a, sums @ phi)
    rest = np.diag(kernel) - (phi * phi).sum(1)
    return mean, rest / lam + (phi * np.linalg.solve(a, phi.T).T).sum(1)


def plain_kernel_ucb(problem, row, reward_of, clients, steps, settings, lengthscale, oversampling):
    """One client after the other; every posterior from scratch."""
    x, seed, number = problem.arms[row].numpy(), problem.seed, problem.runs[row]
    (arms, d_x), lam = x.shape, settings.lam
    kernel = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * lengthscale**2))
    source = generator(seed, number, "order of ties")
    order = torch.rand(clients, arms, generator=source, dtype=torch.float64).numpy()
    own = [(np.zeros(arms), np.zeros(arms)) for _ in range(clients)]
    shared = (np.zeros(arms), np.zeros(arms))  # all data at the last synchronisation
    kept = [(np.zeros(arms), np.zeros(arms)) for _ in range(clients)]  # own data at the last synchronisation
    members, spent = np.array([], dtype=int), [0.0] * clients
    before = np.full(arms, 1 / lam)
    out = SimpleNamespace(arm=[], sync=[], up=[], down=[], members=[])

    def posterior(j):
        counts, sums = (s + o - k for s, o, k in zip(shared, own[j], kept[j], strict=True))
        return plain_posterior(kernel, members, counts, sums, lam)

    for t in range(steps):
        i = t % clients
        mean, variance = posterior(i)
        arm = int(np.argmax(mean + np.sqrt(settings.beta * variance) + 1e-9 * order[i]))
        y, hit = reward_of(arm, t), np.eye(arms)[arm]
        own[i] = (own[i][0] + hit, own[i][1] + y * hit)
        spent[i] += before[arm]
        fired, up, down = bool(spent[i] > settings.gamma), 0, 0
        if fired:
            source = generator(seed, number, f"dictionary at {t}")
            uniform = torch.rand(clients, arms, generator=source, dtype=torch.float64).numpy()
            chosen = set()
            for j in range(clients):
                variance = posterior(j)[1]
                for k in range(arms):
                    keep = 1.0
                    for _ in range(int(own[j][0][k])):
                        keep *= 1 - min(1.0, oversampling * variance[k])
                    if uniform[j, k] < 1 - keep:
                        chosen.add(k)
                        up += d_x
            members = np.array(sorted(chosen), dtype=int)
            m = len(members)
            for _ in range(clients):
                down += m * d_x
                up += m * m + m
                down += m * m + m
            shared = tuple(sum(parts) for parts in zip(*own, strict=True))
            kept, spent = list(own), [0.0] * clients
            before = posterior(0)[1]
            out.members.append((t, members))
        for name, value in (("arm", arm), ("sync", fired), ("up", up), ("down", down)):
            getattr(out, name).append(value)
    return out


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


def test_dictionaries_of_the_transcription_are_neither_empty_nor_full():
    problem, _ = random_problem(201, sizes=(11, 12))
    settings = Settings(0.3, 0.5, 1.0)
    plain = plain_kernel_ucb(problem, 0, rewards(problem, 0, 60), 4, 60, settings, 0.4, 0.3)
    counts = np.bincount(plain.arm)
    assert any(0 < len(members) < (counts > 0).sum() for _, members in plain.members)


def test_partial_dictionaries_keep_the_variance_of_the_formula(watch):
    problem, _ = random_problem(201, sizes=(11, 12))
    calls = watch(NystroemKernel, "synchronise")
    settings, rows = Settings(0.3, 0.5, 1.0), 0
    approx_dis_kernel_ucb(problem, 4, 60, settings, 0.4, 0.3)
    for call in calls:
        for run in call.args[3].run.tolist():
            state, kernel = call.result, call.args[0].kernel[run].numpy()
            # a member's prior is its own feature: k − φᵀφ = 0 (up to the jitter) for it alone
            members = np.flatnonzero(state.rest[run, 0].numpy() * settings.lam < 1e-8)
            counts, sums = (part[run].sum(0).numpy() for part in state.own)
            mean, variance = plain_posterior(kernel, members, counts, sums, settings.lam)
            found = state.posterior.variance[run, 2] + state.rest[run, 2]
            np.testing.assert_allclose(found.numpy(), variance, rtol=1e-6)
            np.testing.assert_allclose(state.posterior.mean[run, 2].numpy(), mean, rtol=0, atol=1e-6)
            rows += 0 < len(members) < len(kernel)
    assert rows > 3


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


def test_the_ledger_of_approx_dis_kernel_ucb_by_hand():
    for seed in range(20):
        draw = np.random.default_rng(seed)
        problem = Problem(
            "p", torch.from_numpy(draw.random((1, 9, 2))), torch.zeros(1, 9).double(), (0,), seed
        )
        # every pull has σ² = 1/λ = 1: client 0 of 3 exceeds 1.5 at its second pull, step 3
        trace = approx_dis_kernel_ucb(problem, 3, 4, Settings(1.0, 1.0, 1.5), 0.2, 1.0)
        assert trace.sync[0].tolist() == [False, False, False, True]
        assert trace.arm[0, 0] == trace.arm[0, 3]  # nothing was learnt in between
        if len(set(trace.arm[0].tolist())) == 3:
            break
    # 3 arms of 2 coordinates up; m = 3 members of 2 coordinates to 3 clients down; 3·(9 + 3) up and down
    assert trace.up[0].tolist() == [0, 0, 0, 6 + 36]
    assert trace.down[0].tolist() == [0, 0, 0, 18 + 36]


# Controls


def test_ucb1_by_hand(watch):
    means = torch.tensor([[0.1, 0.5, 0.9]]).double()
    problem = Problem("three", torch.zeros(1, 3, 1).double(), means, (0,), sigma=0.0)
    calls = watch(EventTriggered, "index")
    trace = shared_ucb1(problem, 4, 7, Settings(beta=1.0))
    # after one pull each, in the seeded order: 0.1, 0.5, 0.9 + √(2 ln 3) → 2;
    # then 1.765, 2.165, 0.9 + √(ln 4) = 2.077 → 1;
    # then 1.894, 1.769, 0.9 + √(ln 5) = 2.169 → 2
    assert sorted(trace.arm[0, :3].tolist()) == [0, 1, 2]
    assert trace.arm[0, 3:6].tolist() == [2, 1, 2]
    index = [
        0.1 + math.sqrt(2 * math.log(6)),
        0.5 + math.sqrt(math.log(6)),
        0.9 + math.sqrt(2 * math.log(6) / 3),
    ]
    torch.testing.assert_close(calls[6].result[0, 0], torch.tensor(index).double())
    assert (trace.up == 2).all() and (trace.down == 2 * 4).all()


def test_ucb1_shares_noisy_means_of_all_clients_with_the_given_width(watch):
    problem = hartmann6(1, arms=4)
    calls = watch(EventTriggered, "index")
    trace = shared_ucb1(problem, 3, 40, Settings(beta=0.3))
    for t in range(4, 40):
        arm, reward = trace.arm[0, :t], trace.reward[0, :t]
        pulls = torch.bincount(arm, minlength=4)
        mean = torch.stack([reward[arm == k].mean() for k in range(4)])
        torch.testing.assert_close(calls[t].result[0, 0], mean + (0.6 * math.log(t) / pulls).sqrt())
        assert trace.arm[0, t] == calls[t].result[0, 0].argmax()


def test_exact_kernel_ucb_is_scikit_learns_gaussian_process(watch):
    problem, _ = random_problem(203, runs=1, sizes=(11, 12), least=2)
    calls = watch(EventTriggered, "index")
    trace = exact_kernel_ucb(problem, 3, 30, Settings(0.1, 0.5), 0.7)
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
    trace = uniform_random(hartmann6(20, arms=10), 4, 1000)
    assert not trace.communication.any() and not trace.sync.any()
    counts = torch.bincount(trace.arm.flatten(), minlength=10)
    assert ((counts - 2000).square() / 2000).sum() < 28  # χ² with 9 degrees of freedom, p ≈ 0.001
    assert not torch.equal(trace.arm[0], trace.arm[1])


def hill(runs=1):
    """Ten arms on a line, the best at 0.7."""
    x = torch.linspace(0, 1, 10).double().expand(runs, 10).unsqueeze(-1)
    return Problem("hill", x, 1 - 4 * (x[..., 0] - 0.7).square(), tuple(range(runs)), sigma=0.05)


def test_botorchs_gp_ucb_is_a_valid_trace_that_beats_uniform_play():
    problem = hill()
    trace, blind = gp_ucb(problem, 3, 25, 2.0, first=6, refit=8), uniform_random(problem, 3, 25)
    assert (
        trace.arm.shape == (1, 25) and trace.phase_one == 0 and 0 <= trace.arm.min() <= trace.arm.max() < 10
    )
    torch.testing.assert_close(trace.regret, problem.regret(trace.arm))
    torch.testing.assert_close(trace.reward, problem.observe(trace.arm, problem.tape(25)))
    assert (trace.up == 2).all() and (trace.down == 6).all() and trace.sync.all()
    assert trace.regret[0, 6:].mean() < 0.3 * blind.regret.mean()
    assert trace.regret[0, -5:].max() < 0.02  # at the best arm, 0.667, or at its neighbour


def test_a_run_of_botorchs_gp_ucb_alone_is_that_run_in_a_batch():
    problem = hill(2)
    batch, alone = (gp_ucb(p, 3, 14, 2.0, first=6, refit=4) for p in (problem, problem.only(1)))
    assert torch.equal(alone.arm[0], batch.arm[1])


def test_botorchs_gp_ucb_warns_of_nothing_outside_the_unit_cube():
    trace = gp_ucb(cosine8(1, arms=8), 2, 14, 2.0, first=8, refit=3)
    assert trace.arm.shape == (1, 14)


def test_botorchs_gp_ucb_plays_uniformly_while_all_rewards_are_equal():
    problem = Problem("zero", hill().arms, torch.zeros(1, 10).double(), (0,), reward="bernoulli")
    few, more = (gp_ucb(problem, 2, 14, 2.0, first=first) for first in (3, 14))
    assert torch.equal(few.arm, more.arm)


# Everything in the table of experiments


@pytest.fixture(scope="module")
def tiny():
    world = World(hartmann6(3, arms=8), 3, 6)
    return world, {name: own.run(world, middle(own)) for name, own in ALGORITHMS.items()}


def middle(algorithm):
    return algorithm.grid[len(algorithm.grid) // 2]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_meets_the_same_noise_in_t0_plus_nt_steps(tiny, name):
    world, traces = tiny
    trace, problem = traces[name], world.problem
    assert trace.algorithm == name and trace.problem == "Hartmann6" and trace.clients == 3
    assert trace.arm.shape == (3, 5 + 18) and world.steps == 23  # T₀ = ⌈√18⌉
    noise = trace.reward - problem.means.gather(1, trace.arm)
    torch.testing.assert_close(noise, problem.sigma * problem.tape(23), rtol=0, atol=1e-12)
    torch.testing.assert_close(trace.regret, problem.means.amax(1, True) - problem.means.gather(1, trace.arm))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_of_every_algorithm_alone_is_that_run_in_a_batch(tiny, name):
    world, traces = tiny
    alone = ALGORITHMS[name].run(World(world.problem.only(2), 3, 6), middle(ALGORITHMS[name]))
    for part in ("arm", "up", "down", "sync"):
        assert torch.equal(getattr(alone, part)[0], getattr(traces[name], part)[2]), part
    torch.testing.assert_close(alone.reward[0], traces[name].reward[2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [*ALGORITHMS, "GP-UCB (BoTorch)"])
def test_only_the_tape_is_drawn_from_the_generator_of_the_noise(watch, monkeypatch, name):
    monkeypatch.setattr("fedgo.phase_one.Langevin", lambda: Langevin(rounds=3))
    drawn, tapes = watch(Problem, "generators"), watch(Problem, "tape")
    if name in ALGORITHMS:
        ALGORITHMS[name].run(World(hartmann6(1, arms=4), 2, 2), middle(ALGORITHMS[name]))
    else:
        gp_ucb(hill(), 2, 6, 2.0, first=5)
    assert [call.args[1] for call in drawn].count("noise") == len(tapes) >= 1


def test_baselines_alone_and_in_a_batch_that_synchronises_at_different_times():
    problem, settings = hartmann6(6, arms=9), Settings(0.2, 0.3, 0.5)
    for algorithm in (dis_lin_ucb, fed_glb_ucb, approx_dis_kernel_ucb):
        batch = algorithm(problem, 3, 60, settings)
        assert batch.sync.any(1).all() and len(batch.sync.double().unique(dim=0)) > 1, algorithm
        for run in range(6):
            alone = algorithm(problem.only(run), 3, 60, settings)
            for part in ("arm", "up", "down", "sync"):
                assert torch.equal(getattr(alone, part)[0], getattr(batch, part)[run]), (algorithm, part)


def test_every_algorithm_plays_bernoulli_rewards():
    world = World(clustered("magic", 2, reward="bernoulli"), 2, 4)
    for algorithm in ALGORITHMS.values():
        reward = algorithm.run(world, middle(algorithm)).reward
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


def test_a_descent_that_does_not_arrive_is_an_error(monkeypatch):
    monkeypatch.setattr("fedgo.algorithms.fed_glb_ucb.MOST_ROUNDS", 2)
    with pytest.raises(ArithmeticError, match="2 rounds; raise λ"):
        fed_glb_ucb(hartmann6(1, arms=5), 2, 20, Settings(0.01, 1.0, 0.0), "logistic")


def test_tallies_of_the_own_data_survive_a_synchronisation(watch):
    calls = watch(GeneralisedLinear, "synchronise")
    trace = fed_glb_ucb(hartmann6(1, arms=5), 2, 20, Settings(1.0, 1.0, 0.0))
    last: Tally = calls[-1].result.own
    for client in range(2):
        own = trace.arm[0, client::2]
        assert torch.equal(last.counts[0, client], torch.bincount(own, minlength=5).double())
    assert not calls[-1].result.fresh.any()
