"""Two ways to call a learner: with what Phase I prepares, and from scratch."""

from collections.abc import Callable

from fedgo import Langevin, Network, Problem, Settings, Trace, phase_one_length, shared_start

SETTINGS = Settings(0.2, 0.3, 0.5)
FEW = Langevin(rounds=5)


def from_start(play: Callable[..., Trace], **options: object) -> Callable[[Problem, int, int], Trace]:
    """What Phase I prepares, for all clients together."""

    def played(problem: Problem, clients: int, rounds: int) -> Trace:
        start = shared_start(problem, Network(problem.arms.shape[-1], 4), clients, rounds, FEW)
        return play(start, SETTINGS, **options)

    return played


def from_scratch(play: Callable[..., Trace], *settings: object) -> Callable[[Problem, int, int], Trace]:
    """What makes all T₀ + NT steps itself."""

    def played(problem: Problem, clients: int, rounds: int) -> Trace:
        steps = phase_one_length(clients, rounds) + clients * rounds
        return play(problem, clients, steps, *settings)

    return played
