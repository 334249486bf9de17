"""The ablation of "Linearising again": surrogates that differ in one thing each, tuned alike, and its record.

Every variant chooses its κ among `KAPPAS` on instances of the tuning seed, which no evaluation uses.
``python -m fedgo.experiments.ablation few`` (or ``many``) computes a regime and writes its table of
`fedgo.experiments.record`,
with the names of variants behind it these only, and leaves the other rows; each says when it was made, and from what.
What is finished is kept in book/_traces, so that an interrupted one goes on where it was.
"""

import argparse
import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedgo._checks import on_cpu, require
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.epochs import Event, Growing, Planning, each_arm, surrogate_ucb
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import (
    ByEvidence,
    GaussianProcess,
    Gelu,
    LinearisedOnce,
    Relinearised,
    Surrogate,
)
from fedgo.experiments import record, store
from fedgo.experiments.comparison import GO_SETTINGS, HIDDEN, TUNING_SEED, tuned
from fedgo.experiments.summaries import total
from fedgo.experiments.tune import KEPT, commit
from fedgo.network import Network
from fedgo.phase_one import phase_one_length, shared_start
from fedgo.problem import Problem
from fedgo.problems import hartmann6
from fedgo.trace import Trace

KAPPAS = (1.0, 2.0, 4.0, 8.0)
TUNING, RUNS = 10, 30  # runs of the tuning seed, and of the evaluation
GUARD_GAMMA = 0.3  # of the guard's event: fewer fits than its own threshold would ask for
_BATCH = 10


@dataclass(frozen=True)
class Variant:
    """A surrogate and how it is played; "either" is process or network by evidence, no ``model`` UCB1 on counts."""

    model: Literal["process", "network", "either", "once", None] = "process"
    planning: Planning = "joint"
    until: Growing | Event = field(default_factory=lambda: Growing(2.0))
    refit: bool = True
    gelu: bool = False
    effect: bool = True
    each_arm: bool = False
    informed: bool = True
    guarded: bool = False


# Of the processes and of the networks refitted, the first is the base; the others change one thing of it.
VARIANTS: Mapping[str, Variant] = {
    "process": Variant(),
    "process, each for itself": Variant(planning="own"),
    "process, samples": Variant(planning="thompson"),
    "process, event": Variant(until=Event(GO_SETTINGS.gamma)),
    "process, short epochs": Variant(until=Growing(1.3)),
    "process, fitted once": Variant(refit=False),
    "process, each arm first": Variant(each_arm=True),
    "process, guarded": Variant(guarded=True),
    "process or network": Variant("either"),
    "network, refitted": Variant("network"),
    "network, GELU": Variant("network", gelu=True),
    "network, no arm effect": Variant("network", effect=False),
    "network, as printed but refitted": Variant("network", "own", Event(GO_SETTINGS.gamma)),
    "network, linearised once": Variant("once"),
    "network, as printed with Phase I data": Variant("once", "own", Event(GO_SETTINGS.gamma)),
    "network, as printed": Variant("once", "own", Event(GO_SETTINGS.gamma), informed=False),
    "UCB1": Variant(None, "own", Event(GO_SETTINGS.gamma)),
}

# Each part with the variant that has it and the one that has not.
PARTS: Mapping[str, tuple[str, str]] = {
    "hyperparameters fitted anew": ("process", "process, fitted once"),
    "network refitted": ("network, refitted", "network, linearised once"),
    "network refitted, otherwise as printed": (
        "network, as printed but refitted",
        "network, as printed with Phase I data",
    ),
    "Phase I data in the model": ("network, as printed with Phase I data", "network, as printed"),
    "joint plan, not each for itself": ("process", "process, each for itself"),
    "joint plan, not samples": ("process", "process, samples"),
    "epochs that double, not the event": ("process", "process, event"),
    "epochs that double, not by 1.3": ("process", "process, short epochs"),
    "process, not network": ("process", "network, refitted"),
    "both by evidence, not the process": ("process or network", "process"),
    "GELU, not sigmoid": ("network, GELU", "network, refitted"),
    "an effect of every arm": ("network, refitted", "network, no arm effect"),
    "each arm first, not uniform": ("process, each arm first", "process"),
    "a guard, and its event": ("process, guarded", "process"),
}


