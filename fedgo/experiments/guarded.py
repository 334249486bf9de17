"""The guard on the paper's experiments, and what it is compared with on the same event; traces are kept in the store.

The guard's F is read off the formulas and not off the arms, since the best value itself would give the optimum away.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from fedgo._checks import count, require
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.guard import Guarantee, guarded_fed_go_ucb
from fedgo.experiments import store
from fedgo.experiments.comparison import ALGORITHMS, EXPERIMENTS, World, tuned, world
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.trace import Trace

SIGMA = 0.1  # the noise of all four problems
GAMMA = 0.3  # with which the guard synchronises about as often as Fed-GO-UCB with γ = 1

# Σ ᾱ of Hartmann's function; 8·(1 + 0.1) of the cosine mixture on [−1, 1]⁸; a share lies in [0, 1].
VALUES: Mapping[str, float] = {"hartmann6": 8.4, "cosine8": 8.8, "magic": 1.0, "shuttle": 1.0}

_BATCH = 50


def guarantee(name: str, **changes: Any) -> Guarantee:
    """What the guard is given on the experiment ``name``: F of `VALUES`, σ as it is, γ = `GAMMA`, and `Guarantee`'s own
    values, all but for ``changes``."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    return Guarantee(**{"value": VALUES[name], "sigma": SIGMA, "gamma": GAMMA} | changes)


def guarded(
    name: str,
    runs: int,
    seed: int = 0,
    rounds: int | None = None,
    informed: bool = True,
    setting: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Trace:
    """Guarded Fed-GO-UCB on ``runs`` runs of ``name``, given `guarantee` (name, ``changes``).

    ``rounds`` T is the experiment's unless given, ``setting`` (λ and β) the tuned one.
    """
    given = guarantee(name, **changes)
    setting = tuned(name, "Fed-GO-UCB") if setting is None else dict(setting)
    how = {"setting": setting, "guarantee": asdict(given), "informed": informed}

    def play(within: World) -> Trace:
        chosen = Settings(**{**setting, "encoding": within.encoding})
        return guarded_fed_go_ucb(within.problem, within.shared, chosen, given, informed)

    return _kept(name, runs, seed, rounds, guarded_fed_go_ucb, how, play)


def unguarded(name: str, runs: int, seed: int = 0, rounds: int | None = None, **changes: Any) -> Trace:
    """Fed-GO-UCB at its tuned setting but for ``changes`` of it, such as a γ or a patience."""
    setting = {**tuned(name, "Fed-GO-UCB"), **changes}
    parts = _batches(name, runs, seed, rounds)
    return Trace.join([ALGORITHMS["Fed-GO-UCB"].run(within, setting) for within in parts])


def counted(name: str, runs: int, seed: int = 0, rounds: int | None = None, gamma: float = GAMMA) -> Trace:
    """UCB1 on the guard's event with threshold ``gamma`` and its messages, at the tuned β of UCB1 on shared counts."""
    setting = {"beta": tuned(name, "UCB1, shared")["beta"], "gamma": gamma}

    def play(within: World) -> Trace:
        return optimistic_ucb1(within.problem, within.clients, within.steps, **setting)

    return _kept(name, runs, seed, rounds, optimistic_ucb1, {"setting": setting}, play)


@lru_cache(maxsize=16)
def _world(name: str, first: int, last: int, seed: int, rounds: int) -> World:
    """So that several players share a Phase I."""
    return replace(world(name, range(first, last), seed), rounds=rounds)


def _batches(name: str, runs: int, seed: int, rounds: int | None) -> list[World]:
    """The runs fifty at a time, which bounds the memory and changes nothing else."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    count("runs", runs, "give at least one run")
    rounds = EXPERIMENTS[name].rounds if rounds is None else count("rounds", rounds, "give T, at least one")
    starts = range(0, runs, _BATCH)
    return [_world(name, first, min(first + _BATCH, runs), seed, rounds) for first in starts]


def _kept(
    name: str,
    runs: int,
    seed: int,
    rounds: int | None,
    player: Callable[..., Trace],
    how: Mapping[str, Any],
    play: Callable[[World], Trace],
) -> Trace:
    """All batches of ``play``, from the store where there is one, which knows them by ``player`` and ``how``."""
    traces = []
    for within in _batches(name, runs, seed, rounds):
        size = (within.clients, within.rounds, within.encoding)
        what = {"algorithm": f"{player.__module__}.{player.__name__}", "size": size} | dict(how)
        files = ("paper/experiments.py", "paper/guarded.py")

        def compute(problem: Problem, within: World = within) -> Trace:
            same = problem is within.problem  # then Phase I may be there already
            return play(within if same else replace(within, problem=problem))

        traces.append(store.stored(store.Made(what, (player.__module__,), files), within.problem, compute))
    return Trace.join(traces)
