"""The regime map: who is to be run when, on a base regime for every family of problems and one factor moved at a time.

Every player (`fedgo.experiments.players`) has one setting for all regimes, chosen from four on instances of
`TUNING_SEED` of
the regimes `TUNING`: the least geometric mean over the regimes of 1 + the mean final regret. What is measured is kept
in tables of the package, a few runs of one player on one regime in a row, with the code that made it; ``make map``
computes what is missing or made by other code, a few runs of every cell first, so that a map is whole whenever it ends,
and ``make map KEEP=1`` only what is missing.
"""

import argparse
import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple, get_type_hints

from filelock import FileLock, Timeout

from fedgo._checks import require
from fedgo.experiments import record
from fedgo.experiments.code import digest
from fedgo.experiments.comparison import TUNING_SEED
from fedgo.experiments.players import FAMILIES, PLAYERS, Job, Regime, Row, code_of, measure
from fedgo.experiments.tune import commit

TABLE, TUNED = "regimes", "regimes_tuned"

REGIMES = (
    Regime("hartmann6", arms=50),
    Regime("hartmann6"),
    Regime("cosine8"),
    Regime("cosine8", arms=50),
    Regime("magic rows", sigma=0.5),
    Regime("network 15"),
    Regime("hartmann6", sigma=0.5),
    Regime("hartmann6", rounds=20),
    Regime("magic", arms=20, clients=100),
    Regime("shuttle", arms=20, clients=100),
    Regime("cosine8 printed"),
    Regime("levy10"),
    Regime("network 6"),
    Regime("magic rows", arms=50, sigma=0.5),
    Regime("hartmann6", arms=50, sigma=0.5),
    Regime("hartmann6", arms=50, rounds=20),
    Regime("hartmann6", arms=50, rounds=1000),
    Regime("two ridges"),
    Regime("hartmann6", rounds=1000),
    Regime("hartmann6", arms=5000),
)
TUNING = (Regime("hartmann6"), Regime("cosine8", arms=50))
TUNING_FEW = (Regime("hartmann6", arms=50), Regime("cosine8", arms=50))
TUNING_RUNS = 5

MAIN = ("UCB1", "Fed-GO-UCB", "process", "network")
GUARDED = tuple(name for name, player in PLAYERS.items() if player.guarded)
WIDE = ("kernel", "FN-UCB", "One-GO-UCB", "Fed-GLB-UCB")  # up to 500 arms and 100 rounds
FEW = ("N-GO-UCB", "DisLinUCB", "ApproxDisKernelUCB")  # 50 arms, and one regime with many
LEAST = 10  # runs that a cell should have
CERTIFIED = 20  # pulls for each arm from which a guard certifies something
SMALL = tuple(regime for regime in REGIMES if regime.arms <= 50)
DEAR = tuple(r for r in REGIMES if r.arms > 500 or r.rounds > 100 or r.family == "two ridges")
CHEAP = tuple(regime for regime in REGIMES if regime not in DEAR)
# what is computed, in this order: the players, where, and the runs
STAGES = (
    (MAIN, CHEAP, range(0, 5)),
    (GUARDED, CHEAP, range(0, 5)),
    (MAIN, DEAR, range(0, 5)),
    (MAIN, CHEAP, range(5, 10)),
    (WIDE[:2], CHEAP, range(0, 5)),
    ((*WIDE, *FEW), SMALL, range(0, 5)),
    (GUARDED, CHEAP, range(5, 10)),
    (("UCB1", "process"), CHEAP, range(10, 30)),
    ((*GUARDED, *WIDE, *FEW), REGIMES, range(0, 5)),
    ((*MAIN, *GUARDED), DEAR, range(5, 10)),
    (FEW, SMALL, range(5, 10)),
    (WIDE, REGIMES, range(5, 10)),
    (("Fed-GO-UCB", "network"), CHEAP, range(10, 30)),
    (GUARDED, CHEAP, range(10, 30)),
)


def why_not(regime: Regime, player: str) -> str:
    """Why the map has no cell of ``player`` on ``regime``; empty if it has one."""
    if player in GUARDED and FAMILIES[regime.family].value is None:
        return "no bound"
    if player in GUARDED and regime.clients * regime.rounds < CERTIFIED * regime.arms:
        return "no certificate"
    if player in GUARDED and regime.arms > 50:
        return "dear"
    if player in (*WIDE, *FEW) and (regime.arms > 500 or regime.rounds > 100):
        return "dear"
    if player in FEW and regime.arms > 50 and regime != TUNING[0]:
        return "dear"
    return ""


def tuning(player: str) -> tuple[Regime, ...]:
    """The regimes on which ``player`` is tuned; those of the `FEW` have few arms."""
    return TUNING_FEW if player in FEW else TUNING


class Chosen(NamedTuple):
    """A ``setting`` of a ``player`` and the geometric ``mean`` of its regrets, 1 added, over the tuning regimes."""

    player: str
    setting: str
    mean: float


