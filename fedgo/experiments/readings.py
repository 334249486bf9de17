"""Players for other readings of the paper's setup, for other constants of Fed-GO-UCB, and for other thresholds.

A reading is an interpretation of what the paper leaves open. The results show whether the comparison of the algorithms
would change. Each player plays with the settings that the study ``tune`` has chosen, by its stored table, for the
reading that is used everywhere else (`fedgo.experiments.world.EXPERIMENTS`).
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
from fedgo.problems import hartmann6
from fedgo.trace import ARRAYS, Trace

TRIO = ("Fed-GO-UCB", "DisLinUCB", "UCB1, shared")  # three fast algorithms of different kinds
OWN = "as in the book"  # the name of the player of Fed-GO-UCB with the book's own constants
LEAST = 10  # the number of pulls of the shortest Phase I

Alteration = Callable[[Problem], Problem]


def _arms_of(run: int) -> Alteration:
    """Return a function that gives all runs of a Hartmann6 problem the arms and mean rewards of one run."""

    def change(problem: Problem) -> Problem:
        alone, runs = hartmann6((run,), seed=problem.seed), len(problem.runs)
        arms, means = alone.arms.repeat_interleave(runs, 0), alone.means.repeat_interleave(runs, 0)
        return replace(problem, arms=arms, means=means)

    return change


def _standardised(problem: Problem) -> Problem:
    """Return ``problem`` with features of mean 0 and standard deviation 1/√d_x over the arms of each run."""
    spread = problem.arms.std(1, keepdim=True, correction=0) * problem.arms.shape[-1] ** 0.5
    return replace(problem, arms=(problem.arms - problem.arms.mean(1, keepdim=True)) / spread)


# For each reading, the name of its experiment and the change of its problem.
READINGS: Mapping[str, tuple[str, Alteration]] = {
    "Cosine8": ("cosine8", lambda problem: problem),
    "Cosine8, sign as printed": ("cosine8", lambda problem: replace(problem, means=-problem.means)),
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


def reading(experiment: str, change: Alteration, tune: Sweep) -> Player:
    """Return the player of one of the `READINGS`; each setting in its grid names one of the algorithms of `TRIO`."""

    def play(world: World, setting: Setting) -> Trace:
        algorithm, changed = setting["algorithm"], replace(world, problem=change(world.problem))
        return ALGORITHMS[algorithm].call(changed, tune.setting(algorithm, EXPERIMENTS[experiment]))

    return Player(play, grid(algorithm=TRIO))


def constant(tune: Sweep, hidden: int = HIDDEN, sigma: float = 0.1, **phase_one: Any) -> Player:
    """Return the player of one of the `CONSTANTS`: Fed-GO-UCB with these and with the setting tuned on Hartmann6.

    Its traces are cut to the first 10 + NT steps, so that all such players have the same length (`LEAST`).
    """

    def play(world: World, setting: Setting) -> Trace:
        problem = replace(world.problem, sigma=sigma)
        network = Network(problem.arms.shape[-1], hidden)
        start = shared_start(problem, network, world.clients, world.rounds, **phase_one)
        tuned = tune.setting("Fed-GO-UCB", EXPERIMENTS["hartmann6"])
        trace = fed_go_ucb(start, Settings(**tuned))
        pulls = LEAST + world.clients * world.rounds
        return replace(trace, **{name: getattr(trace, name)[:, :pulls] for name in ARRAYS})

    return Player(play, grid(algorithm=TRIO[:1]))


def sender(algorithm: str, tune: Sweep) -> Player:
    """Return the player of one of the `SENDERS` at each of the `GAMMAS`, which take the place of the tuned γ."""

    def play(world: World, setting: Setting) -> Trace:
        assert world.regime is not None
        gamma = {"gamma": setting["threshold"]} if algorithm in WITH_GAMMA else {}
        return ALGORITHMS[algorithm].call(world, tune.setting(algorithm, world.regime) | gamma)

    return Player(play, grid(threshold=GAMMAS if algorithm in WITH_GAMMA else (1.0,)), dense=True)
