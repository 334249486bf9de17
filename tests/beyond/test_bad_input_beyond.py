"""Bad input beyond the paper: one error that names the argument, the value received and a remedy, before any work."""

from functools import partial

import pytest
import torch
from test_bad_input import (
    ABOVE_0,
    ANOTHER,
    ARMS,
    COUNTS,
    DELTA,
    FROM_0,
    GIVEN,
    MEANS,
    NAN,
    NETWORK,
    PLAIN,
    PLAYED,
    PRIVATE,
    PROBLEM,
    SEED,
    SHARED,
    SIZES,
    STARTED,
    THRESHOLD,
    WHOLE,
    bad,
    problem,
    refused,
    row,
)

from fedgo import Exploration, Network, Settings
from fedgo.beyond import Client, Fitting, Plan, Server
from fedgo.beyond.evidence.private import Hiding
from fedgo.beyond.evidence.rivals import fitted_kernel_ucb, fn_ucb
from fedgo.beyond.federation.local import at_random, converse, play
from fedgo.beyond.guarantees.exact import Prior, computable_lam, exact_intervals
from fedgo.beyond.guarantees.guarantee import Guarantee, TabularIntervals, guarded, guarded_fed_go_ucb
from fedgo.beyond.guarantees.kernel import KernelIntervals
from fedgo.beyond.guarantees.optimist import exact_go_ucb, optimistic_ucb1
from fedgo.beyond.method.advised import ADVISED, METHODS, Advised
from fedgo.beyond.method.epochs import Growing, Optimism, each_arm, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.networks import Relinearised
from fedgo.beyond.method.surrogates import IndependentArms, fitted
from fedgo.confidence import Tally

GRADED = {"arms": ARMS[0], "network": NETWORK, "length": 4}
GIVEN_VALUE = {"start": SHARED, "value": 3.0}
PLANNED = {"rounds": WHOLE, "until": ANOTHER, "guarantee": ANOTHER}
SCRIPT = {"name": "g", "proposal": None, "exploration": Exploration.nothing(2), "clients": 2, "rounds": 2}
FEATURES = {"features": ARMS[0], "norm": 1.0}
ONES = torch.ones(3).double()
TWICE = ARMS[0, [0, 1, 1]]  # a gradient that stands twice
DIFFERING = Plan(ARMS[0], clients=2, fitting=Fitting(0.3, 5, differ=True))
PUBLIC = Plan(ARMS[0], Settings(encoding="counts"), 2, NETWORK, 4)


def planned(**how):
    """A plan's setting that is not the advised one."""
    return Fitting(0.3, 10, Advised(**how))


NO_PLAN = bad(kinds=("ucb1",))
EPOCHS = {"surrogate": GaussianProcess(), "rounds": 10, "problem": PROBLEM, "clients": 2}
SAFE = Guarantee(1.0, 0.1)


def fit(counts, sums, surrogate=GaussianProcess()):  # noqa: B008
    tally = Tally(*(torch.tensor(values).double() for values in (counts, sums)))
    return surrogate.fit(ARMS[0], tally, 0.1)


CASES = [
    *row(optimistic_ucb1, SIZES | {"beta": 1.0}, **PLAYED, beta=FROM_0, gamma=THRESHOLD),
    *row(Guarantee, {"value": 1.0, "sigma": 0.1}, value=ABOVE_0, sigma=ABOVE_0, delta=DELTA),
    *row(Guarantee, {"value": 1.0, "sigma": 0.1}, kappa=bad(0.999, kinds=(True,)), gamma=bad(-1.0)),
    *row(TabularIntervals, {"sigma": 0.1, "value": 1.0}, clients=WHOLE),
    *row(exact_go_ucb, GIVEN_VALUE, value=bad(0.0), delta=DELTA, gamma=THRESHOLD),
    *row(exact_intervals, GIVEN_VALUE, value=bad(0.0), delta=DELTA),
    *row(Prior.of, {"gradients": ARMS[0], "offsets": MEANS[0]}, lam=bad(0.0)),
    *row(guarded, SCRIPT | {"problem": PROBLEM}, guarantee=ANOTHER),
    *row(guarded, SCRIPT | {"guarantee": SAFE}, problem=ANOTHER),
    *row(guarded, SCRIPT | {"problem": PROBLEM, "guarantee": SAFE}, clients=WHOLE, rounds=WHOLE),
    *row(guarded_fed_go_ucb, GIVEN | {"guarantee": SAFE}, **STARTED, guarantee=ANOTHER),
    *row(
        surrogate_ucb,
        EPOCHS,
        problem=ANOTHER,
        clients=WHOLE,
        **PLANNED,
        optimism=ANOTHER,
        exploration=ANOTHER,
    ),
    *row(Optimism, {}, kappa=FROM_0, untried=bad(-1), sigma=bad(0.0)),
    *row(surrogate_ucb, EPOCHS, surrogate=bad(kinds=("gp",))),
    *row(Fitting, {"sigma": 0.3, "rounds": 10}, rounds=WHOLE, sigma=ABOVE_0, how=NO_PLAN),
    *row(Fitting, {"sigma": 0.3, "rounds": 10}, differ=bad(kinds=(1,))),
    *row(planned, untried=bad(-1), kappa=FROM_0, until=ANOTHER, surrogate=bad(kinds=("gp",))),
    *row(Advised, kappa=FROM_0, untried=bad(-1), share=ABOVE_0, few=FROM_0),
    *row(Advised, bold=FROM_0),
    *row(ADVISED.first, {"clients": 2, "arms": 5}, rounds=WHOLE),
    *row(Growing, factor=bad(1.0, kinds=("2",)), least=WHOLE),
    *row(each_arm, {"problem": PROBLEM}, length=WHOLE),
    *row(GaussianProcess, warp=bad(kinds=("matern",))),
    *row(Relinearised, {"network": NETWORK}, network=bad(kinds=(25,)), starts=WHOLE),
    *row(GaussianProcess().fit, {"arms": ARMS[0], "data": Tally(ONES, MEANS[0])}, sigma=bad(0.0)),
    *row(fn_ucb, SIZES | {"settings": PLAIN}, **PLAYED, settings=ANOTHER, descent=WHOLE, hidden=bad(3)),
    *row(fitted_kernel_ucb, {"problem": PROBLEM, "clients": 2, "rounds": 2}, kappa=FROM_0, clients=WHOLE),
    *row(Plan, arms=bad(ARMS, kinds=(ARMS[0].numpy(),))),
    *row(Plan, GRADED, settings=bad(kinds=(0.1,)), clients=WHOLE, seed=SEED, length=bad(0)),
    *row(Plan, GRADED, network=ANOTHER, langevin=ANOTHER),
    *row(Client, {"plan": PUBLIC}, plan=ANOTHER, me=bad(2, kinds=("0",))),
    *row(Client(PUBLIC).tell, {"reward": 0.5}, arm=bad(3, kinds=(1.0,))),
    *row(Client(PUBLIC).tell, {"arm": 0}, reward=bad(NAN, -1e101, kinds=("1",))),
    *row(Client(PUBLIC).retire, arm=bad(3)),
    *row(Server, plan=ANOTHER),
    *row(Hiding, {"clients": 5, "epsilon": 1.0}, epsilon=bad(0.0), delta=bad(0.0), way=bad("nobody")),
    *row(
        partial(KernelIntervals, 2, 0.3, 2.0, 0.3),
        FEATURES,
        norm=bad(-1.0),
        features=bad(ONES, NAN * ARMS[0]),
    ),
    *row(at_random, share=bad(1.5, kinds=("x",))),
]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "arguments", "name", "kind"), CASES)
def test_an_argument_beyond_the_paper_that_cannot_be_is_refused_by_its_name(call, arguments, name, kind):
    refused(lambda: call(**arguments), name, kind)


