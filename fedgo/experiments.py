"""The paper's experiments (Section 6) as frozen data: problems, sizes, and the settings used for them."""

from collections.abc import Callable
from dataclasses import dataclass

from fedgo.algorithms.go_ucb import Start, fed_go_ucb, n_go_ucb, one_go_ucb, private_start, shared_start
from fedgo.network import Network
from fedgo.oracle import Langevin
from fedgo.phase_two import Settings
from fedgo.problem import Problem, clustered, cosine8, hartmann6
from fedgo.simulate import Trace


@dataclass(frozen=True)
class Experiment:
    """One row of Figure 2 or 3: N = ``clients``, T = ``rounds``, and ``problem(runs, seed=…)``."""

    problem: Callable[..., Problem]
    clients: int
    rounds: int


EXPERIMENTS = {
    "hartmann6": Experiment(hartmann6, clients=20, rounds=100),
    "cosine8": Experiment(cosine8, clients=20, rounds=100),
    "magic": Experiment(lambda runs, **options: clustered("magic", runs, **options), 100, 100),
    "shuttle": Experiment(lambda runs, **options: clustered("shuttle", runs, **options), 100, 100),
}

HIDDEN = 25  # units of the network; d_w = 25 d_x + 51

# One setting for the three GO algorithms on all four problems, from a coarse look at λ, β ∈ {0.01, …, 10} and
# γ ∈ {0.1, …, 10} on instances of TUNING_SEED, which no evaluation uses. The paper gives none of the three.
GO_SETTINGS = Settings(lam=0.01, beta=0.1, gamma=1.0)
TUNING_SEED = 1000


def starts(
    problem: Problem, clients: int, rounds: int, langevin: Langevin | None = None
) -> tuple[Start, Start]:
    """Phase I of the GO algorithms on ``problem``: the oracle that all clients share, and one per client."""
    network = Network(problem.arms.shape[-1], HIDDEN)
    shared = shared_start(problem, network, clients, rounds, langevin)
    return shared, private_start(problem, network, clients, rounds, langevin)


def go_traces(
    problem: Problem, clients: int, rounds: int, settings: Settings = GO_SETTINGS
) -> dict[str, Trace]:
    """The traces of Fed-GO-UCB, One-GO-UCB and N-GO-UCB on ``problem``, by name."""
    shared, private = starts(problem, clients, rounds)
    traces = [
        fed_go_ucb(problem, shared, settings),
        one_go_ucb(problem, shared, settings),
        n_go_ucb(problem, private, settings),
    ]
    return {trace.algorithm: trace for trace in traces}
