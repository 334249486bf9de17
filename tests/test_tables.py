"""Tables that cannot break, intervals against the binomial distribution, slopes by hand, and checks that stop."""

import math
import re

import numpy as np
import pytest
import torch

from fedgo import Trace
from fedgo.experiments.tables import (
    Checks,
    Rate,
    frequency,
    quote,
    rate,
    second_phases,
    share_of_parts,
    table,
)


def test_a_table_is_written_as_markdown_writes_it():
    shown = table(("run", "$P$"), [("a", 12345), ("b", "−1")]).data
    assert shown == "| run | $P$ |\n| --- | ---: |\n| a | 12,345 |\n| b | −1 |"
    assert table(("a", "b", "c"), [], "crl").data.splitlines()[1] == "| :---: | ---: | --- |"
    assert table(("a",), [(r"\|f\|",)]).data.endswith(r"| \|f\| |")


def test_numbers_in_a_table_have_a_minus_sign_and_stay_with_their_error_but_formulas_and_code_are_left_alone():
    cells = [("-1.5 ± 0.2",), ("+2 (-3 to -1)",), ("$x -1 ± 2$ and `a -1`, UCB-1, 1e-5",)]
    *_, first, second, third = table(("a",), cells).data.splitlines()
    assert first == "| −1.5\u00a0±\u00a00.2 |" and second == "| +2 (−3 to −1) |" and cells[2][0] in third


def test_second_phases_are_counted_from_their_first_step_and_compared_run_by_run():
    def played(regret, sync, up):
        whole = torch.tensor(regret, dtype=torch.float64)
        nothing = torch.zeros(whole.shape, dtype=torch.int64)
        sent, talked = torch.tensor(up), torch.tensor(sync, dtype=torch.bool)
        return Trace("a", "p", 2, 1, nothing, -whole, whole, sent, 2 * sent, talked)

    one = played([[9.0, 1, 1], [9, 2, 2], [9, 0, 0]], [[0, 1, 0]] * 3, [[7, 4, 0]] * 3)
    other = played([[9.0, 3, 1], [9, 2, 4], [9, 2, 0]], [[0, 1, 1]] * 3, [[7, 400, 400]] * 3)
    head, _, *rows = second_phases({"x": one, "y": other}, one, 1, "who").data.splitlines()
    assert head == "| who | regret of Phase II | median | worst | change | $P$ | scalars |"
    assert rows == [
        "| x | 2\u00a0±\u00a01 | 2 | 4 |  | 1 | 12 |",
        "| y | 4\u00a0±\u00a01 | 4 | 6 | +2 (+2 to +2) | 2 | 2,400 |",
    ]
    assert "−2 (−2 to −2)" in second_phases({"x": one}, other, 1, "who").data


@pytest.fixture
def quoted(monkeypatch):
    """What is quoted, by name: its kind, its text, and the value beside it."""
    found = {}

    def display(data, raw, metadata):
        ((kind, text),) = data.items()
        name = metadata["scrapbook"]["name"]
        assert raw and name not in found
        found[name] = kind.removeprefix(metadata["scrapbook"]["mime_prefix"]), text, metadata["value"]

    monkeypatch.setattr("fedgo.experiments.tables.display", display)
    return found


def test_numbers_are_quoted_in_their_format_whole_ones_with_commas_and_text_as_markdown(quoted):
    quote(",.1f", rho_0=torch.tensor(-1234.25), share=np.float64(0.5), runs=torch.tensor(12345), slope="$-1$")
    quote("g", "hartmann6-few", regret=0.25)
    assert quoted == {
        "rho-0": ("text/plain", "−1,234.2", -1234.25),
        "share": ("text/plain", "0.5", 0.5),
        "runs": ("text/plain", "12,345", 12345),
        "slope": ("text/markdown", "$-1$", "$-1$"),
        "hartmann6-few-regret": ("text/plain", "0.25", 0.25),
    }
    quote(regrets=table(("a",), [("b",)]))
    assert quoted["regrets"][:2] == ("text/markdown", "| a |\n| --- |\n| b |")


