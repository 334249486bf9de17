"""The measured tables: what the package ships, the script that makes it, and replays that pair the methods."""

import os
from dataclasses import replace
from pathlib import Path

import measured_tables as script
import pytest
import torch
from torch import Tensor

from fedgo.beyond.evidence.families import TABLES
from fedgo.beyond.evidence.measured import BEGIN, load, replay
from fedgo.beyond.evidence.replays import FEDERATED, SEARCHERS, by_sites
from fedgo.beyond.evidence.studies import CHOOSING, REPORTING

ROOT = Path(__file__).resolve().parents[2]
RAW = Path(os.environ.get("FEDGO_DATA") or ROOT.parent / "shared/data") / "tables"
OPTIONS = {
    "direct_arylation": (1728, 5),
    "suzuki_b1": (352, 4),
    "crossed_barrel": (600, 4),
    "p3ht": (178, 5),
    "autoam": (100, 4),
    "hybrid_perovskites": (192, 3),
}
names = pytest.mark.parametrize("name", OPTIONS)


@names
def test_a_shipped_table_has_its_options_its_licence_and_its_noise(name):
    table, text = load(name), (TABLES / "tables" / f"{name}.csv").read_text("utf-8")
    options, columns = OPTIONS[name]
    assert len({*table.options}) == len(table.results) == len(table.features) == options
    assert {*table.groups} == {*range(columns)} and table.noise > 0
    assert {*CHOOSING, *REPORTING} == {*OPTIONS}
    assert script.TABLES[name].licence in text.splitlines()[2] and script.TABLES[name].source in text
    assert table.loss.min() == 0 and table.loss.mean() == pytest.approx(1)
    # options with other texts in one column, and numbers at the two ends, have the distance 1 in this column
    for group in range(columns):
        part = table.features[:, torch.tensor(table.groups) == group]
        assert torch.cdist(part, part).amax() == pytest.approx(1)


@names
@pytest.mark.skipif(not RAW.is_dir(), reason="needs the published tables")
def test_the_script_makes_the_shipped_table_from_the_published_one(name, tmp_path):
    shipped = TABLES / "tables" / f"{name}.csv"
    assert script.ship(name, RAW, tmp_path).read_text("utf-8") == shipped.read_text("utf-8")
    means = [sum(each) / len(each) for each in script.results_of(name, RAW).values()]
    assert load(name).means.tolist() == pytest.approx(means, rel=1e-6, abs=1e-6)


def test_all_methods_begin_alike_and_the_jth_result_of_an_option_is_the_same_for_all():
    table = load("crossed_barrel")

    def first(tried: Tensor, rewards: Tensor, wanted: int) -> Tensor:
        return tried[:1].repeat(wanted)

    def last(tried: Tensor, rewards: Tensor, wanted: int) -> Tensor:
        return torch.cat([torch.tensor([7]), tried[:1].repeat(wanted)])[:wanted]

    one, two = replay(table, first, 3, 12), replay(table, last, 3, 14, batch=9)
    assert torch.equal(one.tried[:BEGIN], two.tried[:BEGIN])
    assert torch.equal(one.rewards[:BEGIN], two.rewards[:BEGIN])
    option = int(one.tried[0])
    rewards = one.rewards[one.tried == option]
    assert torch.equal(rewards, two.rewards[two.tried == option][: len(rewards)])
    assert {*rewards.tolist()} == {*table.results[option].tolist()} and len(two.tried) == 14
    assert not torch.equal(replay(table, first, 4, 12).tried[:BEGIN], one.tried[:BEGIN])


def test_a_random_order_tries_each_option_once_and_names_the_best_mean():
    table = load("autoam")
    choose, name = SEARCHERS["random order"](table, 0, 100)
    played = replay(table, choose, 0, 100, batch=8)
    assert len(played.tried.unique()) == 100 and table.loss[name(*played).option] == 0
    assert replay(table, choose, 0, 203, batch=8).tried.bincount().tolist().count(2) == 97


@pytest.mark.parametrize("batch", [1, 8])
def test_the_goal_best_repeats_little_without_noise_and_says_how_good_its_choice_is(batch):
    table = replace(load("autoam"), noise=1e-4)
    choose, name = SEARCHERS["fedgo, best"](table, 0, 29)
    played = replay(table, choose, 0, 29, batch)
    named = name(*played)
    assert len(played.tried.unique()) == 29
    noisy, _ = SEARCHERS["fedgo, best"](replace(table, noise=0.1), 0, 29)
    assert len(replay(table, noisy, 0, 29, batch).tried.unique()) < 29
    assert 0 <= named.inside <= 1 and named.bound >= 0


def test_three_sites_make_as_many_trials_as_one_place_with_all_data():
    table = load("autoam")
    tried = {player: by_sites(player, table, 0, 8)[0].tried for player in FEDERATED}
    assert [len(each) for each in tried.values()] == [24, 24, 8]
    assert torch.equal(tried["three sites, by letters"][:15], tried["all in one place"][:15])
