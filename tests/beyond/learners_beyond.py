"""The learners beyond the paper under the name of what they are, as `learners` has those of the paper."""

from collections.abc import Callable, Sequence

from ways import from_scratch, from_start

from fedgo import Network, Problem, Settings, Start, Trace
from fedgo.beyond.evidence.rivals import fitted_kernel_ucb, fn_ucb
from fedgo.beyond.guarantees.guarantee import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.guarantees.optimist import exact_go_ucb, optimistic_ucb1
from fedgo.beyond.method.advised import ADVISED
from fedgo.beyond.method.epochs import Growing, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.networks import Relinearised
from fedgo.beyond.method.surrogates import Surrogate


def tabular(start: Start, settings: Settings) -> Trace:
    return exact_go_ucb(start, 3.0, gamma=settings.gamma)


def epochs(
    surrogate: Callable[[Problem], Surrogate | Sequence[Surrogate]], **options: object
) -> Callable[..., Trace]:
    """Epochs of a surrogate for the problem at hand."""

    def played(problem: Problem, clients: int, rounds: int) -> Trace:
        return surrogate_ucb(problem, surrogate(problem), clients, rounds, **options)

    return played


def network(problem: Problem) -> Network:
    return Network(problem.arms.shape[-1], 3)


LEARNERS_BEYOND = {
    "Advised": ADVISED.play,
    "UCB1, counted": from_scratch(optimistic_ucb1, 0.3),
    "Exact intervals": from_start(tabular),
    "Guard": from_start(guarded_fed_go_ucb, guarantee=Guarantee(3.0, 0.1)),
    "FN-UCB": lambda problem, clients, rounds: fn_ucb(
        problem, clients, clients * rounds, Settings(0.1, 0.5**2, 0.5), hidden=4
    ),
    "Fitted kernel": fitted_kernel_ucb,
    "Gaussian process": epochs(lambda problem: GaussianProcess()),
    "Network again": epochs(lambda problem: Relinearised(network(problem)), until=Growing(1.5)),
    "Network, guarded": epochs(lambda problem: Relinearised(network(problem)), guarantee=Guarantee(3.0, 0.1)),
}
