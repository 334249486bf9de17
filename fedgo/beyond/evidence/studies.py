"""The studies beyond the paper, as lists of players, regimes and numbers of runs (``python -m fedgo.beyond NAME``).

A player is an algorithm with the settings that it may choose from. A regime is a problem with its numbers of arms,
rounds and clients and its noise. A study plays players on regimes and writes one table of results.
"""

from collections.abc import Mapping
from functools import partial

from fedgo.beyond.evidence.differing import CASES, HOW, JOINED, WARP_TUNING, measure_sites
from fedgo.beyond.evidence.families import PROBLEMS, TABLES, listed
from fedgo.beyond.evidence.libraries import LIBRARIES, OPTUNA, OURS, measure_library
from fedgo.beyond.evidence.measured import load
from fedgo.beyond.evidence.private import WAYS, play_regime
from fedgo.beyond.evidence.replays import BEFORE, CURVED, FEDERATED, SEARCHERS, measure_tables
from fedgo.beyond.evidence.roster import PLAYERS, VARIANTS, WITH_MANY, advised
from fedgo.experiments import studies as paper
from fedgo.experiments.halving import Rung
from fedgo.experiments.players import Player, grid, measured, play_uniform
from fedgo.experiments.runner import Regimes, Sweep
from fedgo.experiments.world import Regime, Setting

# a study beyond the paper: its problems, and the folder of its table
_Study = partial(Sweep, problems=PROBLEMS, folder=TABLES)

# --- The regime map

BASE = listed("base")
REGIMES = (*BASE, *listed("wider"), *listed("small_budgets"))


TUNING = (Regime("hartmann6", 500), Regime("cosine8", 50))


TUNING_FEW = (Regime("hartmann6", 50), Regime("cosine8", 50))


TUNING_RUNS = 5


MAIN = ("advised", "UCB1", "Fed-GO-UCB", "process", "network")


# The advice rests on these players, with fifty runs of each. The setting of "advised" rests on the study
# `BOLDNESS`; the others chose theirs on `ADVICE_TUNING`.
DECIDE = ("advised", "before", "UCB1, planned", "each arm first", "UCB1")


ADVICE_TUNING = listed("advice_tuning")


ADVICE_RUNGS = (Rung(12, 20), Rung(4, 100))


def map_runs(name: str, regime: Regime) -> int:
    """Return how many runs the study "map" gives to the player ``name`` on ``regime``, 0 if it does not play there.

    The players in `DECIDE` have 50 everywhere, but "each arm first" 20. Outside `BASE` the others in `MAIN` have 10 and
    the rest none. In `BASE` they have 30 where runs are cheap, and otherwise 5 or 10.
    """
    player = PLAYERS[name]
    if not player.plays_on(regime):
        return 0
    if name in DECIDE:
        return 20 if name == "each arm first" else 50
    if regime not in BASE:
        return 10 if name in MAIN else 0
    cheap = regime.arms <= 500 and regime.rounds <= 100 and regime.problem != "two ridges"
    if cheap and (name in MAIN or player.setting_of in MAIN):
        return 30
    return 5 if regime.arms > 50 and not player.plays_on(Regime("cosine8", 500)) else 10


def map_tuning(name: str) -> list[Regimes]:
    """Return the groups of regimes on which the player ``name`` of the study "map" chooses its setting.

    A regime is a problem with its sizes, and a setting gives the parameters of the player's algorithm. The list is
    empty if the player has only one setting, as every player has that takes its setting from another one. Otherwise the
    list has one group: `ADVICE_TUNING` for a player in `DECIDE` (those on which the advice rests); `TUNING`, Hartmann6
    with 500 arms and Cosine8 with 50, for another player that plays Cosine8 with 500 arms; and `TUNING_FEW`, both
    problems with 50 arms, for the rest.
    """
    if len(PLAYERS[name].grid) == 1:
        return []
    if name in DECIDE:
        return [ADVICE_TUNING]
    return [TUNING if PLAYERS[name].plays_on(Regime("cosine8", 500)) else TUNING_FEW]


MAP = _Study(
    "map",
    "who is to be run when: every player at one setting for all regimes, the scalars as packed as may be",
    PLAYERS,
    ("regret", "late_regret", "scalars", "scalars_dense", "synchronisations", "seconds"),
    chosen_on=map_tuning,
    rungs=lambda name: ADVICE_RUNGS if name in DECIDE else (Rung(4, TUNING_RUNS),),
    regimes=lambda name: REGIMES,
    runs=map_runs,
    batch=5,
    tail=DECIDE,
)


