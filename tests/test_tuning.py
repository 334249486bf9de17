"""What the tables of the tunings say: which setting was chosen."""

from itertools import pairwise

from fedgo.experiments.results import judged, ranked, tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.studies import RUNGS
from fedgo.experiments.world import EXPERIMENTS


def test_a_winner_is_the_best_of_the_last_rung_and_leaders_stay():
    for name, regime in EXPERIMENTS.items():
        for algorithm in ALGORITHMS:
            rungs = ranked("tune", algorithm, (regime,))
            rows = judged(name, algorithm)
            last = rows[rows["runs"] == rows["runs"].max()]
            best = last.loc[last["regret"].idxmin()]
            assert {part: best[part] for part in rungs[-1][0]} == rungs[-1][0] == tuned(name, algorithm)
            assert all(wide[0] in narrow for wide, narrow in pairwise(rungs))
            sizes = [min(rung.settings, len(ALGORITHMS[algorithm].grid)) for rung in RUNGS]
            assert [len(rung) for rung in rungs] == sizes
