"""Bad input: one error that names the argument, the value received and a remedy, before any work.

A row is a call with good arguments, and for each argument a value out of its range, which raises a ``ValueError``, and
one of another kind, which raises a ``TypeError``. `test_checks` has the other values that the checks refuse. What
follows from several arguments together has a table below.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import fedgo
from fedgo import theory
from fedgo.confidence import Posterior, Tally, ball, first_order
from fedgo.experiments.results import evaluate, tuned
from fedgo.experiments.world import world
from fedgo.messages import scalars
from fedgo.pages.tables import frequency, rate, table
from fedgo.phase_one import deal
from fedgo.star import Ledger, Message, Star, When
from fedgo.theory.assumptions import Assumptions
from fedgo.theory.ball import radius
from fedgo.theory.interpolation import interpolate
from fedgo.theory.replay import replay
from fedgo.theory.smoothness import box
from fedgo.theory.theorem import Premises, TheoremSetting

NAN = math.nan
DRAW = torch.Generator().manual_seed(0)
ARMS = torch.rand(2, 3, 4, generator=DRAW, dtype=torch.float64)
MEANS = torch.rand(2, 3, generator=DRAW, dtype=torch.float64)
PROBLEM = fedgo.Problem("p", ARMS, MEANS, (0, 1))
NETWORK, QUICK, PLAIN = fedgo.Network(4, 2), fedgo.Langevin(rounds=2), fedgo.Settings()
SHARED = fedgo.shared_start(PROBLEM, NETWORK, 2, 2, QUICK)
PACKED = fedgo.shared_start(PROBLEM, NETWORK, 2, 2, QUICK, encoding="counts")
ONE_UNIT = fedgo.shared_start(PROBLEM, fedgo.SingleUnit(4), 2, 2, QUICK)
PRIVATE = fedgo.private_start(PROBLEM, NETWORK, 2, 2, QUICK)
BLANK = torch.zeros(2, 3, dtype=torch.int64)


def but(values, value, *place):
    """``values`` with one entry changed."""
    changed = values.clone()
    changed[place] = value
    return changed


def bad(*values, kinds=()):
    """Values that an argument may not have, each with its error."""
    return [(value, ValueError) for value in values] + [(value, TypeError) for value in kinds]


def row(call, /, *good, **arguments):
    """A case for every bad value of every one of the ``arguments``; ``good`` are what the call has besides."""
    [known] = good or [{}]
    made = getattr(call, "__name__", "radius")
    return [
        pytest.param(call, known | {name: value}, name, kind, id=f"{made} {name} {value!r:.30}")
        for name, values in arguments.items()
        for value, kind in values
    ]


WHOLE = bad(0, kinds=(2.0,))  # at least one of something
SEED = bad(-1, kinds=(1.5,))
RUNS = WHOLE + bad([])
ABOVE_0 = bad(0.0, kinds=("1",))
FROM_0 = bad(-0.1, kinds=("1",))
THRESHOLD = bad(-0.5, kinds=("1",))
DELTA = bad(1.0)
NAME = bad("none of them")
ANOTHER = bad(kinds=(0.5,))  # an object of another class
MADE = {"name": "p", "arms": ARMS, "means": MEANS, "runs": (0, 1)}
PLAYED = {"problem": ANOTHER, "clients": WHOLE, "steps": WHOLE}
STARTED = {"start": ANOTHER, "settings": ANOTHER}
SIZES = {"problem": PROBLEM, "clients": 2, "steps": 20}
CHOSEN = SIZES | {"settings": PLAIN}
BEGUN = {"problem": PROBLEM, "network": NETWORK, "clients": 2, "rounds": 2, "langevin": QUICK}
BEGINS = {"problem": ANOTHER, "clients": WHOLE, "rounds": WHOLE, "langevin": ANOTHER}
GIVEN = {"start": SHARED, "settings": PLAIN}
RECORD = {"algorithm": "a", "problem": "p", "clients": 2, "phase_one": 1, "arm": BLANK, "up": BLANK}
RECORD |= {"reward": BLANK.double(), "regret": BLANK.double(), "down": BLANK, "sync": BLANK.bool()}
NUMBERS = {"clients": 1, "lam": 1.0, "sigma": 1.0, "distance": 1.0, "curvature": 1.0, "delta": 0.1}
ASSUMED = {"dimension": 5, "value": 2.0, "slope": 3.0, "curvature": 0.7, "noise": 0.4, "growth": 0.5}
CALM = Assumptions(**ASSUMED)
RISK = {"a": CALM, "exploration": 100, "delta": 0.1}
CLASS = {"size": 2, "data": 9, "delta": 0.1, "value": 1.0}
GROWN = replace(CALM, tail=0.8, exponent=1.5)
CASES = [
    *row(fedgo.Problem, MADE, arms=bad(but(ARMS, NAN, 0, 1, 2), ARMS[0], kinds=(ARMS.numpy(),))),
    *row(fedgo.Problem, MADE, means=bad(but(MEANS, NAN, 1, 2), MEANS[:, :2], kinds=(None,))),
    *row(fedgo.Problem, MADE, runs=bad((0, -1), kinds=([0, 1],))),
    *row(fedgo.Problem, MADE, seed=SEED, sigma=FROM_0, reward=NAME),
    *row(fedgo.hartmann6, {"runs": 1}, runs=RUNS, arms=WHOLE, seed=SEED, sigma=FROM_0),
    *row(fedgo.clustered, {"name": "magic", "runs": 1}, name=NAME, runs=RUNS, sigma=FROM_0, reward=NAME),
    *row(fedgo.realizable, {"network": NETWORK, "runs": 1}, runs=RUNS, arms=WHOLE, seed=SEED, scale=bad(NAN)),
    *row(fedgo.Network, {"d_x": 6}, d_x=WHOLE, hidden=WHOLE),
    *row(fedgo.SingleUnit, d_x=WHOLE),
    *row(fedgo.Settings, lam=ABOVE_0, beta=FROM_0, gamma=THRESHOLD),
    *row(fedgo.Settings, encoding=NAME),
    *row(fedgo.Langevin, rounds=WHOLE, step=ABOVE_0, hot=bad(0.0), cold=bad(1.0, kinds=("1e5",))),
    *row(fedgo.phase_one_length, {"clients": 2, "rounds": 3}, clients=WHOLE, rounds=WHOLE),
    *row(fedgo.shared_start, BEGUN, **BEGINS, network=ANOTHER, length=WHOLE, encoding=NAME),
    *row(fedgo.private_start, BEGUN, **BEGINS, network=ANOTHER),
    *row(deal, {"x": ARMS, "y": MEANS, "clients": 2}, y=bad(but(MEANS, NAN, 0, 1))),
    *row(fedgo.fed_go_ucb, GIVEN, **STARTED, argmax=NAME, space=NAME),
    *row(fedgo.one_go_ucb, GIVEN, **STARTED, argmax=NAME),
    *row(fedgo.n_go_ucb, GIVEN | {"start": PRIVATE}, **STARTED, argmax=NAME),
    *row(fedgo.dis_lin_ucb, CHOSEN, **PLAYED, settings=ANOTHER),
    *row(fedgo.fed_glb_ucb, CHOSEN, **PLAYED, settings=ANOTHER, link=NAME),
    *row(fedgo.approx_dis_kernel_ucb, CHOSEN, **PLAYED, settings=ANOTHER),
    *row(fedgo.approx_dis_kernel_ucb, CHOSEN, lengthscale=ABOVE_0, oversampling=ABOVE_0),
    *row(fedgo.exact_kernel_ucb, CHOSEN, **PLAYED, settings=ANOTHER, lengthscale=ABOVE_0),
    *row(fedgo.shared_ucb1, CHOSEN, **PLAYED, settings=ANOTHER),
    *row(fedgo.uniform_random, SIZES, **PLAYED),
    *row(first_order, {"posterior": Posterior(torch.eye(2).double(), MEANS[0, :2])}, beta=bad(-1.0)),
    # experiments, theory, and what is kept
    *row(evaluate, {"name": "hartmann6", "runs": 1}, name=NAME, runs=WHOLE, seed=bad(1000)),
    *row(evaluate, {"name": "hartmann6", "runs": 1}, algorithms=bad(["UCB2"], kinds=("Uniform",))),
    *row(world, {"runs": 1}, name=NAME),
    *row(tuned, {"name": "hartmann6", "algorithm": "Uniform"}, name=NAME, algorithm=NAME),
    *row(
        partial(radius, MEANS, MEANS, 0), NUMBERS, clients=WHOLE, lam=bad(0.0), sigma=bad(-1.0), delta=DELTA
    ),
    *row(partial(radius, MEANS, MEANS, 0), NUMBERS, distance=bad(-1.0), curvature=bad(-1.0)),
    *row(Assumptions, ASSUMED, dimension=bad(0), value=bad(0.0), slope=bad(-1.0), growth=bad(0.0)),
    *row(Assumptions, ASSUMED, tail=bad(0.0), curvature=bad(-0.1), noise=bad(-0.1), exponent=bad(2.0)),
    *row(Premises, {"a": CALM, "clients": 20, "rounds": 100}, delta=DELTA, clients=WHOLE, rounds=WHOLE),
    *row(theory.worlds.single_unit, {"runs": 2}, dimension=bad(0), scale=bad(0.0), arms=bad(0)),
    *row(theory.oracle.iota, RISK, delta=DELTA),
    *row(theory.oracle.regression_risk, RISK, delta=DELTA, exploration=bad(0), radius=bad(-1.0)),
    *row(theory.oracle.finite_risk, CLASS | {"noise": 1.0}, delta=DELTA),
    *row(theory.oracle.covering, {"dimension": 3}, radius=bad(0.0)),
    *row(theory.regret.synchronisations, {"rounds": 10, "information": 1.0}, gamma=bad(0.0)),
    *row(theory.ball.information_bound, {"dimension": 5, "pulls": 10, "slope": 1.0}, lam=bad(0.0)),
    *row(theory.ball.radius_printed, RISK | {"pulls": 9, "step": 9, "delta": 0.1}, lam=bad(0.0)),
    *row(fedgo.Trace, RECORD, algorithm=bad(kinds=(3,)), clients=WHOLE, phase_one=bad(4, kinds=("x",))),
    *row(fedgo.Trace, RECORD, arm=bad(BLANK.double(), BLANK[0]), sync=bad(BLANK)),
    *row(fedgo.Trace, RECORD, regret=bad(BLANK.double()[:, :2]), reward=bad(kinds=([0.0],))),
    *row(fedgo.Trace(**RECORD).first, runs=bad(3, kinds=(1.0,))),
    *row(fedgo.Trace.join, traces=bad([])),
]


def refused(call, name, kind):
    """The error is of exactly this ``kind`` and says "… name … is …: …"."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    named, _, rest = str(caught.value).partition(" is ")
    assert name in named and all(part.strip() for part in rest.partition(":")), str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("call", "arguments", "name", "kind"), CASES)