@dataclass(frozen=True)
class Regime:
    """A problem with K = ``arms``, N = ``clients``, T = ``rounds``, the F that a guard is given, and who plays it."""

    problem: Callable[..., Problem]
    arms: int
    clients: int
    rounds: int
    value: float
    variants: tuple[str, ...]


REGIMES = {
    "few": Regime(hartmann6, 50, 20, 100, 8.4, tuple(n for n in VARIANTS if n != "process or network")),  # dear
    "many": Regime(
        hartmann6, 500, 20, 100, 8.4,
        ("process", "process, fitted once", "process or network", "network, refitted", "network, GELU",
         "network, linearised once"),
    ),
}  # fmt: skip


def stuck(trace: Trace) -> Tensor:
    """Whether a run ends on a wrong arm: never pulls the best one in the last tenth of its steps, (S,) bool."""
    return (trace.regret[:, -(trace.regret.shape[1] // 10) :] > 0).all(1)


@on_cpu
def play(regime: Regime, variant: Variant, kappa: float, problem: Problem) -> Trace:
    """``variant`` with κ = ``kappa`` on ``problem``, T₀ + NT steps; for UCB1 κσ/√n is the width after all of them."""
    clients, rounds = regime.clients, regime.rounds
    steps = phase_one_length(clients, rounds) + clients * rounds
    network, start = Network(problem.arms.shape[-1], HIDDEN), None
    surrogate: Surrogate | tuple[Surrogate, ...]
    if variant.model is None:
        beta = (kappa * problem.sigma) ** 2 / (2 * math.log(steps))
        return optimistic_ucb1(problem, clients, steps, beta, GO_SETTINGS.gamma)
    process = GaussianProcess(refit=variant.refit)
    refitted = Relinearised(Gelu(*astuple(network)) if variant.gelu else network, effect=variant.effect)
    if variant.model == "once":
        start = shared_start(problem, network, clients, rounds, encoding="counts")
        surrogate = LinearisedOnce.at(start, lam())
    elif variant.model == "either":
        surrogate = ByEvidence((process, refitted))
    else:
        surrogate = process if variant.model == "process" else refitted
    exploration = None
    if variant.each_arm:  # out of the same budget
        exploration, rounds = each_arm(problem, regime.arms), (steps - regime.arms) // clients
    guarantee = Guarantee(regime.value, problem.sigma, gamma=GUARD_GAMMA) if variant.guarded else None
    return surrogate_ucb(
        problem, surrogate, clients, rounds, until=variant.until, planning=variant.planning, kappa=kappa,
        start=start, exploration=exploration, informed=variant.informed, guarantee=guarantee,
    )  # fmt: skip


@cache
def lam() -> float:
    """λ of the models linearised once: what `make tune` chose for Fed-GO-UCB with K = 50 on a hundred runs."""
    return float(tuned("hartmann6", "Fed-GO-UCB")["lam"])


class Row(NamedTuple):
    """One line of the record: a variant with one κ on ``runs`` runs of a seed, and of each run its final regret, 1
    where it is `stuck`, and the scalars sent; and when it was ``made``, from which ``commit`` and ``code``."""

    variant: str
    kappa: float
    seed: int
    runs: int
    regret: str
    stuck: str
    scalars: str
    made: str
    commit: str
    code: str


class Outcome(NamedTuple):
    """What the record says of a variant with κ = ``kappa``, (S,) each."""

    kappa: float
    regret: npt.NDArray[np.float64]
    stuck: npt.NDArray[np.float64]
    scalars: npt.NDArray[np.float64]


def measured(name: str, variant: str, kappa: float, runs: int, seed: int) -> Row:
    """`play` on ``runs`` runs of the regime ``name``; traces are read from the store where it has them."""
    regime, what = REGIMES[name], VARIANTS[variant]
    how: dict[str, Any] = {"ablation": asdict(what), "until": repr(what.until), "kappa": kappa}
    how |= {"size": (regime.arms, regime.clients, regime.rounds, regime.value), "hidden": HIDDEN}
    problem = regime.problem(runs, arms=regime.arms, seed=seed)

    def compute(some: Problem) -> Trace:
        """Ten runs at a time, which bounds the memory and changes nothing else."""
        first = range(0, len(some.runs), _BATCH)
        parts = [range(start, min(start + _BATCH, len(some.runs))) for start in first]
        return Trace.join([play(regime, what, kappa, some.only(*part)) for part in parts])

    how_made = store.Made(how, *MADE_BY)
    trace, now = store.stored(how_made, problem, compute), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lists = (total(trace, "regret"), stuck(trace).long().tolist(), total(trace, "communication").astype(int))
    regret, wrong, sent = (" ".join(map(str, part)) for part in lists)
    return Row(variant, kappa, seed, runs, regret, wrong, sent, now, commit(), how_made.code)


MADE_BY = (("fedgo.beyond.epochs", "fedgo.algorithms.controls"), ("paper/ablation.py",))


def best(rows: list[Row]) -> float:
    """The κ of least mean regret."""
    means = [np.mean(_numbers(row.regret)) for row in rows]
    return rows[int(np.argmin(means))].kappa


def compute(
    name: str, tuning: int = TUNING, runs: int = RUNS, variants: Collection[str] | None = None
) -> list[Row]:
    """All rows of the regime ``name``: every κ on ``tuning`` runs of the tuning seed, the `best` on ``runs`` others.

    With ``variants`` the rows of all others are the record's.
    """
    rows: list[Row] = []
    for variant in REGIMES[name].variants:
        if variants and variant not in variants:
            rows += [_row(cells) for cells in _rows(name) if cells["variant"] == variant]
            continue
        tried = [measured(name, variant, kappa, tuning, TUNING_SEED) for kappa in KAPPAS]
        rows += [*tried, measured(name, variant, best(tried), runs, 0)]
        print(name, variant, rows[-1].kappa, f"{_numbers(rows[-1].regret).mean():.0f}", flush=True)
    return rows


def recorded(name: str) -> dict[str, Outcome]:
    """What the record says of every variant of the regime ``name``, with the κ that it chose."""
    require(name in REGIMES, "name", name, f"choose one of {tuple(REGIMES)}")
    return {row["variant"]: _outcome(row) for row in _rows(name) if row["seed"] == "0"}


def tried(name: str, variant: str) -> list[Outcome]:
    """The same of all `KAPPAS`, on the tuning runs."""
    wanted = variant, str(TUNING_SEED)
    return [_outcome(row) for row in _rows(name) if (row["variant"], row["seed"]) == wanted]


def origins(name: str) -> list[str]:
    """From which commits the rows of the regime ``name`` were made, and when the last of each, the oldest first."""
    made = {row["commit"]: row["made"] for row in sorted(_rows(name), key=lambda row: row["made"])}
    return [f"{when} from the commit {commit}" for commit, when in made.items()]


def _rows(name: str) -> tuple[Mapping[str, str], ...]:
    return record.read(f"ablation_{name}").rows


def _row(cells: Mapping[str, str]) -> Row:
    """The row that was written as ``cells``."""
    kinds: Mapping[str, Callable[[str], Any]] = {"kappa": float, "seed": int, "runs": int}
    return Row(*(kinds.get(part, str)(cells[part]) for part in Row._fields))


def _outcome(row: Mapping[str, str]) -> Outcome:
    regret, wrong, sent = (_numbers(row[part]) for part in ("regret", "stuck", "scalars"))
    return Outcome(float(row["kappa"]), regret, wrong, sent)


def afresh(name: str, variant: str, runs: int) -> Trace:
    """The first ``runs`` of the evaluation played again with the recorded κ, past every store."""
    regime = REGIMES[name]
    problem = regime.problem(runs, arms=regime.arms, seed=0)
    return play(regime, VARIANTS[variant], recorded(name)[variant].kappa, problem)


def _numbers(cell: str) -> npt.NDArray[np.float64]:
    return np.array(cell.split(), dtype=np.float64)


def main() -> None:
    """Compute one regime, or some variants of it, and write its table."""
    parser = argparse.ArgumentParser(prog="python -m fedgo.experiments.ablation", description=__doc__)
    parser.add_argument("regime", choices=list(REGIMES))
    parser.add_argument("variants", nargs="*", help="compute these only and leave the other rows")
    options = parser.parse_args()
    name, some = options.regime, tuple(options.variants)
    for one in some:
        require(one in REGIMES[name].variants, "a variant", one, f"choose of {REGIMES[name].variants}")
    torch.set_num_threads(1)
    os.environ.setdefault(store.FOLDER, str(KEPT.parent))
    about = {"command": f"python -m fedgo.experiments.ablation {name}", "seed": f"0, chosen on {TUNING_SEED}"}
    print(record.write(f"ablation_{name}", about, Row._fields, compute(name, variants=some)))


if __name__ == "__main__":
    main()