def jobs() -> list[Job]:
    """What the map needs at the settings chosen, in the order of `STAGES`."""
    best, found = {row.player: row.setting for row in chosen()}, []
    for players, where, runs in STAGES:
        for regime, name in product(where, players):
            if not why_not(regime, name):
                setting = best[PLAYERS[name].setting_of or name]
                if PLAYERS[name].guarded:
                    setting = f"{setting} value={FAMILIES[regime.family].value}"
                found.append(Job(regime, name, setting, 0, runs))
    return [*dict.fromkeys(found)]


def planned() -> Counter[tuple[Regime, str]]:
    """The runs that every cell is to have."""
    plan: Counter[tuple[Regime, str]] = Counter()
    for job in jobs():
        plan[job.regime, job.player] += len(job.runs)
    return plan


def tuning_jobs() -> Iterator[Job]:
    """Every setting of every grid on every regime of the player's tuning."""
    for name, player in PLAYERS.items():
        for regime, setting in product(tuning(name), player.grid):
            yield Job(regime, name, record.text(setting), TUNING_SEED, range(TUNING_RUNS))


def rows(table: str = TABLE) -> list[Row]:
    """The rows of the map, or of its tuning."""
    types = get_type_hints(Row)
    return [
        Row(**{name: types[name](cell) for name, cell in found.items()}) for found in record.read(table).rows
    ]


def known(table: str) -> dict[tuple[str, str, str, int, int], Row]:
    """The rows of ``table`` by their keys; none where there is no such table yet."""
    record.read.cache_clear()  # another process may have written
    return {row[:5]: row for row in rows(table)} if (record.DATA / f"{table}.csv").is_file() else {}


def numbers(cell: str) -> list[float]:
    """The numbers of a cell."""
    return [float(part) for part in cell.split()]


def chosen(table: str = TUNED) -> list[Chosen]:
    """Of every player with a grid the setting with the least geometric mean over the tuning regimes of 1 + regret."""
    means: dict[tuple[str, str], list[float]] = {}
    for row in rows(table):
        regrets = numbers(row.regrets)
        means.setdefault((row.player, row.setting), []).append(math.fsum(regrets) / len(regrets))
    whole = [
        Chosen(*name, round(math.expm1(math.fsum(map(math.log1p, parts)) / len(parts)), 2))
        for name, parts in means.items()
        if len(parts) == len(tuning(name[0]))
    ]
    players = dict.fromkeys(one.player for one in whole)
    return [min((one for one in whole if one.player == name), key=lambda one: one.mean) for name in players]


def compute(
    wanted: Sequence[Job],
    table: str,
    executor: Executor | None = None,
    seconds: float = math.inf,
    keep: bool = False,
) -> None:
    """Fill ``table`` with the rows of ``wanted`` that it lacks, and, unless told to ``keep`` them, those of other code.

    Several processes at once share the work, and after ``seconds`` none is begun any more.
    """
    end = time.monotonic() + seconds
    tasks = [(job, table, wanted, end, keep) for job in _missing(wanted, table, keep)]
    if executor is None:
        found: Iterator[str] = (_fill(*task) for task in tasks)
    else:
        found = (f.result() for f in as_completed([executor.submit(_fill, *task) for task in tasks]))
    for number, said in enumerate(found, 1):
        if said:
            print(f"{number} of {len(tasks)}: {said}", flush=True)


def _missing(wanted: Sequence[Job], table: str, keep: bool = False) -> list[Job]:
    there = known(table)
    return [
        job
        for job in wanted
        if job.key not in there or not (keep or there[job.key].code == code_of(job.player))
    ]


def _fill(job: Job, table: str, wanted: Sequence[Job], end: float, keep: bool) -> str:
    """Measure ``job`` unless somebody else does or did, write its row into ``table``, and say so."""
    place = Path(gettempdir())
    try:
        with FileLock(place / f"fedgo-{digest([table, *map(str, job.key)])}.lock", timeout=0):
            if time.monotonic() > end or not _missing([job], table, keep):
                return ""
            row = measure(job)
            with FileLock(place / f"fedgo-{table}.lock"):
                there = known(table) | {row[:5]: row}
                about = {
                    "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                    "command": "make map",
                    "commit": commit(),
                }
                keys = dict.fromkeys([other.key for other in wanted if other.key in there])
                about["rows"] = f"{len(keys)} of {len(wanted)}"
                record.write(table, about, Row._fields, [there[key] for key in keys])
    except Timeout:
        return ""
    return f"{row.regime}, {row.player}, {row.seconds} s a run"


def main() -> None:
    """Tune, then measure."""
    parser = argparse.ArgumentParser(prog="make map", description=__doc__)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after so many")
    parser.add_argument("--keep", action="store_true", help="the rows of other code too")
    options = parser.parse_args()
    require(options.workers >= 1, "workers", options.workers, "give at least one process")
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        executor = pool if options.workers > 1 else None
        first = [*tuning_jobs()]
        compute(first, TUNED, executor, options.seconds, options.keep)
        if not _missing(first, TUNED, options.keep):
            compute(jobs(), TABLE, executor, options.seconds, options.keep)


if __name__ == "__main__":
    main()