def test_an_argument_that_cannot_be_is_refused_by_its_name(call, arguments, name, kind):
    refused(lambda: call(**arguments), name, kind)


def problem(**changes):
    return fedgo.Problem(**(MADE | changes))


def start(langevin=QUICK, **changes):
    """Phase I on a problem that has been changed."""
    return fedgo.shared_start(problem(**changes), NETWORK, 2, 2, langevin)


TINY, COUNTS = fedgo.Settings(lam=1e-300), fedgo.Settings(encoding="counts")
bound = partial(theory.theorem.theorem, Premises(CALM, 20, 100), 30, rho2=0.1)
COLLECT = partial(Star(2, Ledger.blank(1, 1)).collect, Message(0, 1), When(BLANK[0, :1], BLANK[0, :1]))
# What follows from several arguments together: the call, and what its error names.
TOGETHER = [
    (lambda: problem(means=1 + MEANS, reward="bernoulli"), "means"),
    (lambda: problem(runs=(0, 1, 2)), "shape of arms"),
    (lambda: NETWORK.values(torch.zeros(7), torch.zeros(2, 4)), "shape of w"),
    (lambda: NETWORK.gradients(SHARED.w0, ARMS[..., :3].unsqueeze(1)), "shape of x"),
    (lambda: fedgo.Langevin(hot=10.0, cold=1.0), "cold"),
    (lambda: fedgo.shared_start(PROBLEM, fedgo.Network(5), 2, 2), "d_x"),
    (lambda: start(fedgo.Langevin(step=1e6)), "τ₁"),
    (lambda: start(means=1e6 * MEANS), "mean and standard"),
    # a start elsewhere
    (lambda: fedgo.fed_go_ucb(PRIVATE, PLAIN), "w0"),
    (lambda: fedgo.n_go_ucb(SHARED, PLAIN), "w0"),
    (lambda: fedgo.fed_go_ucb(PACKED, PLAIN), "encoding"),
    (lambda: fedgo.fed_go_ucb(SHARED, COUNTS), "encoding"),
    (lambda: fedgo.fed_go_ucb(ONE_UNIT, PLAIN, "ascent"), "argmax"),
    (lambda: fedgo.simulate("s", PROBLEM, None, fedgo.Exploration.nothing(3), 1, 1), "runs"),
    # numbers stay numbers
    (lambda: fedgo.fed_go_ucb(SHARED, TINY), "‖g‖²/λ"),
    (lambda: fedgo.approx_dis_kernel_ucb(PROBLEM, 2, 4, TINY), "‖g‖²/λ"),
    (lambda: first_order(Posterior(-torch.eye(2).double(), MEANS[0, :2]), 1.0), "variance"),
    (lambda: ball(ARMS, torch.zeros(2, 4).double(), 0.0, 1.0, Tally(MEANS, MEANS)), "lam"),
    (lambda: interpolate(NETWORK, SHARED.w0[:, 0], ARMS, NAN * MEANS), "largest |means"),
    # theory
    (lambda: bound(setting=TheoremSetting(10, 0.0, 1.0)), "lam"),
    (lambda: bound(setting=TheoremSetting(10, 9.0, 0.0)), "gamma"),
    (lambda: theory.oracle.iota(replace(CALM, curvature=0.5), 4, 0.1), "T₀C_h²"),
    (lambda: theory.oracle.squared_distance(GROWN, theory.oracle.growth_limit(GROWN)), "risk"),
    (lambda: replay(SHARED, fedgo.Trace(**RECORD), 0.0), "lam"),
    (lambda: replay(PRIVATE, fedgo.Trace(**RECORD), 1.0), "w0"),
    (lambda: fedgo.fed_go_ucb(SHARED, TINY, space="parameters"), "‖g‖²/λ"),
    (lambda: box(NETWORK, SHARED.w0[0, 0] + 1, SHARED.w0[0, 0], ARMS[0]), "low[0]"),
    # tables of a chapter
    (lambda: table("xy", [("a",)]), "a row"),
    (lambda: table("xy", [("a", "|f|")]), "a cell"),
    (lambda: frequency(3, 2), "failures"),
    (lambda: rate([1, 2, 3], MEANS[:, :2]), "values"),
    # over a network, and what is kept
    (lambda: COLLECT(3), "senders"),
    (lambda: scalars("dense", 10**10, 1, 3), "dimension"),
    (
        lambda: fedgo.Trace.join([fedgo.Trace(**RECORD), fedgo.Trace(**(RECORD | {"algorithm": "b"}))]),
        "experiments",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "name"), TOGETHER, ids=[f"{number}" for number in range(len(TOGETHER))])
