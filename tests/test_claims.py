"""The claims table: complete rows, decisions that follow the traces, verdicts that match what the book computed."""

from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

from fedgo.paper.claims import VERDICTS, Claim, claims, interval, judge, paired_difference
from fedgo.paper.experiments import ALGORITHMS, EXPERIMENTS
from fedgo.simulation import Trace

ROOT = Path(__file__).resolve().parents[1]


def trace(regret, sent, phase_one=2, name="A"):
    """Runs with the given final regret and scalars, both spread evenly over the steps of Phase II."""
    regret, sent = torch.tensor(regret).double(), torch.tensor(sent)
    runs, steps = len(regret), 12
    share = torch.zeros(runs, steps, dtype=torch.float64)
    share[:, phase_one:] = regret[:, None] / (steps - phase_one)
    up = torch.zeros(runs, steps, dtype=torch.int64)
    up[:, phase_one:] = sent[:, None] // (steps - phase_one)
    blank = torch.zeros(runs, steps, dtype=torch.int64)
    return Trace(name, "p", 2, phase_one, blank, share, share, up, blank, blank.bool())


def ratio_claim(**limits):
    options = {"quantity": "regret", "experiments": ["e"], "ours": ["A"], "others": ["B", "C"], **limits}
    return Claim("n", "p", "q", "s", "t", "ratios", options, "08_all_six", "partly")


RUNS = np.random.default_rng(0).uniform(0.9, 1.1, 20)


@pytest.mark.parametrize(
    ("b", "c", "verdict"), [(30, 40, "reproduced"), (30, 11, "partly"), (11, 10, "not reproduced")]
)
def test_a_verdict_counts_the_parts_whose_whole_interval_is_below(b, c, verdict):
    worlds = {
        key: trace(level * np.roll(RUNS, shift), [100] * 20, name=key)
        for key, level, shift in (("A", 10, 0), ("B", b, 1), ("C", c, 2))
    }
    found, parts = judge(ratio_claim(below=0.5), {"e": worlds})
    assert found == verdict
    assert [part.holds for part in parts] == [b == 30, c == 40]
    for part in parts:
        assert part.low <= part.estimate <= part.high


def test_above_is_the_other_side():
    worlds = {"A": trace(RUNS, [900] * 20), "B": trace(RUNS, [100] * 20), "C": trace(RUNS, [1000] * 20)}
    claim = ratio_claim(above=1.0, quantity="communication")
    assert [part.holds for part in judge(claim, {"e": worlds})[1]] == [True, False]


def test_linear_growth_is_not_sub_linear():
    claim = Claim(
        "n", "p", "q", "s", "t", "late_share", {"experiments": ["e"], "algorithm": "A", "below": 0.5}, "", ""
    )
    linear = trace(RUNS, [100 + 10 * k for k in range(20)])
    assert judge(claim, {"e": {"A": linear}})[0] == "not reproduced"
    linear.up[:, 7:] //= 2
    assert judge(claim, {"e": {"A": linear}})[0] == "reproduced"


def test_the_interval_of_a_mean_has_its_width_and_one_run_has_none():
    sample = np.random.default_rng(1).normal(3, 2, 200)
    estimate, low, high = interval(np.mean, sample)
    assert estimate == sample.mean()
    assert (high - low) / (2 * 1.96 * sample.std() / 200**0.5) == pytest.approx(1, abs=0.1)
    assert interval(np.mean, sample[:1])[1:] == (float("-inf"), float("inf"))


def test_a_paired_difference_cancels_what_the_runs_share():
    common = np.random.default_rng(2).uniform(0, 1000, 20)
    estimate, low, high = paired_difference(trace(common + 5 + RUNS, [0] * 20), trace(common, [0] * 20))
    assert low < estimate < high
    assert low > 5.9 and high < 6.1


def test_captions_and_orders_need_no_run():
    found = {claim.name: judge(claim, {}) for claim in claims() if claim.decide in ("sizes", "orders")}
    assert [part.estimate for part in found["caption-synthetic"][1]] == [201, 251]
    assert [part.estimate for part in found["caption-real"][1]] == [301, 301]
    assert [part.estimate for part in found["statistics-size"][1]] == [5, 2, 5, 2]


def test_every_row_is_complete_and_asks_for_runs_that_exist():
    rows = claims()
    assert len({claim.name for claim in rows}) == len(rows)
    for claim in rows:
        assert claim.expected in VERDICTS and claim.quote and claim.statistic and claim.threshold
        assert (ROOT / "notebooks" / f"{claim.chapter}.md").is_file()
        assert set(claim.options.get("experiments", ())) <= set(EXPERIMENTS)
        assert {*claim.options.get("ours", ()), *claim.options.get("others", ())} <= set(ALGORITHMS)


def test_the_book_computed_the_expected_verdicts():
    """The chapter stops the build itself; this says so where only the tests are run."""
    executed = ROOT / "book/_executed/10_claims.ipynb"
    if not executed.is_file():
        pytest.skip("the book has not been executed here: run `make book` first")
    scraps = {
        output.metadata["scrapbook"]["name"].removeprefix("application/papermill.record/"): output
        for cell in nbformat.read(executed, as_version=4).cells
        for output in cell.get("outputs", [])
        if "scrapbook" in output.get("metadata", {})
    }
    for verdict in VERDICTS:
        glued = next(iter(scraps["p10-" + verdict.replace(" ", "-")].data.values()))
        assert int(glued) == sum(claim.expected == verdict for claim in claims())
