"""What is embedded in a page for its reader to play with is what the runs did."""

import json
import math
import re

import pytest
from instances import BRIEF, instance

from fedgo import Settings, fed_go_ucb, shared_start
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.world import World
from fedgo.pages import explorer

SEED = 4  # a problem of several clients and rounds on which the event fires, and not always


@pytest.fixture(scope="module")
def played():
    """Fed-GO-UCB on a small problem: its start, its trace and its settings."""
    problem, network, _, _, _ = instance(SEED)
    start, settings = shared_start(problem, network, 4, 12, langevin=BRIEF), Settings(0.1, 0.1, 2.0)
    return start, fed_go_ucb(start, settings), settings


def embedded(html):
    """The data in the HTML of an explorer."""
    (text,) = re.findall(r'<script type="application/json">(.*)</script>', html)
    return json.loads(text)


def test_a_scene_fires_where_a_level_exceeds_the_threshold(played):
    start, trace, settings = played
    found = explorer.scene(start, trace, settings, 0, 48)
    fires = [step for step, level in enumerate(found["level"]) if level > settings.gamma]
    assert found["fires"] == fires == trace.sync[0, trace.phase_one :].nonzero().flatten().tolist()
    assert 0 < len(fires) < len(found["level"]) / 2
    paid = [found["loss"][arm] for arm in found["arm"]]
    assert paid == pytest.approx(trace.regret[0, trace.phase_one :].tolist(), rel=1e-3)
    best, worst = (found["colours"][found["loss"].index(end(found["loss"]))] for end in (min, max))
    assert (best, worst) == ("#0072b2", "#d55e00")


def test_a_sweep_has_the_means_of_the_traces():
    problem, _, clients, rounds, _ = instance(SEED)
    within = World(problem, clients, rounds)
    gammas = [0.0, 0.5, math.inf]
    found = explorer.sweep(within, "DisLinUCB", {"lam": 0.1, "beta": 0.1}, gammas)
    assert found["steps"][0] == 1 and found["steps"][-1] == within.steps
    for gamma, row in zip(gammas, found["sweep"], strict=True):
        trace = ALGORITHMS["DisLinUCB"].play(within, {"lam": 0.1, "beta": 0.1, "gamma": gamma})
        regret = trace.cumulative_regret.mean(0)[[step - 1 for step in found["steps"]]]
        assert row["regret"] == pytest.approx(regret.tolist(), rel=1e-3)
        assert row["sent"] == (trace.up + trace.down).sum().item() / len(trace.arm)
        assert row["count"] == trace.sync.sum().item() / len(trace.arm)
        assert [len(run) for run in row["syncs"]] == trace.sync.sum(1).tolist()
    shown = embedded(explorer.explorer("threshold", "fig-a", problems={"A": {"DisLinUCB": found}}))
    assert shown == {"problems": {"A": {"DisLinUCB": found}}}