def test_arguments_that_do_not_go_together_are_refused(call, name):
    refused(call, name, ValueError)


def test_means_that_need_a_gradient_pass_and_lose_it():
    assert problem(means=MEANS.clone().requires_grad_()).means.requires_grad is False


def test_an_index_that_is_nan_is_an_error_with_a_remedy():
    class Learner:
        learners = 1

        def begin(self):
            return torch.zeros(2, 1, dtype=torch.float64)

        def index(self, state):
            return but(MEANS.unsqueeze(1), NAN, 1, 0, 2)

    with pytest.raises(ValueError, match=r"index of an arm is nan: .*raise λ"):
        fedgo.simulate("s", PROBLEM, Learner(), fedgo.Exploration.nothing(2), 1, 1)


DAMAGES = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "a pickle": lambda content: b"\x80\x04K\x01.",
    "a byte": lambda content: content[: len(content) // 3] + b"x" + content[len(content) // 3 + 1 :],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_refused_by_its_name(damage, tmp_path):
    path = tmp_path / "mine.npz"
    fedgo.fed_go_ucb(SHARED, PLAIN).save(path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(ValueError, match=r"mine\.npz") as caught:
        fedgo.Trace.load(path)
    assert "allow_pickle" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("arm", lambda a: a - 1, r"arm\[0, 0\] is -1"),
        ("sync", lambda a: a.astype(np.uint32), "dtype of sync|uint32"),
        ("about", lambda a: np.array("{}"), "missing"),
        ("about", lambda a: np.array("no"), "Expecting"),
        ("other", lambda a: np.zeros(2), ""),
    ],
)
def test_a_trace_that_contradicts_itself_is_refused(name, change, message, tmp_path):
    path = tmp_path / "mine.npz"
    fedgo.Trace(**RECORD).save(path)
    with np.load(path) as file:
        columns = dict(file)
    np.savez(path, **(columns | {name: change(columns.get(name))}))
    if name == "other":
        assert torch.equal(fedgo.Trace.load(path).arm, BLANK)  # a newer file's further column does no harm
        return
    with pytest.raises(ValueError, match=rf"mine\.npz.*({message})"):
        fedgo.Trace.load(path)


def test_a_trace_without_a_file_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        fedgo.Trace.load(tmp_path / "none.npz")
    with pytest.raises(OSError, match="away"):
        fedgo.Trace(**RECORD).save(tmp_path / "away" / "mine.npz")