# What follows from several arguments together: the call, and what its error names.
TOGETHER = [
    (lambda: exact_go_ucb(PRIVATE, 1.0), "w0"),
    (lambda: fit([0, 5, 0], [0, 1, 0]), "distinct arms"),
    (lambda: fit([1, 2, 3], [2, 4, 6]), "mean reward of every arm"),
    (lambda: fit([1, 2, 0], [2, 4, 0], Relinearised(NETWORK)), "mean reward of every arm"),
    (lambda: fit([1, 2, 0], [2, NAN, 0]), "sums"),
    (lambda: fit([1, 2, -1], [2, 1, 0]), "counts"),
    (lambda: fit([1, 1, 1], [1e300, 2, 3], GaussianProcess(warp=True)), "sums"),
    (lambda: ADVISED.play(problem(arms=ARMS[:, :1], means=MEANS[:, :1], sigma=0.1), 2, 4), "distinct arms"),
    (lambda: computable_lam(TWICE, MEANS[0], 1.0, 0.1), "the least singular value"),
    (lambda: Prior.of(TWICE, MEANS[0], 1.0), "the least singular value"),
    (lambda: fn_ucb(PROBLEM, 2, 4, Settings(encoding="rows")), "encoding"),
    (lambda: Plan(ARMS[0], PLAIN), "encoding"),
    (lambda: Plan(ARMS[0], COUNTS, 3, NETWORK, 2), "length"),
    (lambda: Plan(ARMS[0], COUNTS, 1, Network(5), 2), "d_x"),
    (lambda: Plan(ARMS[0], COUNTS, 2, NETWORK, 6, fitting=Fitting(0.3, 10)), "network and fitting"),
    (lambda: Plan(ARMS[0], clients=2), "network and fitting"),
    (lambda: Hiding(5, 1.0, low=2.0, high=2.0), "high - low"),
    (lambda: Fitting(0.3, 5, METHODS["ucb1"], True), "surrogate"),
    (lambda: Plan(ARMS[0], clients=1, fitting=Fitting(0.3, 5, differ=True)), "clients"),
    (lambda: Fitting(0.3, 5, Advised(surrogate=GaussianProcess(True, misfit=False)), True), "surrogate"),
    (lambda: play([PROBLEM.only(0)], DIFFERING, 4), "number of problems"),
    (lambda: play([PROBLEM.only(0), PROBLEM.only(1)], DIFFERING, 4), "the arms"),
    (lambda: converse(Server(PUBLIC), [Client(PUBLIC)]), "the clients"),
    (lambda: play(PROBLEM.only(0), PUBLIC, 4, torch.tensor([0, 1])), "turns"),
    (lambda: play(PROBLEM.only(0), PUBLIC, 2, torch.tensor([0, -1])), "turns"),
    (lambda: Server(PUBLIC).merge(), "exchange"),
    (lambda: fitted(IndependentArms(), ARMS[0], Tally(torch.ones(4), torch.ones(4)), 0.3), "counts"),
    (lambda: fitted(IndependentArms(), ARMS[0], Tally(torch.eye(3)[0], ONES), 0.3), "sums"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "name"), TOGETHER, ids=[f"{number}" for number in range(len(TOGETHER))])
def test_arguments_beyond_the_paper_that_do_not_go_together_are_refused(call, name):
    refused(call, name, ValueError)
