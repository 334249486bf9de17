"""Every learner of the package under the name of what it is, with settings that make it synchronise now and then.

Each is a function of a problem, N clients and T rounds. What a test finds for one of them it has to find for all.
"""

from collections.abc import Callable, Sequence

from fedgo import (
    Langevin,
    Network,
    Problem,
    Settings,
    Start,
    Trace,
    approx_dis_kernel_ucb,
    dis_lin_ucb,
    exact_kernel_ucb,
    fed_glb_ucb,
    fed_go_ucb,
    gp_ucb,
    n_go_ucb,
    one_go_ucb,
    phase_one_length,
    private_start,
    shared_start,
    shared_ucb1,
    uniform_random,
)
from fedgo.beyond.epochs import Event, Growing, surrogate_ucb
from fedgo.beyond.guard.counted import optimistic_ucb1
from fedgo.beyond.guard.guarantee import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.guard.optimist import exact_go_ucb
from fedgo.beyond.map.rivals import fitted_kernel_ucb, fn_ucb
from fedgo.beyond.surrogates.gaussian_process import GaussianProcess
from fedgo.beyond.surrogates.models import Surrogate
from fedgo.beyond.surrogates.networks import LinearisedOnce, Relinearised

SETTINGS = Settings(0.2, 0.3, 0.5)
FEW = Langevin(rounds=5)


def from_start(play: Callable[..., Trace], **options: object) -> Callable[[Problem, int, int], Trace]:
    """What Phase I prepares, for all clients together."""

    def played(problem: Problem, clients: int, rounds: int) -> Trace:
        start = shared_start(problem, Network(problem.arms.shape[-1], 4), clients, rounds, FEW)
        return play(problem, start, SETTINGS, **options)

    return played


def from_scratch(play: Callable[..., Trace], *settings: object) -> Callable[[Problem, int, int], Trace]:
    """What makes all T₀ + NT steps itself."""

    def played(problem: Problem, clients: int, rounds: int) -> Trace:
        steps = phase_one_length(clients, rounds) + clients * rounds
        return play(problem, clients, steps, *settings)

    return played


def alone(problem: Problem, clients: int, rounds: int) -> Trace:
    network = Network(problem.arms.shape[-1], 4)
    return n_go_ucb(problem, private_start(problem, network, clients, rounds, FEW), SETTINGS)


def tabular(problem: Problem, start: Start, settings: Settings) -> Trace:
    return exact_go_ucb(problem, start, 3.0, gamma=settings.gamma)


def epochs(
    surrogate: Callable[[Problem], Surrogate | Sequence[Surrogate]], **options: object
) -> Callable[..., Trace]:
    """Epochs of a surrogate for the problem at hand."""

    def played(problem: Problem, clients: int, rounds: int) -> Trace:
        return surrogate_ucb(problem, surrogate(problem), clients, rounds, **options)

    return played


def network(problem: Problem) -> Network:
    return Network(problem.arms.shape[-1], 3)


def linearised_once(problem: Problem) -> Sequence[Surrogate]:
    """Those of Phase I, one for each run."""
    start = shared_start(problem, network(problem), 2, 2, FEW)
    return LinearisedOnce.at(start, SETTINGS.lam)


LEARNERS = {
    "Fed-GO-UCB": from_start(fed_go_ucb),
    "Fed-GO-UCB, line 3": from_start(fed_go_ucb, argmax="ascent"),
    "Fed-GO-UCB, parameter space": from_start(fed_go_ucb, space="parameters"),
    "One-GO-UCB": from_start(one_go_ucb),
    "N-GO-UCB": alone,
    "DisLinUCB": from_scratch(dis_lin_ucb, SETTINGS),
    "Fed-GLB-UCB": from_scratch(fed_glb_ucb, SETTINGS),
    "ApproxDisKernelUCB": from_scratch(approx_dis_kernel_ucb, SETTINGS),
    "Kernel UCB, at once": from_scratch(exact_kernel_ucb, SETTINGS),
    "UCB1, shared": from_scratch(shared_ucb1, SETTINGS),
    "UCB1, counted": from_scratch(optimistic_ucb1, 0.3),
    "Uniform": from_scratch(uniform_random),
    "GP-UCB (BoTorch)": from_scratch(gp_ucb, 2.0),
    "Exact intervals": from_start(tabular),
    "Guard": from_start(guarded_fed_go_ucb, guarantee=Guarantee(3.0, 0.1)),
    "FN-UCB": lambda problem, clients, rounds: fn_ucb(
        problem, clients, clients * rounds, lam=0.1, optimism=0.5, gamma=0.5, hidden=4
    ),
    "Fitted kernel": fitted_kernel_ucb,
    "Gaussian process": epochs(lambda problem: GaussianProcess()),
    "Gaussian process, on the event": epochs(
        lambda problem: GaussianProcess(), planning="own", until=Event(0.5)
    ),
    "Network once": epochs(linearised_once, until=Growing(1.5)),
    "Network again": epochs(lambda problem: Relinearised(network(problem))),
    "Network, guarded": epochs(lambda problem: Relinearised(network(problem)), guarantee=Guarantee(3.0, 0.1)),
}