# --- How strongly the recommended method explores: settings compared at budgets of 100, 400, 2,000 and 20,000 pulls

# u is the weight of exploration for an arm that nobody has pulled. Candidates differ from the former setting in whether
# few arms are all pulled first, in u, in the weight of other arms, or in how often the model is fitted.
FORMER: Setting = {"few": 2.5, "least": 2.0, "bold": 0.55, "untried": 5.0, "kappa": 3.0, "growth": 1.6}
RULES: tuple[Setting, ...] = (
    FORMER,
    {**FORMER, "few": 0.0},
    {**FORMER, "few": 0.0, "least": 5.5, "untried": 5.5},
    {**FORMER, "bold": 0.45},
    {**FORMER, "kappa": 5.0},
    {**FORMER, "growth": 1.4},
    {**FORMER, "growth": 1.25},
)

RULE_TUNING = listed("rule_tuning")

BOLDNESS = _Study(
    "boldness",
    "how boldly the advised setting plays for which budget: every candidate on the same tuning runs",
    {"advised": Player(advised(), RULES)},
    ("regret", "late_regret", "seconds"),
    chosen_on=lambda name: [RULE_TUNING],
    rungs=lambda name: (Rung(len(RULES), 100),),
    batch=5,
    tail=("advised",),
)


FEW, WITH_500 = Regime("hartmann6", 50), Regime("hartmann6", 500)


ABLATION_RUNS = {"tuning": 10, "evaluation": 30}


def _ablated(name: str) -> list[Regimes]:
    """Return the groups of one regime each on which the variant ``name`` chooses κ, the weight of exploration."""
    return [(FEW,), (WITH_500,)] if name in WITH_MANY else [(FEW,)]


ABLATION = _Study(
    "ablation",
    "surrogates that differ in one thing each, every κ on the tuning runs and the best on others",
    VARIANTS,
    ("regret", "misses_best", "scalars"),
    chosen_on=_ablated,
    rungs=lambda name: (Rung(4, ABLATION_RUNS["tuning"]),),
    regimes=lambda name: (FEW, WITH_500),
    runs=lambda name, regime: ABLATION_RUNS["evaluation"] * ((regime,) in _ablated(name)),
    # the clients of these planned each for itself or on an event, or a network was linearised at ŵ₀ in every fit
    needs={name: "fedgo_at_d8000e1" for name, player in VARIANTS.items() if player.call is measured},
)


# Two families that the tuning used and two that it did not, each with budgets of 100, 400 and 2,000 pulls; and regimes
# of studies, in which one client makes one trial at a time.
FOUR = (("hartmann6", 500), ("cosine8", 500), ("levy10", 500), ("diabetes", 400))
ALL_LIBRARIES = Regime("hartmann6", 500, rounds=20)
STUDY_REGIMES = tuple(
    Regime(problem, 200, clients=1, problems=PROBLEMS) for problem in ("hartmann6", "diabetes")
)
RIVAL_REGIMES = tuple(
    Regime(problem, arms, rounds=t, problems=PROBLEMS) for t in (5, 20, 100) for problem, arms in FOUR
)


RIVALS = ("advised", "BoTorch, Thompson", OPTUNA)
EVERY_BUDGET = (*RIVAL_REGIMES, *STUDY_REGIMES)
# with a hundred pulls, `SEARCH` is compared with them too
SHORT = tuple(one for one in EVERY_BUDGET if one.clients * one.rounds == 100)
_BUDGETS_OF = {**dict.fromkeys(RIVALS, EVERY_BUDGET), OURS: SHORT}
ELSEWHERE = _Study(
    "elsewhere",
    "libraries that see every reward, and the advised settings, on the same arms and pulls",
    {name: Player(measured) for name in ("advised", *LIBRARIES)},
    ("regret", "gap", "seconds", "scalars"),
    regimes=lambda name: _BUDGETS_OF.get(name, (ALL_LIBRARIES,)),
    runs=lambda name, regime: 40 if name in _BUDGETS_OF else 5,
    batch=1,
    measure=measure_library,
    needs={OPTUNA: "optuna"},
)

