"""Bad input: one error that names the value received and the remedy, before any work.

A row is a call, the kind of the error, and what its message must have: the value as received, and a word of the remedy.
"""

import re

import numpy as np
import pytest
import torch

import fedgo
from fedgo import (
    Exploration,
    Langevin,
    Network,
    Problem,
    Settings,
    SingleUnit,
    Trace,
    approx_dis_kernel_ucb,
    clustered,
    cosine8,
    counted_ucb1,
    dis_lin_ucb,
    evaluate,
    exact_kernel_ucb,
    fed_glb_ucb,
    fed_go_ucb,
    gp_ucb,
    hartmann6,
    n_go_ucb,
    one_go_ucb,
    phase_one_length,
    private_start,
    realizable,
    shared_start,
    shared_ucb1,
    uniform_random,
)
from fedgo.beyond.continuum import Cube, search
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.epochs import Event, Growing, each_arm, surrogate_ucb
from fedgo.beyond.guard import Guarantee, guarded, guarded_fed_go_ucb
from fedgo.beyond.optimist import exact_go_ucb
from fedgo.beyond.surrogates import ByEvidence, GaussianProcess, LinearisedOnce, Relinearised
from fedgo.confidence import Posterior, Tally, ball, first_order
from fedgo.experiments.comparison import tuned, world
from fedgo.experiments.fitted_kernel import fitted_kernel_ucb
from fedgo.experiments.fn_ucb import fn_ucb
from fedgo.federation import Client, Plan, Server
from fedgo.federation.local import at_random
from fedgo.messages import scalars
from fedgo.phase_one import deal
from fedgo.star import Ledger, Message, Star, When
from fedgo.theory.confidence import radius
from fedgo.theory.interpolation import interpolate

NAN, INF = float("nan"), float("inf")
DRAW = torch.Generator().manual_seed(0)
ARMS = torch.rand(2, 3, 4, generator=DRAW, dtype=torch.float64)
MEANS = torch.rand(2, 3, generator=DRAW, dtype=torch.float64)
PROBLEM = Problem("p", ARMS, MEANS, (0, 1))
SMALL, QUICK = Network(4, 2), Langevin(rounds=2)
SHARED = shared_start(PROBLEM, SMALL, 2, 2, QUICK)
PACKED = shared_start(PROBLEM, SMALL, 2, 2, QUICK, encoding="counts")
PRIVATE = private_start(PROBLEM, SMALL, 2, 2, QUICK)
PLAIN = Settings()
SAFE = Guarantee(1.0, 0.1)
LINEAR = Plan(ARMS[0], clients=2)
CUBE = Cube("c", 2, lambda x: x.sum(-1))
ONE = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
BLANK = torch.zeros(2, 3, dtype=torch.int64)
TRACE = {
    **{
        "algorithm": "a",
        "problem": "p",
        "clients": 2,
        "phase_one": 1,
        "arm": BLANK,
        "reward": BLANK.double(),
    },
    **{"regret": BLANK.double(), "up": BLANK, "down": BLANK, "sync": BLANK.bool()},
}


def nan_at(values, *place):
    broken = values.clone()
    broken[place] = NAN
    return broken


def problem(**changes):
    return Problem(**({"name": "p", "arms": ARMS, "means": MEANS, "runs": (0, 1)} | changes))


def trace(**changes):
    return Trace(**(TRACE | changes))


def bound(**changes):
    known = {"clients": 1, "lam": 1.0, "sigma": 1.0, "distance": 1.0, "curvature": 1.0, "delta": 0.1}
    return radius(MEANS, MEANS, 0, **(known | changes))


