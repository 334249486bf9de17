"""Theorem K against a plain transcription with k⁻¹; coverage against three adversaries; a norm that is no bound."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedgo import Exploration, Problem
from fedgo.beyond.guarantees.guarantee import Guarantee, guarded, malicious
from fedgo.beyond.guarantees.kernel import KernelIntervals
from fedgo.confidence import Tally
from fedgo.theory.regret import regret_phase_two_clipped, synchronisations

SIGMA, NORM, DELTA, GAMMA, CLIENTS, ROUNDS = 0.3, 2.0, 0.3, 1.0, 3, 16
POINTS = np.linspace(0, 1, 6)
KERNEL = np.exp(-((POINTS[:, None] - POINTS) ** 2) / 0.18) + 0.01 * np.eye(6)
VALUE = NORM * math.sqrt(KERNEL.diagonal().max())


def plain_intervals(n, total, syncs, clients=CLIENTS, norm=NORM):
    """[L, U] and √V for counts and sums (S, K): the kernel's interval and the counts', both at δ/2."""
    union = math.pi**2 * clients * (syncs + 1.0) ** 2 / 6 if clients > 1 else np.ones(len(n))
    precision = np.linalg.inv(KERNEL) + n[:, None, :] * np.eye(6) / SIGMA**2
    variance = np.linalg.inv(precision)
    mean = (variance @ total[..., None])[..., 0] / SIGMA**2
    information = np.linalg.slogdet(precision @ KERNEL)[1]
    spread = np.sqrt(variance.diagonal(axis1=1, axis2=2))
    radius = np.sqrt(information + 2 * np.log(2 * union / DELTA)) + norm
    with np.errstate(divide="ignore", invalid="ignore"):
        h = SIGMA * np.sqrt(np.log1p(n) + 2 * np.log(2 * 6 * union / DELTA)[:, None])
        centre, c = np.nan_to_num(total / n), h * np.sqrt(n + 1) / n
    lower = np.maximum(np.maximum(mean - radius[:, None] * spread, centre - c), -VALUE)
    upper = np.minimum(np.minimum(mean + radius[:, None] * spread, centre + c), VALUE)
    return lower, upper, spread, radius


def plain_play(adversary, runs, kappa, norm=NORM, seed=0):
    """A guard of price κ for three clients, in all runs at once. The adversary knows f and all noise so far."""
    draw, row = np.random.default_rng(seed), np.arange(runs)
    w = draw.normal(size=(runs, 6))
    f = w @ np.linalg.cholesky(KERNEL).T * (NORM / np.linalg.norm(w, axis=1, keepdims=True))
    server, fresh = np.zeros((2, runs, 6)), np.zeros((CLIENTS, 2, runs, 6))  # counts and sums
    noise, pulls, gain = np.zeros((runs, 6)), np.zeros((CLIENTS, runs)), np.zeros((CLIENTS, runs))
    syncs, most, sums = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    missed, below = np.zeros(runs, bool), np.zeros(runs, bool)
    for t in range(CLIENTS * ROUNDS):
        i = t % CLIENTS
        n, total = server + fresh[i]
        lower, upper, spread, radius = plain_intervals(n, total, syncs, norm=norm)
        missed |= ((lower > f + 1e-9) | (upper < f - 1e-9)).any(1)
        others = np.where(np.eye(6, dtype=bool), -np.inf, upper[:, None, :]).max(2)
        price = np.maximum(0, others - lower)
        accepted = price <= kappa * (upper - lower)
        strays = np.abs(noise) / np.sqrt(1 + n)
        away = np.where(n > 0, np.abs(total / np.maximum(n, 1) - f) * np.sqrt(n), 9.0)
        wish = {"the worst": -f, "strays": strays, "the noise's scale": away}[adversary]
        arm = np.where(accepted.any(1), np.where(accepted, wish, -np.inf).argmax(1), upper.argmax(1))
        q, regret = price[row, arm], f.max(1) - f[row, arm]
        below |= regret > q + 1e-9
        sums, most = sums + q, np.maximum(most, radius)
        scale = SIGMA * np.where((adversary == "the noise's scale") & (noise[row, arm] > 0.1), 0.2, 1.0)
        eta = scale * draw.normal(size=runs)
        noise[row, arm] += eta
        gain[i] += np.log1p(spread[row, arm] ** 2 / SIGMA**2)
        pulls[i] += 1
        fresh[i, 0, row, arm] += 1
        fresh[i, 1, row, arm] += f[row, arm] + eta
        fired = pulls[i] * gain[i] > GAMMA
        server[:, fired] += fresh[:, :, fired].sum(0)
        fresh[:, :, fired], pulls[:, fired], gain[:, fired] = 0, 0, 0
        syncs = syncs + fired
    n, total = server + fresh.sum(0)
    information = np.linalg.slogdet(np.eye(6) + KERNEL * n[:, None, :] / SIGMA**2)[1]
    return SimpleNamespace(
        missed=missed,
        below=below,
        sums=sums,
        most=most,
        information=information,
        syncs=syncs,
        n=n,
        total=total,
    )


ADVERSARIES = {"the worst": 4.0, "strays": 64.0, "the noise's scale": 64.0}


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_intervals_cover_and_items_2_to_4_hold_whoever_proposes(adversary):
    kappa = ADVERSARIES[adversary]
    played = plain_play(adversary, 2000, kappa)
    assert played.missed.mean() < DELTA / 4 and not (played.below & ~played.missed).any()
    widest = math.sqrt(KERNEL.diagonal().max()) / SIGMA
    for row in range(0, 2000, 20):
        information, beta = played.information[row], (kappa * SIGMA * played.most[row]) ** 2
        bound = regret_phase_two_clipped(beta, information, CLIENTS, ROUNDS, GAMMA, VALUE, widest=widest)
        assert played.sums[row] <= bound.total * (1 + 1e-9)
        assert played.syncs[row] <= synchronisations(ROUNDS, information, GAMMA)


def intervals(clients, **changed):
    told = {"features": torch.linalg.cholesky(torch.from_numpy(KERNEL)), "norm": NORM} | changed
    return KernelIntervals(clients, SIGMA, VALUE, DELTA, **told)


@pytest.mark.parametrize("clients", [1, CLIENTS])
def test_the_intervals_are_their_plain_transcription(clients):
    played = plain_play("the worst", 50, 4.0)
    syncs = played.syncs if clients > 1 else 0 * played.syncs
    lower, upper, spread, _ = plain_intervals(played.n, played.total, syncs, clients)
    known = Tally(*(torch.from_numpy(each).unsqueeze(1) for each in (played.n, played.total)))
    got = intervals(clients).after(known, torch.from_numpy(syncs).long().unsqueeze(1), shared=known)
    for ours, theirs in zip(got, (lower, upper, np.log1p(spread**2 / SIGMA**2)), strict=True):
        np.testing.assert_allclose(ours[:, 0], theirs, rtol=1e-8, atol=1e-8)
    counted = Guarantee(VALUE, SIGMA, DELTA / 2).intervals(clients)
    plain = counted.after(known, torch.from_numpy(syncs).long().unsqueeze(1), shared=known)
    assert (got.upper - got.lower <= plain.upper - plain.lower).all()


def test_a_guard_with_a_kernel_certifies_many_arms_after_few_pulls_and_refutes_a_norm_that_is_none():
    arms = torch.linspace(0, 1, 400).double()
    features = torch.cos(math.pi * arms.unsqueeze(1) * torch.arange(5)) * 0.5 ** torch.arange(5)
    means = (features @ torch.tensor([0.3, 1.0, 0.0, 0.5, 0.0]).double()).expand(3, -1)
    best = {}
    for size, norm in ((1.0, 1.2), (50.0, 1.2), (1.0, None)):
        told, nothing = Guarantee(2 * size, 0.05, gamma=1.0), Exploration.nothing(3)
        problem = Problem("K", arms.expand(3, -1).unsqueeze(-1), size * means, (0, 1, 2), 0, sigma=0.05)
        rule = told.intervals(1)
        if norm is not None:
            rule = KernelIntervals(1, 0.05, told.value, features=features, norm=norm)
        evil = replace(malicious(problem, nothing, 1, told), intervals=rule)
        trace = guarded("K", problem, evil, nothing, 1, 60, told, intervals=rule)
        certificate, refuted = trace.notes["certificate"], trace.notes["refuted"].any(1)
        if size == 1:
            assert not refuted.any() and (trace.regret <= certificate + 1e-12).all()
            best[norm] = certificate.amin(1)
        else:
            assert refuted.all()
    assert (best[1.2] < 0.5).all() and (best[None] == 4).all()


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"norm": -1.0}, "norm is -1.0: give B"),
        ({"norm": math.inf}, "norm is inf: give B"),
        ({"features": torch.zeros(3)}, r"features is \(3,\): give a finite row"),
        ({"features": torch.full((2, 2), math.nan)}, "features is .*: give a finite row"),
    ],
)
def test_what_is_no_kernel_or_no_norm_is_refused(changed, match):
    with pytest.raises(ValueError, match=match):
        intervals(1, **changed)
