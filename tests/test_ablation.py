"""The ablation: every variant plays the whole budget, changes one thing, and chooses κ where nothing is evaluated."""

import math
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedgo import hartmann6
from fedgo.experiments import ablation, record, store
from fedgo.experiments.ablation import (
    KAPPAS,
    PARTS,
    REGIMES,
    VARIANTS,
    Regime,
    Row,
    Variant,
    best,
    measured,
    play,
)
from fedgo.experiments.comparison import TUNING_SEED

TINY = Regime(hartmann6, 8, 2, 4, 8.4, ("network, linearised once", "UCB1"))


def changes(one, other):
    return [part.name for part in fields(Variant) if getattr(one, part.name) != getattr(other, part.name)]


def test_every_variant_changes_one_thing():
    process, network, once = (
        VARIANTS[name] for name in ("process", "network, refitted", "network, linearised once")
    )
    bases = {
        "process": [process],
        "either": [process],
        "network": [network, process],
        "once": [once, network],
        None: [],
    }
    for name, variant in VARIANTS.items():
        found = [changes(variant, base) for base in bases[variant.model]]
        several = (
            "as printed" in name or variant.model is None
        )  # planning and event together, as in Algorithm 1
        assert several or min(map(len, found)) <= 1, name
    printed, informed = (VARIANTS[f"network, as printed{s}"] for s in ("", " with Phase I data"))
    assert changes(printed, informed) == ["informed"]
    assert changes(informed, VARIANTS["network, as printed but refitted"]) == ["model"]
    for part, pair in PARTS.items():
        assert len(changes(*(VARIANTS[name] for name in pair))) == 1, part


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_plays_the_budget(name):
    trace = play(TINY, VARIANTS[name], 1.0, hartmann6(1, arms=8))
    # T₀ + NT = 3 + 8; after 8 arms there is one round of two left
    assert trace.arm.shape[1] == (8 + 2 if VARIANTS[name].each_arm else 11)
    if VARIANTS[name].each_arm:
        assert sorted(trace.arm[0, :8].tolist()) == list(range(8))
    assert ("proposed" in trace.notes) == VARIANTS[name].guarded


@pytest.mark.slow
def test_kappa_is_chosen_on_the_tuning_seed_and_the_record_says_what_was_played(tmp_path, monkeypatch):
    monkeypatch.setitem(REGIMES, "tiny", TINY)
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    ablation.lam()  # before the records are elsewhere
    monkeypatch.setattr(record, "DATA", tmp_path)
    seeds = []
    inner = ablation.play
    monkeypatch.setattr(ablation, "play", lambda *a: seeds.append((a[3].seed, a[2])) or inner(*a))
    rows = ablation.compute("tiny", 2, 3)
    for name in TINY.variants:
        of_it = [row for row in rows if row.variant == name]
        chosen = best(of_it[:-1])
        assert [(row.seed, row.kappa) for row in of_it] == [
            *((TUNING_SEED, kappa) for kappa in KAPPAS),
            (0, chosen),
        ]
        means = [np.mean([float(x) for x in row.regret.split()]) for row in of_it[:-1]]
        assert means[KAPPAS.index(chosen)] == min(means)
    assert seeds == [(row.seed, row.kappa) for row in rows]
    assert [row._replace(made="") for row in ablation.compute("tiny", 2, 3)] == [
        row._replace(made="") for row in rows
    ]
    assert len(seeds) == len(rows)  # read from the store, which tells all apart
    record.write("ablation_tiny", {}, Row._fields, rows)
    found = ablation.recorded("tiny")
    assert tuple(found) == TINY.variants
    again = ablation.afresh("tiny", "UCB1", 2)
    assert again.regret.sum(1).tolist() == pytest.approx(found["UCB1"].regret[:2].tolist(), abs=1e-12)
    assert found["UCB1"].scalars[:2].tolist() == again.communication[:, -1].tolist()
    assert found["UCB1"].stuck[:2].tolist() == ablation.stuck(again).long().tolist()
    assert [other.kappa for other in ablation.tried("tiny", "UCB1")] == list(KAPPAS)
    with pytest.raises(ValueError, match=r"^name is 'no': choose"):
        ablation.recorded("no")


@pytest.mark.slow
def test_ten_runs_at_a_time_change_nothing(monkeypatch):
    monkeypatch.setitem(REGIMES, "tiny", TINY)
    whole = measured("tiny", "network, linearised once", 1.0, 3, 0)
    monkeypatch.setattr(ablation, "_BATCH", 2)
    again = measured("tiny", "network, linearised once", 1.0, 3, 0)
    assert again._replace(made="") == whole._replace(made="")


def test_some_variants_are_computed_and_the_other_rows_stay(tmp_path, monkeypatch):
    monkeypatch.setitem(REGIMES, "tiny", replace(TINY, variants=("UCB1", "process")))
    monkeypatch.setattr(record, "DATA", tmp_path)
    monkeypatch.setattr(ablation, "TUNING", 1)
    monkeypatch.setattr(ablation, "KAPPAS", (1.0,))
    old = [
        Row(name, 1.0, seed, 2, "1.5 2.5", "0 1", "3 4", "2020-01-02 03:04 UTC", "old", "code")
        for name in ("UCB1", "process")
        for seed in (TUNING_SEED, 0)
    ]
    record.write("ablation_tiny", {}, Row._fields, old)
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    monkeypatch.setattr("sys.argv", ["ablation", "tiny", "UCB1"])
    ablation.main()
    rows = record.read("ablation_tiny").rows
    assert [row["variant"] for row in rows] == ["UCB1", "UCB1", "process", "process"]
    assert [row["commit"] == "old" for row in rows] == [False, False, True, True]
    assert [[str(cell) for cell in row] for row in old[2:]] == [list(row.values()) for row in rows[2:]]
    assert ablation.origins("tiny")[0] == "2020-01-02 03:04 UTC from the commit old"
    assert len(ablation.origins("tiny")) == 2
    monkeypatch.setattr("sys.argv", ["ablation", "tiny", "network, GELU"])
    with pytest.raises(ValueError, match=r"^a variant is 'network, GELU': choose of "):
        ablation.main()


def test_kappa_of_ucb1_is_the_width_of_its_last_step(monkeypatch):
    asked = []
    monkeypatch.setattr(ablation, "optimistic_ucb1", lambda *given: asked.append(given))
    play(TINY, VARIANTS["UCB1"], 3.0, hartmann6(1, arms=8))
    ((_, clients, steps, beta, gamma),) = asked
    assert (clients, steps, gamma) == (2, 11, 1.0)
    assert math.sqrt(2 * beta * math.log(11)) == pytest.approx(3.0 * 0.1)  # κσ, over √n


def test_a_run_that_ends_on_a_wrong_arm_is_stuck():
    regret = torch.ones(3, 40)
    regret[0, -1], regret[1, :-4] = 0.0, 0.0
    assert ablation.stuck(SimpleNamespace(regret=regret)).tolist() == [False, True, True]
