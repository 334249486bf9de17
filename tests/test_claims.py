"""The claims table: decisions on traces made by hand, and the kept runs of the winners."""

import numpy as np
import pytest
import torch
from instances import double, made_trace

from fedgo.experiments.claims import (
    CLAIMS,
    Claim,
    ClaimPart,
    changes,
    count_once,
    judge,
    outcomes,
    verdict_on,
)
from fedgo.experiments.results import tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.runner import read
from fedgo.experiments.studies import CLAIM_RUNS, CLAIM_SEED
from fedgo.experiments.world import EXPERIMENTS

ABOUT = {"place": "p", "expected": "partly", "problems": ["hartmann6"]}


def trace(regret, sent=None, phase_one=2, name="A"):
    """Runs with the given final regret and scalars, both spread evenly over the steps of Phase II."""
    steps = 12
    played = torch.arange(steps) >= phase_one
    share = double(regret)[:, None] / (steps - phase_one) * played
    sent = torch.tensor(sent or [0] * len(regret))[:, None] // (steps - phase_one) * played
    return made_trace(share, sent, phase_one=phase_one, name=name)


def messages(up, down, phase_one=1):
    """One run for each row, with the scalars ``up`` and ``down`` of every step."""
    return made_trace(torch.zeros(len(up), len(up[0])), up, down, phase_one)


def judged(worlds, **how):
    """The verdict on a claim about A and everybody else in ``worlds``, on runs of Hartmann6."""
    others = tuple(name for name in worlds if name != "A")
    claim = Claim(quote="q", ours=["A"], others=others, **ABOUT, **how)
    return judge(claim, outcomes({"hartmann6": worlds}))


RUNS = np.random.default_rng(0).uniform(0.9, 1.1, 20)


# --- changes


def level(name, regret, sent=100):
    return trace(regret * RUNS, [sent] * len(RUNS), name=name)


def test_what_is_replaced_changes_the_verdicts_that_rest_on_it_alone():
    even = {e: {a: level(a, 10) for a in ALGORITHMS} for e in EXPERIMENTS}
    found = changes(outcomes(even), outcomes({"hartmann6": {"Fed-GO-UCB": level("Fed-GO-UCB", 3)}}))
    assert [c.claim.quote for c in found] == [row.quote for row in CLAIMS if "hartmann6" in row.problems]
    # all are equal: every ratio is 1, which decides nothing at the threshold 1 and contradicts the threshold ½
    rows = [row for row in CLAIMS if "hartmann6" in row.problems]
    assert [c.before[0] for c in found] == [
        "mostly contradicted" if row.limit < 1 and row.others else "undecided" for row in rows
    ]
    assert {p.label[:11] for c in found for p in c.after[1]} == {"Hartmann6: "}
    assert [(c.after[0], [p.state for p in c.after[1]].count("held")) for c in found] == [
        ("reproduced", 1), ("reproduced", 3),
        ("partly", 4),  # One-GO-UCB is as it was
        ("reproduced", 5),
        ("undecided", 0), ("mostly contradicted", 0), ("undecided", 0),  # those about scalars
        ("reproduced", 2),
    ]  # fmt: skip


# --- judge


@pytest.mark.parametrize(
    ("held", "reverse", "undecided", "verdict"),
    [
        (3, 0, 0, "reproduced"),
        (2, 0, 1, "partly"),
        (2, 2, 0, "partly"),
        (1, 2, 5, "mostly contradicted"),
        (0, 1, 5, "mostly contradicted"),
        (0, 0, 3, "undecided"),
    ],
)
def test_a_claim_with_more_parts_reversed_than_held_is_mostly_contradicted(held, reverse, undecided, verdict):
    assert verdict_on(["held"] * held + ["reversed"] * reverse + ["open"] * undecided) == verdict


def test_a_ratio_that_is_a_part_of_two_claims_counts_once():
    regret, scalars = Claim(quote="a", **ABOUT), Claim(quote="b", quantity="scalars", **ABOUT)
    one, two = (ClaimPart(label, 1, 1, 1, 1, "open") for label in "xy")
    rows = [(regret, "partly", [one, two]), (regret, "partly", [one._replace(state="held")])]
    assert count_once(rows) == ["open", "open"]
    assert count_once([*rows, (scalars, "partly", [one._replace(state="reversed")])])[2:] == ["reversed"]


# --- ratios: A has regrets 1 and 3 and scalars 200 and 600, B 8 and 8 and 100 and 100


def test_a_ratio_is_that_of_the_means_of_the_quantity_asked_for():
    worlds = {"A": trace([1.0, 3.0], [200, 600]), "B": trace([8.0, 8.0], [100, 100])}
    _, (regret,) = judged(worlds)
    _, (sent,) = judged(worlds, quantity="scalars")
    assert regret[:4] == ("Hartmann6: A / B", *map(pytest.approx, (2 / 8, 1 / 8, 3 / 8)))
    assert sent[:4] == ("Hartmann6: A / B", *map(pytest.approx, (4, 2, 6)))


@pytest.mark.parametrize(
    ("side", "limit", "state"),
    [
        ("below", 0.376, "held"),  # the interval is [1/8, 3/8]
        ("below", 0.124, "reversed"),
        ("below", 0.125, "open"),  # an interval that touches the threshold is on neither side
        ("below", 0.375, "open"),
        ("above", 0.125, "open"),
        ("above", 0.124, "held"),
        ("above", 0.376, "reversed"),
    ],
)
def test_a_part_is_held_or_reversed_if_its_whole_interval_is_on_that_side(side, limit, state):
    _, (part,) = judged({"A": trace([1.0, 3.0]), "B": trace([8.0, 8.0])}, side=side, limit=limit)
    assert part.state == state and part.limit == limit


# --- the share of the second half


def test_the_late_share_counts_both_directions_of_the_second_half_of_phase_two():
    up = [[99, 3, 1, 2, 0, 0], [99, 3, 1, 2, 0, 0]]
    down = [[99, 4, 4, 0, 5, 1], [99, 4, 4, 0, 5, 1]]
    # Phase II's five steps have 7, 5, 2, 5, 1 scalars; the second half is the last three of them
    _, (part,) = judged({"A": messages(up, down)}, limit=0.5)
    assert part == ("Hartmann6: second half / all", *[pytest.approx(8 / 20)] * 3, 0.5, "held")
    _, (longer,) = judged({"A": messages(up, down, phase_one=2)})
    assert longer.estimate == pytest.approx(6 / 13)


# --- the table


def test_the_kept_runs_of_the_winners_are_those_of_their_settings():
    for study in ("line3", "in_sample"):
        rows = read(study)
        rows = rows[rows["seed"] == CLAIM_SEED]  # the others are those of the tuning
        for (name, player), part in rows.groupby(["problem", "player"]):
            assert len(part) == CLAIM_RUNS
            assert {n: part[n].unique().item() for n in ("lam", "beta")} == tuned(name, player, study)
        if study == "in_sample":  # chosen on these very runs
            rungs = read("rungs").query("study == 'in_sample'")
            for (name, player), part in rows.groupby(["problem", "player"]):
                tried = rungs[(rungs["problem"] == name) & (rungs["player"] == player)]
                assert part["regret"].mean() == pytest.approx(tried["regret"].min(), abs=2e-3)
