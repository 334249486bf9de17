"""The studies of the paper's part of the book: which players play which regimes, on how many runs.

A player is an algorithm with the settings that it may choose from, and a regime a problem with its sizes. ``python -m
fedgo.experiments NAME`` computes the table of a study.
"""

from collections.abc import Mapping

from fedgo.experiments import readings
from fedgo.experiments.halving import Rung
from fedgo.experiments.roster import ALGORITHMS, LINE_THREE
from fedgo.experiments.runner import Regimes, Sweep
from fedgo.experiments.world import EXPERIMENTS

CLAIM_RUNS, CLAIM_SEED = 30, 0  # the first runs of the claims, on which two studies repeat the verdicts
CLAIMED = ("regret", "scalars", "scalars_phase_two", "scalars_late")


# --- The paper's comparison: a setting for each algorithm on each problem

RUNGS = (Rung(32, 10), Rung(12, 30), Rung(8, 100))
EACH_ALONE: list[Regimes] = [(regime,) for regime in EXPERIMENTS.values()]


TUNE = Sweep(
    "tune",
    "successive halving for every algorithm of the paper's comparison on its four problems",
    ALGORITHMS,
    ("regret", "seconds"),
    chosen_on=lambda name: EACH_ALONE,
    rungs=lambda name: RUNGS,
    batch=100,
)
LINE3 = Sweep(
    "line3",
    "line 3 as printed: its own tuning, and the winners on the runs of the claims",
    LINE_THREE,
    CLAIMED,
    chosen_on=lambda name: [(EXPERIMENTS[e],) for e in ("hartmann6", "cosine8")],
    rungs=lambda name: (Rung(8, 30),),
    regimes=lambda name: [EXPERIMENTS[e] for e in ("hartmann6", "cosine8")],
    runs=lambda name, regime: CLAIM_RUNS,
    encoding="dense",
    batch=30,
)
# The setting of the paper's algorithm is chosen on the runs on which the claims are decided, which nobody can do
# beforehand. Its regret is about the lowest that the paper's authors may have had.
IN_SAMPLE = Sweep(
    "in_sample",
    "the paper's algorithm at the settings that are best on the runs of the claims themselves",
    {name: ALGORITHMS[name] for name in ("Fed-GO-UCB", "One-GO-UCB")},
    CLAIMED,
    chosen_on=lambda name: EACH_ALONE,
    rungs=lambda name: (Rung(32, CLAIM_RUNS),),
    tuning_seed=CLAIM_SEED,
    encoding="dense",
    batch=30,
)


ALTERED = Sweep(
    "readings",
    "other readings of the setup, and other constants of Fed-GO-UCB, at the settings tuned for the book's own",
    {name: readings.reading(*given, TUNE) for name, given in readings.READINGS.items()}
    | {name: readings.constant(TUNE, **values) for name, values in readings.CONSTANTS.items()},
    ("regret",),
    regimes=lambda name: [EXPERIMENTS[readings.READINGS.get(name, ("hartmann6",))[0]]],
    runs=lambda name, regime: 10 if name in readings.READINGS else 20,
)
BILLS = Sweep(
    "bills",
    "regret, and the scalars sent in the cheapest form and as matrices, by threshold",
    {name: readings.sender(name, TUNE) for name in readings.SENDERS},
    ("regret", "scalars", "scalars_dense"),
    regimes=lambda name: EXPERIMENTS.values(),
    runs=lambda name, regime: 10,
    encoding="cheapest",
)

STUDIES: Mapping[str, Sweep] = {study.name: study for study in (TUNE, LINE3, IN_SAMPLE, ALTERED, BILLS)}