V, T = ValueError, TypeError
TABLE = [
    # the problem
    (lambda: problem(arms=ARMS.numpy()), T, r"arms is array.*ndarray.*torch\.as_tensor"),
    (lambda: problem(arms=ARMS.tolist()), T, r"arms is \[.*list.*torch\.as_tensor"),
    (lambda: problem(means=MEANS.numpy()), T, r"means is array.*torch\.as_tensor"),
    (lambda: problem(means=None), T, r"means is None.*torch\.as_tensor"),
    (lambda: problem(arms=nan_at(ARMS, 0, 1, 2)), V, r"arms\[0, 1, 2\] is nan.*finite"),
    (lambda: problem(arms=ARMS / 0), V, r"arms\[0, 0, 0\] is inf.*finite"),
    (lambda: problem(means=nan_at(MEANS, 1, 2)), V, r"means\[1, 2\] is nan.*finite"),
    (lambda: problem(means=-MEANS / 0), V, r"means\[0, 0\] is -inf.*finite"),
    (lambda: problem(arms=ARMS.float()), V, "arms is torch.float32.*float64"),
    (lambda: problem(arms=ARMS.long()), V, "arms is torch.int64.*float64"),
    (lambda: problem(means=MEANS.to(torch.complex128)), V, "complex128.*float64"),
    (lambda: problem(arms=ARMS.to("meta")), V, r"device of arms is 'meta'.*cpu\(\)"),
    (lambda: problem(arms=ARMS.to_sparse()), V, r"layout of arms is torch.sparse_coo.*to_dense"),
    (lambda: problem(arms=ARMS[0]), V, r"arms is \(3, 4\).*\(S, K, d_x\)"),
    (lambda: problem(arms=ARMS[:, :0], means=MEANS[:, :0]), V, r"arms is \(2, 0, 4\).*at least 1"),
    (lambda: problem(means=MEANS[:, :2]), V, r"means is \(2, 2\).*\(2, 3\)"),
    (lambda: problem(runs=2), T, r"runs is 2 \(int\).*tuple"),
    (lambda: problem(runs=[0, 1]), T, r"runs is \[0, 1\].*tuple"),
    (lambda: problem(runs=(0, 1, 2)), V, r"shape of arms is \(2, 3, 4\).*S = 3"),
    (lambda: problem(runs=(0, 0)), V, r"runs is \(0, 0\).*once"),
    (lambda: problem(runs=(0, -1)), V, "runs is -1.*from 0"),
    (lambda: problem(runs=(0, 1.0)), T, r"runs is 1\.0.*whole number"),
    (lambda: problem(runs=(0, True)), T, "runs is True.*whole number"),
    (lambda: problem(seed=-1), V, "seed is -1.*at least 0"),
    (lambda: problem(seed=1.5), T, r"seed is 1\.5.*whole number"),
    (lambda: problem(seed=True), T, "seed is True.*whole number"),
    (lambda: problem(seed="0"), T, "seed is '0'.*whole number"),
    (lambda: problem(sigma=-0.1), V, r"sigma is -0\.1.*at least 0"),
    (lambda: problem(sigma=NAN), V, "sigma is nan.*finite"),
    (lambda: problem(sigma=INF), V, "sigma is inf.*finite"),
    (lambda: problem(sigma="small"), T, "sigma is 'small'.*number"),
    (lambda: problem(sigma=None), T, "sigma is None.*number"),
    (lambda: problem(sigma=True), T, "sigma is True.*number"),
    (lambda: problem(reward="poisson"), V, "'poisson'.*bernoulli"),
    (lambda: problem(means=1 + MEANS, reward="bernoulli"), V, r"range of means.*\[0, 1\]"),
    (lambda: problem(means=-MEANS, reward="bernoulli"), V, r"range of means.*\[0, 1\]"),
    (lambda: PROBLEM.rescaled(0.0, 0.0), V, r"scale is 0\.0.*positive"),
    (lambda: PROBLEM.rescaled(0.0, -2.0), V, r"scale is -2\.0.*positive"),
    (lambda: PROBLEM.rescaled(NAN, 1.0), V, "centre is nan.*finite"),
    (lambda: PROBLEM.rescaled("0", 1.0), T, "centre is '0'.*number"),
    (lambda: problem(reward="bernoulli").rescaled(0.0, 1.0), V, "reward is 'bernoulli'.*Gaussian"),
    # makers of problems
    (lambda: hartmann6(0), V, "runs is 0.*at least one"),
    (lambda: hartmann6([]), V, r"runs is \[\].*at least one"),
    (lambda: hartmann6([-1]), V, "runs is -1.*from 0"),
    (lambda: hartmann6([0, 0]), V, r"runs is \(0, 0\).*once"),
    (lambda: hartmann6(2.0), T, r"runs is 2\.0.*whole number"),
    (lambda: hartmann6(np.float64(2)), T, r"runs is .*2\.0.*whole number"),
    (lambda: hartmann6(True), T, "runs is True.*whole number"),
    (lambda: hartmann6("3"), T, "runs is '3'.*whole number"),
    (lambda: hartmann6(None), T, "runs is None.*whole number"),
    (lambda: hartmann6(1, arms=0), V, "arms is 0.*at least one"),
    (lambda: hartmann6(1, arms=2.5), T, r"arms is 2\.5.*whole number"),
    (lambda: hartmann6(1, seed=-1), V, "seed is -1.*at least 0"),
    (lambda: hartmann6(1, seed=0.5), T, r"seed is 0\.5.*whole number"),
    (lambda: hartmann6(1, sigma=-0.1), V, r"sigma is -0\.1.*at least 0"),
    (lambda: hartmann6(1, sigma="0.1"), T, r"sigma is '0\.1'.*number"),
    (lambda: cosine8(1, arms=-4), V, "arms is -4.*at least one"),
    (lambda: cosine8(1, seed=None), T, "seed is None.*whole number"),
    (lambda: realizable(SMALL, 0), V, "runs is 0.*at least one"),
    (lambda: realizable(SMALL, 1, arms=0), V, "arms is 0.*at least one"),
    (lambda: realizable(SMALL, 1, scale="1"), T, "scale is '1'.*number"),
    (lambda: realizable(SMALL, 1, scale=NAN), V, "scale is nan"),
    (lambda: realizable(SMALL, 1, seed=-2), V, "seed is -2.*at least 0"),
    (lambda: clustered("iris", 1), V, "'iris'.*magic.*shuttle"),
    (lambda: clustered("magic", 1, reward="poisson"), V, "'poisson'.*bernoulli"),
    (lambda: clustered("magic", 0), V, "runs is 0.*at least one"),
    (lambda: clustered("magic", 1, sigma=NAN), V, "sigma is nan.*finite"),
    # the network
    (lambda: Network(0), V, "d_x is 0.*at least 1"),
    (lambda: Network(2.0), T, r"d_x is 2\.0.*whole number"),
    (lambda: Network(6, 0), V, "hidden is 0.*at least one"),
    (lambda: Network(6, 2.5), T, r"hidden is 2\.5.*whole number"),
    (lambda: Network("6"), T, "d_x is '6'.*whole number"),
    (lambda: SingleUnit(0), V, "d_x is 0.*at least 1"),
    (lambda: SingleUnit(None), T, "d_x is None.*whole number"),
    (lambda: Network(6).values(torch.zeros(7), torch.zeros(2, 6)), V, r"w is \(7,\).*201"),
    (lambda: SMALL.values(SHARED.w0, ARMS[..., :3].unsqueeze(1)), V, r"x is \(2, 1, 3, 3\).*4"),
    (lambda: SMALL.gradients(SHARED.w0, ARMS[..., :3].unsqueeze(1)), V, r"x is \(2, 1, 3, 3\).*4"),
    # settings
    (lambda: Settings(lam=0.0), V, r"lam is 0\.0.*positive"),
    (lambda: Settings(lam=-1), V, "lam is -1.*positive"),
    (lambda: Settings(lam=NAN), V, "lam is nan.*λ > 0"),
    (lambda: Settings(lam=INF), V, "lam is inf.*positive"),
    (lambda: Settings(lam="1"), T, "lam is '1'.*number"),
    (lambda: Settings(lam=None), T, "lam is None.*number"),
    (lambda: Settings(lam=True), T, "lam is True.*number"),
    (lambda: Settings(lam=torch.tensor(1.0)), T, "lam is tensor.*number"),
    (lambda: Settings(beta=-1.0), V, r"beta is -1\.0.*at least 0"),
    (lambda: Settings(beta=NAN), V, "beta is nan.*β ≥ 0"),
    (lambda: Settings(beta=INF), V, "beta is inf.*finite"),
    (lambda: Settings(beta="wide"), T, "beta is 'wide'.*number"),
    (lambda: Settings(gamma=-0.5), V, r"gamma is -0\.5.*at least 0"),
    (lambda: Settings(gamma=NAN), V, "gamma is nan"),
    (lambda: Settings(gamma=None), T, "gamma is None.*number"),
    (lambda: Settings(encoding="zip"), V, r"encoding is 'zip'.*'dense'.*'cheapest'"),
    (lambda: Settings(encoding=None), V, r"encoding is None.*'dense'"),
    (lambda: Langevin(rounds=0), V, "rounds is 0.*at least one"),
    (lambda: Langevin(rounds=2.5), T, r"rounds is 2\.5.*whole number"),
    (lambda: Langevin(rounds="many"), T, "rounds is 'many'.*whole number"),
    (lambda: Langevin(step=-0.1), V, r"step is -0\.1.*positive"),
    (lambda: Langevin(step=INF), V, "step is inf.*positive"),
    (lambda: Langevin(step=NAN), V, "step is nan.*positive"),
    (lambda: Langevin(step=None), T, "step is None.*number"),
    (lambda: Langevin(hot=10.0, cold=1.0), V, r"\(10\.0, 1\.0\).*hot ≤ cold"),
    (lambda: Langevin(hot=0.0), V, r"\(0\.0, .*0 < hot"),
    (lambda: Langevin(cold="1e5"), T, "cold is '1e5'.*number"),
    # Phase I
    (lambda: phase_one_length(0, 10), V, "clients is 0.*at least one"),
    (lambda: phase_one_length(10, 0), V, "rounds is 0.*at least one"),
    (lambda: phase_one_length(2.0, 10), T, r"clients is 2\.0.*whole number"),
    (lambda: phase_one_length(2, 2.5), T, r"rounds is 2\.5.*whole number"),
    (lambda: phase_one_length(10**19, 1), V, "clients is 10000000000000000000"),
    (lambda: shared_start(PROBLEM, SMALL, 0, 5, QUICK), V, "clients is 0.*at least one"),
    (lambda: shared_start(PROBLEM, SMALL, 2.0, 5, QUICK), T, r"clients is 2\.0.*whole number"),
    (lambda: shared_start(PROBLEM, SMALL, 2, 5.0, QUICK), T, r"rounds is 5\.0.*whole number"),
    (lambda: shared_start(PROBLEM, SMALL, 2, 2, 20), T, "langevin is 20.*Langevin"),
    (lambda: shared_start(PROBLEM, SMALL, 2, 2, QUICK, length=0), V, "length is 0.*at least one"),
    (lambda: shared_start(PROBLEM, SMALL, 2, 2, QUICK, length=3.0), T, r"length is 3\.0.*whole number"),
    (lambda: shared_start(PROBLEM, SMALL, 2, 2, QUICK, length=True), T, "length is True.*whole number"),
    (lambda: shared_start(PROBLEM, SMALL, 2, 2, QUICK, encoding="zip"), V, "encoding is 'zip'.*'dense'"),
    (lambda: shared_start(PROBLEM, Network(5), 2, 2), V, "d_x is 5.*4"),
    (lambda: shared_start(SMALL, PROBLEM, 2, 2), T, "problem is Network.*give a Problem"),
    (lambda: shared_start(PROBLEM, 25, 2, 2), T, "network is 25.*Network"),
    (
        lambda: shared_start(PROBLEM, SMALL, 2, 2, Langevin(step=1e6)),
        V,
        r"τ₁ is 1000000\.0.*diverge.*smaller",
    ),
    (lambda: shared_start(problem(means=1e6 * MEANS), SMALL, 2, 2, QUICK), V, "mean and standard.*rescaled"),
    (
        lambda: shared_start(problem(means=1e-6 * MEANS, sigma=0.0), SMALL, 2, 2, QUICK),
        V,
        "standard.*rescaled",
    ),
    (lambda: private_start(PROBLEM, SMALL, 2, 0, QUICK), V, "rounds is 0.*at least one"),
    (lambda: private_start(PROBLEM, SMALL, None, 2, QUICK), T, "clients is None.*whole number"),
    (lambda: private_start(PROBLEM, SMALL, 2, 2, "quick"), T, "langevin is 'quick'.*Langevin"),
    (lambda: deal(ARMS, nan_at(MEANS, 0, 1), 2), V, r"rewards y\[0, 1\] is nan.*finite"),
    (lambda: deal(ARMS, MEANS, 0), V, "clients is 0.*at least one"),
    (lambda: deal(ARMS, MEANS[:, :2], 2), V, r"\(2, 3, 4\), \(2, 2\).*T₀"),
    # a start elsewhere
    (lambda: fed_go_ucb(hartmann6(2, arms=3), SHARED, PLAIN), V, r"Hartmann6.*made on \('p', 0, 2\)"),
    (lambda: fed_go_ucb(problem(seed=1), SHARED, PLAIN), V, r"\('p', 1, 2\).*made on \('p', 0, 2\)"),
    (lambda: fed_go_ucb(problem(means=2 * MEANS), SHARED, PLAIN), V, "problem is .*make one on this"),
    (lambda: fed_go_ucb(problem(sigma=0.2), SHARED, PLAIN), V, "problem is .*make one on this"),
    (lambda: fed_go_ucb(problem(runs=(1, 0)), SHARED, PLAIN), V, "problem is .*make one on this"),
    (lambda: fed_go_ucb(PROBLEM.only(0), SHARED, PLAIN), V, "problem is .*make one on this"),
    (lambda: fed_go_ucb(PROBLEM, PRIVATE, PLAIN), V, r"w0 is \(2, 2, 13\).*shared_start"),
    (lambda: one_go_ucb(PROBLEM, PRIVATE, PLAIN), V, r"w0 is \(2, 2, 13\).*shared_start"),
    (lambda: n_go_ucb(PROBLEM, SHARED, PLAIN), V, r"w0 is \(2, 1, 13\).*private_start"),
    (lambda: one_go_ucb(problem(seed=1), SHARED, PLAIN), V, "make one on this"),
    (lambda: n_go_ucb(problem(seed=1), PRIVATE, PLAIN), V, "make one on this"),
    (lambda: fed_go_ucb(PROBLEM, PACKED, PLAIN), V, "encoding is 'dense'.*charged as 'counts'"),
    (lambda: fed_go_ucb(PROBLEM, SHARED, Settings(encoding="counts")), V, "'counts'.*charged as 'dense'"),
    (lambda: fed_go_ucb(PROBLEM, SHARED, None), T, "settings is None.*Settings"),
    (lambda: fed_go_ucb(PROBLEM, PLAIN, SHARED), T, "start is Settings.*Start"),
    (lambda: fed_go_ucb(SHARED, PROBLEM, PLAIN), T, "start is Problem.*Start"),
    (lambda: one_go_ucb(PROBLEM, SHARED, {"lam": 1}), T, "settings is {'lam': 1}.*Settings"),
    (lambda: fed_go_ucb(PROBLEM, SHARED, PLAIN, "guess"), V, "argmax is 'guess'.*ascent"),
    (
        lambda: fed_go_ucb(PROBLEM, shared_start(PROBLEM, SingleUnit(4), 2, 2, QUICK), PLAIN, "ascent"),
        V,
        "argmax is 'ascent'.*Network.*'first-order'",
    ),
    # numbers stay numbers
    (lambda: fed_go_ucb(PROBLEM, SHARED, Settings(lam=1e-15)), V, r"‖g‖²/λ is .*raise λ = 1e-15"),
    (lambda: dis_lin_ucb(PROBLEM, 2, 4, Settings(lam=1e-300)), V, "‖g‖²/λ is .*raise λ = 1e-300"),
    (
        lambda: dis_lin_ucb(problem(arms=1e8 * ARMS), 2, 4, Settings(lam=0.01)),
        V,
        "‖g‖²/λ is .*scale the arms",
    ),
    (lambda: fed_glb_ucb(PROBLEM, 2, 4, Settings(lam=1e-300)), V, "‖g‖²/λ is .*raise λ"),
    (lambda: fed_glb_ucb(problem(arms=1e160 * ARMS), 2, 4, PLAIN), V, "‖g‖²/λ is .*scale the arms"),
    (lambda: approx_dis_kernel_ucb(PROBLEM, 2, 4, Settings(lam=1e-15)), V, "‖g‖²/λ is .*raise λ"),
    (lambda: exact_kernel_ucb(PROBLEM, 2, 4, Settings(lam=1e-15)), V, "‖g‖²/λ is .*raise λ"),
    (
        lambda: first_order(Posterior(-torch.eye(2).double(), MEANS[0, :2]), 1.0),
        V,
        r"variance is -1\.0.*raise λ",
    ),
    (
        lambda: ball(ARMS, torch.zeros(2, 4).double(), 0.0, 1.0, Tally(MEANS, MEANS)),
        V,
        r"lam is 0\.0.*positive",
    ),
    # the other algorithms
    (lambda: dis_lin_ucb(PROBLEM, 0, 4, PLAIN), V, "clients is 0.*at least one"),
    (lambda: dis_lin_ucb(PROBLEM, 2, 0, PLAIN), V, "steps is 0.*at least one"),
    (lambda: dis_lin_ucb(PROBLEM, 2, 4.0, PLAIN), T, r"steps is 4\.0.*whole number"),
    (lambda: dis_lin_ucb(PROBLEM, 2, 4, 0.1), T, r"settings is 0\.1.*Settings"),
    (lambda: dis_lin_ucb(PROBLEM, 2, 4, PLAIN, theorem_delta=1.0), V, r"theorem_delta is 1\.0.*\(0, 1\)"),
    (lambda: dis_lin_ucb(PROBLEM, 2, 4, PLAIN, theorem_delta=0.0), V, r"theorem_delta is 0\.0.*\(0, 1\)"),
    (lambda: fed_glb_ucb(PROBLEM, 2, 4, PLAIN, "probit"), V, "link is 'probit'.*identity"),
    (lambda: fed_glb_ucb(PROBLEM, "2", 4, PLAIN), T, "clients is '2'.*whole number"),
    (lambda: fed_glb_ucb(PROBLEM, 2, 4, None), T, "settings is None.*Settings"),
    (
        lambda: approx_dis_kernel_ucb(PROBLEM, 2, 4, PLAIN, lengthscale=0.0),
        V,
        r"lengthscale is 0\.0.*positive",
    ),
    (lambda: approx_dis_kernel_ucb(PROBLEM, 2, 4, PLAIN, lengthscale=NAN), V, "lengthscale is nan.*positive"),
    (
        lambda: approx_dis_kernel_ucb(PROBLEM, 2, 4, PLAIN, oversampling=0.0),
        V,
        r"oversampling is 0\.0.*positive",
    ),
    (lambda: approx_dis_kernel_ucb(PROBLEM, 2.0, 4, PLAIN), T, r"clients is 2\.0.*whole number"),
    (lambda: exact_kernel_ucb(PROBLEM, 2, 4, PLAIN, lengthscale=-1.0), V, r"lengthscale is -1\.0.*positive"),
    (lambda: exact_kernel_ucb(PROBLEM, 2, 4, PLAIN, lengthscale="1"), T, "lengthscale is '1'.*number"),
    (lambda: exact_kernel_ucb(PROBLEM, 2, -4, PLAIN), V, "steps is -4.*at least one"),
    (lambda: shared_ucb1(PROBLEM, 0, 4, PLAIN), V, "clients is 0.*at least one"),
    (lambda: shared_ucb1(PROBLEM, 2, 4, "plain"), T, "settings is 'plain'.*Settings"),
    (lambda: uniform_random(PROBLEM, 2.5, 4), T, r"clients is 2\.5.*whole number"),
    (lambda: uniform_random(PROBLEM, 2, 0), V, "steps is 0.*at least one"),
    (lambda: uniform_random(ARMS, 2, 4), T, "problem is tensor.*give a Problem"),
    (lambda: gp_ucb(PROBLEM, 2, 20, -1.0), V, r"beta is -1\.0.*at least 0"),
    (lambda: gp_ucb(PROBLEM, 2, 20, 1.0, first=21), V, "first is 21.*1 to 20"),
    (lambda: gp_ucb(PROBLEM, 2, 20, 1.0, refit=0), V, "refit is 0.*at least 1"),
    (lambda: gp_ucb(PROBLEM, 2, 20.0, 1.0), T, r"steps is 20\.0.*whole number"),
    (lambda: fedgo.simulate("s", ARMS, None, Exploration.nothing(2), 1, 1), T, "problem is tensor.*Problem"),
    (lambda: fedgo.simulate("s", PROBLEM, None, Exploration.nothing(3), 1, 1), V, "runs is 2.*had 3"),
    # beyond the paper
    (lambda: counted_ucb1(PROBLEM, 2, 4, 1.0), T, r"settings is 1\.0.*Settings"),
    (lambda: counted_ucb1(ARMS, 2, 4, PLAIN), T, "problem is tensor.*give a Problem"),
    (lambda: optimistic_ucb1(PROBLEM, 2, 4, -0.5), V, r"beta is -0\.5.*at least 0"),
    (lambda: optimistic_ucb1(PROBLEM, 2, 4, "1"), T, "beta is '1'.*number"),
    (lambda: optimistic_ucb1(PROBLEM, 2, 4, 1.0, -1.0), V, r"gamma is -1\.0.*at least 0"),
    (lambda: optimistic_ucb1(PROBLEM, 2, 4, 1.0, None), T, "gamma is None.*number"),
    (lambda: optimistic_ucb1(PROBLEM, 0, 4, 1.0), V, "clients is 0.*at least one"),
    (lambda: exact_go_ucb(PROBLEM, SHARED, -1.0), V, r"value is -1\.0"),
    (lambda: exact_go_ucb(PROBLEM, SHARED, 1.0, delta=1.0), V, r"delta is 1\.0.*\(0, 1\)"),
    (lambda: exact_go_ucb(PROBLEM, SHARED, 1.0, sigma=-1.0), V, r"sigma is -1\.0"),
    (lambda: exact_go_ucb(PROBLEM, SHARED, 1.0, patience=-1), V, "patience is -1"),
    (lambda: exact_go_ucb(PROBLEM, PRIVATE, 1.0), V, r"w0 is \(2, 2, 13\)"),
    (lambda: Guarantee(0.0, 0.1), V, r"value is 0\.0"),
    (lambda: Guarantee(1.0, -0.1), V, r"sigma is -0\.1"),
    (lambda: Guarantee("1", 0.1), T, "value is '1'.*number"),
    (lambda: Guarantee(1.0, 0.1, delta=0.0), V, r"delta is 0\.0.*\(0, 1\)"),
    (lambda: Guarantee(1.0, 0.1, kappa=0.5), V, r"kappa is 0\.5.*κ ≥ 1"),
    (lambda: Guarantee(1.0, 0.1, kappa=INF), V, "kappa is inf.*κ ≥ 1"),
    (lambda: Guarantee(1.0, 0.1, gamma=-1.0), V, r"gamma is -1\.0.*at least 0"),
    (lambda: Guarantee(1.0, 0.1, patience=0.5), T, r"patience is 0\.5.*whole number"),
    (lambda: guarded_fed_go_ucb(PROBLEM, SHARED, PLAIN, 1.0), T, r"guarantee is 1\.0.*Guarantee\(value"),
    (lambda: guarded_fed_go_ucb(PROBLEM, PLAIN, SHARED, SAFE), T, "start is Settings.*Start"),
    (lambda: guarded("g", ARMS, None, Exploration.nothing(2), 2, 2, SAFE), T, "problem is tensor.*Problem"),
    (lambda: guarded("g", PROBLEM, None, Exploration.nothing(2), 2.0, 2, SAFE), T, r"clients is 2\.0.*whole"),
    (lambda: guarded("g", PROBLEM, None, Exploration.nothing(2), 2, 0, SAFE), V, "rounds is 0.*at least one"),
    (lambda: fn_ucb(PROBLEM, 2, 4, lam=0.0, optimism=1.0), V, r"lam is 0\.0.*positive"),
    (lambda: fn_ucb(PROBLEM, 2, 4, lam=1.0, optimism=-1.0), V, r"optimism is -1\.0.*at least 0"),
    (lambda: fn_ucb(PROBLEM, 2, 4, lam=1.0, optimism=1.0, descent=0), V, "descent is 0.*at least 1"),
    (lambda: fn_ucb(PROBLEM, 2, 4, lam=1.0, optimism=1.0, hidden=3), V, "hidden is 3.*even"),
    (lambda: fn_ucb(PROBLEM, 2, 4, lam=1.0, optimism=1.0, encoding="cheapest"), V, "'cheapest'.*'counts'"),
    (lambda: fn_ucb(PROBLEM, 2, 4, lam=1.0, optimism=1.0, space="points"), V, "space is 'points'.*'arms'"),
    (lambda: fn_ucb(PROBLEM, "2", 4, lam=1.0, optimism=1.0), T, "clients is '2'.*whole number"),
    (lambda: fed_go_ucb(PROBLEM, SHARED, PLAIN, space="points"), V, "space is 'points'.*'parameters'"),
    (lambda: fitted_kernel_ucb(PROBLEM, 2, 2, -1.0), V, r"kappa is -1\.0.*at least 0"),
    (lambda: fitted_kernel_ucb(PROBLEM, 2, 2.5), T, r"2\.5.*whole number"),
    (lambda: surrogate_ucb(ARMS, GaussianProcess(), 2, 2), T, "problem is tensor.*give a Problem"),
    (lambda: surrogate_ucb(PROBLEM, "gp", 2, 2), T, "surrogate is 'g'.*GaussianProcess"),
    (lambda: surrogate_ucb(PROBLEM, [GaussianProcess()], 2, 2), V, "surrogates is 1.*each of 2 runs"),
    (lambda: surrogate_ucb(PROBLEM, GaussianProcess(), 0, 2), V, "clients is 0.*at least one"),
    (lambda: surrogate_ucb(PROBLEM, GaussianProcess(), 2, 2.0), T, r"rounds is 2\.0.*whole number"),
    (
        lambda: surrogate_ucb(PROBLEM, GaussianProcess(), 2, 2, until=1.3),
        T,
        r"until is 1\.3.*Growing or Event",
    ),
    (lambda: surrogate_ucb(PROBLEM, GaussianProcess(), 2, 2, planning="greedy"), V, "'greedy'.*'thompson'"),
    (lambda: surrogate_ucb(PROBLEM, GaussianProcess(), 2, 2, kappa=NAN), V, "kappa is nan.*at least 0"),
    (lambda: surrogate_ucb(PROBLEM, GaussianProcess(), 2, 2, sigma=0.0), V, r"sigma is 0\.0.*σ > 0"),
    (
        lambda: surrogate_ucb(
            PROBLEM, GaussianProcess(), 2, 2, start=SHARED, exploration=Exploration.nothing(2)
        ),
        V,
        "exploration is 'given'.*one of the two",
    ),
    (lambda: surrogate_ucb(problem(seed=1), GaussianProcess(), 2, 2, start=SHARED), V, "make one on this"),
    (lambda: Growing(1.0), V, r"factor is 1\.0.*above 1"),
    (lambda: Growing("2"), T, "factor is '2'.*number"),
    (lambda: Growing(1.3, 0), V, "least is 0.*at least 1"),
    (lambda: Event(-1.0), V, r"gamma is -1\.0.*at least 0"),
    (lambda: each_arm(PROBLEM, 0), V, "length is 0.*at least one"),
    (lambda: GaussianProcess("matern"), T, "model is 'matern'.*function"),
    (lambda: Relinearised("network"), T, "network is 'network'"),
    (lambda: LinearisedOnce(SMALL, MEANS[0]), V, r"w0 is \(3,\).*d_w"),
    (lambda: ByEvidence(["gp"]), T, "surrogates is"),
    (lambda: GaussianProcess().fit(ARMS[0], Tally(-MEANS[0], MEANS[0]), 0.1), V, r"counts\[0\] is -.*from 0"),
    (
        lambda: GaussianProcess().fit(ARMS[0], Tally(ONE, ONE), 0.1),
        V,
        "arms with a reward is 1.*explore longer",
    ),
    (lambda: Cube("c", 0, len), V, "dimension is 0.*at least 1"),
    (lambda: Cube("c", 2, len, sigma=0.0), V, r"sigma is 0\.0.*σ > 0"),
    (lambda: search(PROBLEM, 2, 2), T, "cube is Problem.*give a Cube"),
    (lambda: search(CUBE, 0, 2), V, "clients is 0.*at least one"),
    (lambda: search(CUBE, 2, 2.0), T, r"epochs is 2\.0.*whole number"),
    (lambda: search(CUBE, 2, 2, first=1), V, "first is 1.*at least two"),
    (lambda: search(CUBE, 2, 2, choice="best"), V, "choice is 'best'.*improvement"),
    (lambda: search(CUBE, 2, 2, kappa=-1.0), V, r"kappa is -1\.0.*at least 0"),
    # the federation
    (lambda: Plan(ARMS[0].numpy()), T, r"arms is array.*torch\.as_tensor"),
    (lambda: Plan(ARMS), V, r"shape of arms is \(2, 3, 4\).*\(K, d_x\)"),
    (lambda: Plan(nan_at(ARMS[0], 1, 2)), V, r"arms\[1, 2\] is nan.*finite"),
    (lambda: Plan(ARMS[0], 0.1), T, r"settings is 0\.1.*Settings"),
    (lambda: Plan(ARMS[0], Settings(encoding="cheapest")), V, "encoding is 'cheapest'.*'dense' or 'counts'"),
    (lambda: Plan(ARMS[0], Settings(), 1, "network", 2), T, r"network is 'network'.*give a network"),
    (lambda: Plan(ARMS[0], clients=0), V, "clients is 0.*at least one"),
    (lambda: Plan(ARMS[0], clients=2.0), T, r"clients is 2\.0.*whole number"),
    (lambda: Plan(ARMS[0], seed=-1), V, "seed is -1.*at least 0"),
    (lambda: Plan(ARMS[0], length=5), V, "length is 5.*give 0"),
    (lambda: Plan(ARMS[0], PLAIN, 3, SMALL, 2), V, "length is 2.*at least N = 3"),
    (lambda: Plan(ARMS[0], PLAIN, 1, Network(5), 2), V, "d_x is 5.*arms have 4"),
    (lambda: Plan(ARMS[0], PLAIN, 1, SMALL, 2, langevin=20), T, "langevin is 20.*Langevin"),
    (lambda: Client(PROBLEM), T, "plan is Problem.*give a Plan"),
    (lambda: Client(LINEAR, 2), V, "me is 2.*0 to 1"),
    (lambda: Client(LINEAR, -1), V, "me is -1.*0 to 1"),
    (lambda: Client(LINEAR, "0"), T, "me is '0'.*whole number"),
    (lambda: Client(LINEAR).tell(3, 0.5), V, "arm is 3.*0 to 2"),
    (lambda: Client(LINEAR).tell(1.0, 0.5), T, r"arm is 1\.0.*whole number"),
    (lambda: Client(LINEAR).tell(1, NAN), V, "reward is nan.*finite"),
    (lambda: Client(LINEAR).tell(1, INF), V, "reward is inf.*finite"),
    (lambda: Client(LINEAR).tell(1, None), T, "reward is None.*number"),
    (lambda: Client(LINEAR).retire(3), V, "arm is 3.*0 to 2"),
    (lambda: Client(LINEAR).extended(Plan(ARMS[1], clients=2)), V, "new plan is .*at the end"),
    (lambda: Server(PROBLEM), T, "plan is Problem.*give a Plan"),
    (lambda: Server(LINEAR).merge(), V, "exchange is 'closed'.*begin one"),
    (lambda: at_random(1.5), V, r"share is 1\.5.*probability"),
    (lambda: at_random(NAN), V, "share is nan.*probability"),
    # experiments
    (lambda: evaluate("iris", 1), V, "'iris'.*hartmann6"),
    (lambda: evaluate("hartmann6", 0), V, "runs is 0.*at least one"),
    (lambda: evaluate("hartmann6", 2.0), T, r"runs is 2\.0.*whole number"),
    (lambda: evaluate("hartmann6", 1, algorithms="Uniform"), T, "algorithms is 'Uniform'.*sequence"),
    (lambda: evaluate("hartmann6", 1, algorithms=["UCB2"]), V, r"algorithms is \['UCB2'\].*Fed-GO-UCB"),
    (lambda: evaluate("hartmann6", 1, seed=1000), V, "seed is 1000.*tuning"),
    (lambda: world("hartmann7", 1), V, "'hartmann7'.*choose"),
    # what crosses the star, and what is kept
    (
        lambda: Star(2, Ledger.blank(1, 1)).collect(Message(0, 1), When(BLANK[0, :1], BLANK[0, :1]), 3),
        V,
        "senders is 3.*2",
    ),
    (lambda: scalars("dense", 10**10, 1, 3), V, "dimension is 10000000000.*at most"),
    (lambda: trace(arm=BLANK.double()), V, "dtype of arm is torch.float64.*int64"),
    (lambda: trace(regret=BLANK.double()[:, :2]), V, r"shape of regret is \(2, 2\).*\(2, 3\)"),
    (lambda: trace(arm=BLANK[0]), V, r"shape of arm is \(3,\)"),
    (lambda: trace(sync=BLANK), V, "dtype of sync is torch.int64.*bool"),
    (lambda: trace(reward=[0.0]), T, r"reward is \[0\.0\].*tensor"),
    (lambda: trace(phase_one=-5), V, "phase_one is -5.*T₀"),
    (lambda: trace(phase_one=4), V, "phase_one is 4.*0 to 3"),
    (lambda: trace(phase_one="x"), T, "phase_one is 'x'.*whole number"),
    (lambda: trace(clients=0), V, "clients is 0.*at least one"),
    (lambda: trace(algorithm=3), T, "algorithm is 3.*name"),
    (lambda: trace().first(-1), V, "runs is -1.*there are 2"),
    (lambda: trace().first(3), V, "runs is 3.*there are 2"),
    (lambda: trace().first(1.0), T, r"runs is 1\.0.*whole number"),
    (lambda: Trace.join([]), V, r"traces is \[\].*at least one"),
    (lambda: Trace.join([trace(), trace(algorithm="b")]), V, "experiments is .*'b'.*one experiment"),
    (lambda: Trace.join([trace(), trace(problem="q")]), V, "experiments is .*'q'.*one experiment"),
    # theory
    (lambda: first_order(Posterior(torch.eye(2).double(), MEANS[0, :2]), NAN), V, "beta is nan.*at least 0"),
    (
        lambda: first_order(Posterior(torch.eye(2).double(), MEANS[0, :2]), -1.0),
        V,
        r"beta is -1\.0.*at least 0",
    ),
    (lambda: tuned("iris", "Uniform"), V, "name is 'iris'.*hartmann6"),
    (lambda: tuned("hartmann6", "UCB2"), V, "algorithm is 'UCB2'.*Fed-GO-UCB"),
    (
        lambda: interpolate(SMALL, SHARED.w0[:, 0], ARMS, NAN * MEANS),
        V,
        r"largest \|r\| is nan.*finite means",
    ),
    (lambda: bound(delta=1.0), V, r"delta is 1\.0.*\(0, 1\)"),
    (lambda: bound(delta=NAN), V, r"delta is nan.*\(0, 1\)"),
    (lambda: bound(sigma=-1.0), V, r"sigma is -1\.0.*at least 0"),
    (lambda: bound(distance=-1.0), V, r"distance is -1\.0.*at least 0"),
    (lambda: bound(curvature=-1.0), V, r"curvature is -1\.0.*at least 0"),
    (lambda: bound(lam=0.0), V, r"lam is 0\.0.*λ > 0"),
    (lambda: bound(clients=0), V, "clients is 0.*at least one"),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", range(len(TABLE)))
def test_bad_input_names_the_value_and_the_remedy(row):
    call, kind, message = TABLE[row]
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)