DIFFER = _Study(
    "differ",
    "sites that differ: fitted as if alike, each by its own cells, each alone, and UCB1 under the joint plan",
    {name: Player(measured) for name in HOW} | {"differ": Player(measured, grid(warp=(0.0, 1.0)))},
    ("regret", "worst_site", "late_regret", "own", "joining", "seconds"),
    chosen_on=lambda name: WARP_TUNING if name == "differ" else (),
    rungs=lambda name: (Rung(2, 100),),
    regimes=lambda name: CASES,
    runs=lambda name, regime: 35 if name != "each alone" or regime in JOINED else 0,
    batch=5,
    measure=measure_sites,
)

# --- Tables of real experiments, searched offline

# The method was chosen with the help of the first two tables, one of numbers with noise and one of texts. The other
# four are for reporting.
CHOOSING, REPORTING = (
    ("crossed_barrel", "suzuki_b1"),
    ("direct_arylation", "p3ht", "autoam", "hybrid_perovskites"),
)
# In this study a regime has as its rounds the number of trials, and as its clients how many are chosen at a time. The
# federated case has 30 trials at each of three sites.
TABLE_REGIMES, FEDERATED_REGIMES = (
    tuple(
        Regime(name, len(load(name).options), load(name).noise, trials, batch)
        for trials, batch in sizes
        for name in names
    )
    for sizes, names in (
        (((30, 1), (30, 8), (100, 1), (100, 8)), CHOOSING + REPORTING),
        (((30, 3),), REPORTING),
    )
)


MEASURED = _Study(
    "tables",
    "tables of real experiments, searched offline by the advised setting, libraries and a random order",
    {name: Player(measured) for name in (*SEARCHERS, *FEDERATED, BEFORE)},
    (*("loss_tried", "loss_named", "regret", "distinct"), *CURVED, *("inside", "bound", "seconds")),
    regimes=lambda name: FEDERATED_REGIMES if name in FEDERATED else TABLE_REGIMES,
    runs=lambda name, regime: 20,
    batch=1,
    measure=measure_tables,
    needs={OPTUNA: "optuna", BEFORE: "fedgo_at_d8000e1"},
)

# --- What hiding every reward costs. For each budget ε a player chooses how often each arm is pulled first, and the
# model that is fitted then.

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# the longest regime, which three budgets play with the setting that they chose on the first regime of `HIDDEN_REGIMES`
LONGEST = Regime("hartmann6", 50, rounds=10_000)
HIDDEN_REGIMES = listed("hidden")
HIDDEN_PLAYERS = {
    f"{way}, {epsilon:g}": Player(
        partial(play_regime, way, epsilon),
        grid(batch=(4, 16, 64), model=("less noise", "as seen", "warped")),
        # the two ways add nearly the same noise, so that they share a setting
        setting_of=f"secure sum, {epsilon:g}" if way == "trusted server" else "",
    )
    for way in WAYS
    for epsilon in EPSILONS
} | {"uniform": Player(play_uniform)}


def hidden_runs(name: str, regime: Regime) -> int:
    """Return how many runs the study "private" gives to the player ``name`` on ``regime``, a problem with its sizes.

    They are 50, or 20 if there are more than 100 rounds. On the regime `LONGEST`, which has 10,000 rounds, the players
    with the privacy budget ε = 0.5 or 4, whose names end with ", 0.5" or ", 4", have none. ``name`` is not checked.
    """
    if regime == LONGEST and name.endswith((", 0.5", ", 4")):
        return 0
    return 50 if regime.rounds <= 100 else 20


PRIVATE = _Study(
    "private",
    "what hiding every reward costs, by the budget and by who adds the noise; and uniform play",
    HIDDEN_PLAYERS,
    ("regret", "late_regret", "scalars", "synchronisations", "seconds"),
    chosen_on=lambda name: [] if name == "uniform" else [(regime,) for regime in HIDDEN_REGIMES],
    rungs=lambda name: (Rung(9, 8),),
    regimes=lambda name: (*HIDDEN_REGIMES, LONGEST),
    runs=hidden_runs,
    batch=25,
)

BEYOND = (MAP, BOLDNESS, ABLATION, ELSEWHERE, MEASURED, DIFFER, PRIVATE)
# the studies of the paper and those beyond it
STUDIES: Mapping[str, Sweep] = {**paper.STUDIES, **{study.name: study for study in BEYOND}}
