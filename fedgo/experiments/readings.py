"""Players for other readings of the paper's setup, for other constants of Fed-GO-UCB, and for other thresholds.

A reading is an interpretation of what the paper leaves open. The results of these players show whether the comparison
of the algorithms would change. Each player plays with the settings that were tuned for the reading that is used
everywhere else, that of `fedgo.experiments.world.EXPERIMENTS`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.experiments.players import Player, grid
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.runner import Sweep
from fedgo.experiments.world import EXPERIMENTS, HIDDEN, Setting, World
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.phase_one import shared_start
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.problems import cosine8, hartmann6
from fedgo.trace import Trace

TRIO = ("Fed-GO-UCB", "DisLinUCB", "UCB1, shared")  # three fast algorithms of different kinds
OWN = "as in the book"  # the name of the player of Fed-GO-UCB with the book's own constants
LEAST = 10  # the number of pulls of the shortest Phase I

Alteration = Callable[[Problem], Problem]


def _arms_of(run: int) -> Alteration:
    """Return a function that gives all runs of a Hartmann6 problem the 50 arms of the run with the number ``run``.

    The arms and their mean rewards are then the same in all runs. The noise, and the other random numbers that an
    algorithm uses, still differ between the runs.
    """

    def change(problem: Problem) -> Problem:
        """Return ``problem`` with the arms and mean rewards of the run with the number ``run`` in each of its runs.

        This run is one of the problem Hartmann6 with 50 arms and the seed of ``problem``.
        """
        alone, runs = hartmann6((run,), seed=problem.seed), len(problem.runs)
        arms, means = alone.arms.repeat_interleave(runs, 0), alone.means.repeat_interleave(runs, 0)
        return replace(problem, arms=arms, means=means)

    return change


def _standardised(problem: Problem) -> Problem:
    """Return ``problem`` with its features x shifted and scaled to mean 0 and standard deviation 1/√d_x over the arms.

    This is done in each run for each of the d_x features, so that the mean of |x|² over the arms is 1. If a feature is
    the same for all arms of a run, a ``ValueError`` is raised.
    """
    spread = problem.arms.std(1, keepdim=True, correction=0) * problem.arms.shape[-1] ** 0.5
    return replace(problem, arms=(problem.arms - problem.arms.mean(1, keepdim=True)) / spread)


# For each reading, the name of its experiment and the change of its problem.
READINGS: Mapping[str, tuple[str, Alteration]] = {
    "Cosine8": ("cosine8", lambda problem: problem),
    "Cosine8, sign as printed": (
        "cosine8",
        lambda problem: cosine8(problem.runs, seed=problem.seed, negated=False),
    ),
    "Hartmann6": ("hartmann6", lambda problem: problem),
    **{f"Hartmann6, arms of run {run + 1}": ("hartmann6", _arms_of(run)) for run in range(3)},
    "MagicTelescope": ("magic", lambda problem: problem),
    "MagicTelescope, Bernoulli": ("magic", lambda problem: replace(problem, reward="bernoulli")),
    "MagicTelescope, other class": ("magic", lambda problem: replace(problem, means=1 - problem.means)),
    "MagicTelescope, z-scores": ("magic", _standardised),
}

# For each choice of constants on Hartmann6, the constants that differ from the book's own: the length of Phase I, the
# hidden units of the network, the settings of the oracle, or the noise.
CONSTANTS: Mapping[str, Mapping[str, Any]] = {
    OWN: {},
    **{f"T₀ = {length}": {"length": length} for length in (LEAST, 20, 90, 180, 360)},
    **{f"{units} hidden units": {"hidden": units} for units in (5, 10, 50)},
    "n = 6,000": {"langevin": Langevin(6000, 0.3)},
    "τ₁ = 0.1": {"langevin": Langevin(2000, 0.1)},
    "τ₁ = 0.1, n = 6,000": {"langevin": Langevin(6000, 0.1)},
    **{f"σ = {sigma:g}": {"sigma": sigma} for sigma in (0.01, 0.3, 1.0)},
}

# The thresholds γ, the algorithms that have a threshold, and all algorithms that send anything.
GAMMAS = (0.1, 1.0, 10.0, math.inf)
WITH_GAMMA = ("Fed-GO-UCB", "DisLinUCB", "ApproxDisKernelUCB")
SENDERS = (*WITH_GAMMA, "Fed-GLB-UCB", "One-GO-UCB", "Kernel UCB, at once", "UCB1, shared")


def reading_players(tune: Sweep) -> dict[str, Player]:
    """Return a dictionary with a player for each name in `READINGS`, readings of the paper's setup, and in `CONSTANTS`.

    A player for a reading plays each of three algorithms (`TRIO`) on a problem that the reading has changed. It uses
    the settings that the study ``tune`` has chosen on the unchanged problem, according to its stored table. A player
    for a choice of constants is meant for Hartmann6: it plays Fed-GO-UCB with these constants and the setting that
    ``tune`` has chosen on Hartmann6, and its trace is cut to the first 10 + NT steps, for N clients and T rounds.
    """
    players = {name: _reading(experiment, change, tune) for name, (experiment, change) in READINGS.items()}
    return players | {name: _constant(tune, **values) for name, values in CONSTANTS.items()}


def _reading(experiment: str, change: Alteration, tune: Sweep) -> Player:
    """Return the player of a reading of the setup, which plays the three algorithms of `TRIO` on a changed problem.

    Each setting in its grid has the name of one of these algorithms as "algorithm".

    Args:
        experiment: The name of the experiment whose problem is changed, and for which the settings were tuned.
        change: A function that returns the changed problem.
        tune: The study that has chosen the settings.
    """

    def play(world: World, setting: Setting) -> Trace:
        """Play an algorithm on ``world`` with its problem changed, and return the trace.

        The algorithm is that named by the entry "algorithm" of ``setting``. It plays with the setting that the study
        ``tune`` has chosen for it.
        """
        algorithm, changed = setting["algorithm"], replace(world, problem=change(world.problem))
        return ALGORITHMS[algorithm].call(changed, tune.setting(algorithm, EXPERIMENTS[experiment]))

    return Player(play, grid(algorithm=TRIO))


def _constant(tune: Sweep, hidden: int = HIDDEN, sigma: float = 0.1, **phase_one: Any) -> Player:
    """Return a player of Fed-GO-UCB with other constants, and with the setting tuned on Hartmann6.

    Its traces are cut to the first 10 + NT steps, with N clients and T rounds. Phase I has at least 10 pulls (`LEAST`),
    so that the traces of all such players have the same length.

    Args:
        tune: The study that has chosen the setting.
        hidden: The number of hidden units of the network.
        sigma: The standard deviation σ of the noise, which replaces that of the problem.
        phase_one: Further arguments of `fedgo.phase_one.shared_start`, such as ``length``, the number of pulls of Phase
            I, which must be at least 10.
    """

    def play(world: World, setting: Setting) -> Trace:
        """Play Fed-GO-UCB with these constants on the problem of ``world``, and return the first 10 + NT steps.

        The result is the trace of N clients in T rounds without its last steps, if Phase I has more than 10 pulls.
        ``setting`` is not used.
        """
        problem = replace(world.problem, sigma=sigma)
        network = Network(problem.arms.shape[-1], hidden)
        start = shared_start(problem, network, world.clients, world.rounds, **phase_one)
        tuned = tune.setting("Fed-GO-UCB", EXPERIMENTS["hartmann6"])
        trace = fed_go_ucb(start, Settings(**tuned))
        pulls, arrays = (
            LEAST + world.clients * world.rounds,
            ("arm", "reward", "regret", "up", "down", "sync"),
        )
        return replace(trace, **{name: getattr(trace, name)[:, :pulls] for name in arrays})

    return Player(play, grid(algorithm=TRIO[:1]))


def senders(tune: Sweep) -> dict[str, Player]:
    """Return a dictionary with a player for the name of each algorithm in `SENDERS`, whose clients send messages.

    When they play, they use the settings that the study ``tune`` has chosen, according to its stored table. The
    algorithms in `WITH_GAMMA` play with each of the thresholds γ in `GAMMAS` in place of 1; γ decides when the clients
    synchronise.
    """
    return {name: _sender(name, tune) for name in SENDERS}


def _sender(algorithm: str, tune: Sweep) -> Player:
    """Return the player of the algorithm with the name ``algorithm``, with one setting for each threshold γ.

    The thresholds, which the settings have as "threshold", are `GAMMAS` if the algorithm is in `WITH_GAMMA`. Otherwise
    there is the threshold 1 only, which is not used. The other parameters are those that the study ``tune`` has chosen.
    """

    def play(world: World, setting: Setting) -> Trace:
        """Play the algorithm on ``world`` with its tuned setting, and return the trace.

        If the algorithm is in `WITH_GAMMA`, the threshold of ``setting`` takes the place of its tuned γ. The world must
        have been made by a regime, because the setting is the one tuned for this regime.
        """
        assert world.regime is not None
        gamma = {"gamma": setting["threshold"]} if algorithm in WITH_GAMMA else {}
        return ALGORITHMS[algorithm].call(world, tune.setting(algorithm, world.regime) | gamma)

    return Player(play, grid(threshold=GAMMAS if algorithm in WITH_GAMMA else (1.0,)), dense=True)