def test_the_table_is_long_and_has_no_row_twice():
    assert len(TABLE) >= 250
    code = [call.__code__ for call, _, _ in TABLE]
    assert len({(c.co_code, repr(c.co_consts), c.co_names) for c in code}) == len(TABLE)


def test_good_values_of_other_types_pass():
    assert hartmann6(np.int64(2)).runs == (0, 1)
    assert Settings(lam=np.float64(0.5), beta=1).lam == 0.5
    assert problem(means=MEANS.clone().requires_grad_()).means.requires_grad is False


def test_an_index_that_is_nan_is_an_error_with_a_remedy():
    class Learner:
        learners = 1

        def begin(self):
            return torch.zeros(2, 1, dtype=torch.float64)

        def index(self, state):
            return nan_at(MEANS.unsqueeze(1), 1, 0, 2)

    with pytest.raises(ValueError, match=r"index of an arm is nan: .*raise λ"):
        fedgo.simulate("s", PROBLEM, Learner(), Exploration.nothing(2), 1, 1)


DAMAGES = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "text": lambda content: b"arm,reward\n1,2\n",
    "a pickle": lambda content: b"\x80\x04K\x01.",
    "a byte": lambda content: content[: len(content) // 3] + b"x" + content[len(content) // 3 + 1 :],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_refused_by_its_name(damage, tmp_path):
    path = tmp_path / "mine.npz"
    fed_go_ucb(PROBLEM, SHARED, PLAIN).save(path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(ValueError, match=r"mine\.npz") as caught:
        Trace.load(path)
    assert "allow_pickle" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("arm", lambda a: a - 1, "least arm or cost is -1"),
        ("arm", lambda a: a.astype(float), "dtype of arm"),
        ("arm", lambda a: a[:, :2], "shape"),
        ("regret", lambda a: a[:1], "shape of regret"),
        ("regret", lambda a: a - 9, "least regret is -9"),
        ("regret", lambda a: a * np.nan, "regret is 'not finite'"),
        ("sync", lambda a: a.astype(np.uint32), "dtype of sync|uint32"),
        ("about", lambda a: np.array("{}"), "missing"),
        ("about", lambda a: np.array('{"x": 1}'), "unexpected|missing"),
        ("about", lambda a: np.array("no"), "Expecting"),
        ("other", lambda a: np.zeros(2), ""),
    ],
)
def test_a_trace_that_contradicts_itself_is_refused(name, change, message, tmp_path):
    path = tmp_path / "mine.npz"
    trace().save(path)
    with np.load(path) as file:
        columns = dict(file)
    np.savez(path, **(columns | {name: change(columns.get(name))}))
    if name == "other":
        assert torch.equal(Trace.load(path).arm, BLANK)  # a newer file's further column does no harm
        return
    with pytest.raises(ValueError, match=rf"mine\.npz.*({message})"):
        Trace.load(path)


def test_a_trace_without_a_file_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        Trace.load(tmp_path / "none.npz")
    with pytest.raises(OSError, match=r"cannot be written to .*away"):
        trace().save(tmp_path / "away" / "mine.npz")