def test_a_frequency_is_quoted_with_its_interval_and_a_rate_with_its_error(quoted):
    quote(".3f", failed=frequency(3, 100), slow_fall=Rate(-0.98765, 0.01))
    assert {name: text for name, (_, text, _) in quoted.items()} == {
        "failed": "0.030",
        "failed-low": "0.006",
        "failed-high": "0.085",
        "slow-fall": "−0.988",
        "slow-fall-error": "0.010",
    }


def tail(trials, least, share):
    """P(X ≥ least) for X binomial."""
    return sum(
        math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(least, trials + 1)
    )


@pytest.mark.parametrize(("failures", "trials"), [(0, 10), (3, 10), (10, 10), (12, 200)])
def test_the_ends_of_the_interval_leave_a_fortieth_of_the_binomial_distribution(failures, trials):
    found = frequency(failures, trials)
    assert found[:2] == (failures, trials) and found.share == failures / trials
    assert found.low <= found.share <= found.high
    if failures:
        assert tail(trials, failures, found.low) == pytest.approx(0.025, abs=1e-9)
    else:
        assert found.low == 0
    if failures < trials:
        assert 1 - tail(trials, failures + 1, found.high) == pytest.approx(0.025, abs=1e-9)
    else:
        assert found.high == 1
    assert found.interval == f"{found.low:.3f} to {found.high:.3f}"


def test_a_frequency_counts_the_runs_that_failed():
    assert frequency(torch.tensor([True, False, True, False, False])) == frequency(2, 5)


def test_the_rate_of_a_power_is_its_exponent_whatever_the_factors_of_the_runs():
    x = [30, 100, 300, 1000]
    power = torch.tensor(x).double() ** -1.5
    slope, error = rate(x, torch.stack([power, 7 * power, 1e-9 * power]))
    assert slope == pytest.approx(-1.5, abs=1e-12) and error == pytest.approx(0, abs=1e-12)


def test_the_error_of_a_rate_is_that_of_the_runs_slopes():
    x, noise = [1.0, 2.0, 5.0, 9.0], np.random.default_rng(0).normal(size=(8, 4))
    values = torch.tensor(np.exp(0.4 * np.log(x) + noise))
    slopes = np.array([np.polyfit(np.log(x), row, 1)[0] for row in values.log().numpy()])
    found = rate(x, values)
    assert found.slope == pytest.approx(slopes.mean(), abs=1e-12)
    assert found.error == pytest.approx(slopes.std(ddof=1) / math.sqrt(8), abs=1e-12)
    assert str(rate([1, math.e], torch.tensor([[1, math.exp(-0.5)], [1, math.exp(-1.5)]]).double())) == (
        "−1.000 ± 0.500"
    )


@pytest.mark.parametrize("fails", [False, torch.tensor([True, False]), np.array([False]), np.float64(3) < 2])
def test_a_check_that_does_not_hold_stops_and_is_not_listed(fails):
    checks = Checks()
    with pytest.raises(AssertionError, match=re.escape("$a < b$, here: 3 > 2; condition 1 does not hold")):
        checks.add("$a < b$", "identity", "here", "3 > 2", True, fails)
    assert checks.rows == []
    with pytest.raises(ValueError, match="give what has to be true"):
        checks.add("$a < b$", "identity", "here", "3 > 2")


@pytest.mark.parametrize(
    ("holds", "bar"),
    [
        ([True, False, True], "■■□ 2\u00a0of\u00a03"),
        ([False], "□ 0\u00a0of\u00a01"),
        ([False] + [True] * 10, "■■■■■ ■■■■■ □ 10\u00a0of\u00a011"),
        ([], "–"),
    ],
)
def test_a_bar_has_a_square_for_every_part(holds, bar):
    assert share_of_parts(holds) == bar
