"""Tables that cannot break, intervals against the binomial distribution, slopes by hand, and checks that stop."""

import ast
import re
from pathlib import Path

import jupytext
import numpy as np
import pytest
import torch

from fedgo.pages.tables import Checks, Rate, frequency, quote, ranged, rate, share_of_parts, table


@pytest.fixture
def quoted(monkeypatch):
    """What is quoted, by name: its kind, its text, and the value beside it."""
    found = {}

    def display(data, raw, metadata):
        (kind, text), (seen, named) = data.items()
        name = metadata["scrapbook"]["name"]
        assert seen == "text/markdown" and named in (f"`{name}` = {text}", f"`{name}`:\n\n{text}")
        assert raw and name not in found
        found[name] = kind.removeprefix(metadata["scrapbook"]["mime_prefix"]), text, metadata["value"]

    monkeypatch.setattr("fedgo.pages.tables.display", display)
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


def test_the_rate_of_a_power_is_its_exponent_whatever_the_factors_of_the_runs():
    x = [30, 100, 300, 1000]
    power = torch.tensor(x).double() ** -1.5
    slope, error = rate(x, torch.stack([power, 7 * power, 1e-9 * power]))
    assert slope == pytest.approx(-1.5, abs=1e-12) and error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("fails", [False, torch.tensor([True, False]), np.array([False]), np.float64(3) < 2])
def test_a_check_that_does_not_hold_stops_and_is_not_listed(fails):
    checks = Checks()
    with pytest.raises(AssertionError, match=re.escape("$a < b$, here: 3 > 2; condition 1 does not hold")):
        checks.add("$a < b$", "identity", "here", "3 > 2", True, fails)
    assert checks.rows == []
    with pytest.raises(ValueError, match="give what has to be true"):
        checks.add("$a < b$", "identity", "here", "3 > 2")


def test_every_chapter_knows_the_parameters_of_the_book():
    """Otherwise no sentence that is false would stop the build."""
    known = []
    for path in Path(__file__).resolve().parents[1].glob("notebooks/**/*.md"):
        cells = [cell for cell in jupytext.read(path).cells if cell.cell_type == "code"]
        parameters = {}
        for cell in cells:
            if "parameters" in cell.metadata.get("tags", []):
                exec(cell.source, parameters)
        for call in ast.walk(ast.parse("\n".join(cell.source for cell in cells))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Checks":
                known.append((path.stem, eval(ast.unparse(call.args[0]), parameters)))
    assert len(known) > 15 and [name for name, book in known if not book] == []


def test_only_the_parameters_of_the_book_stop_at_a_sentence_that_does_not_hold(capsys):
    with pytest.raises(AssertionError, match=r"the page says: A is less than B\. This does not hold"):
        Checks(book=True).says("A is less than B.", 1 < 2, torch.tensor([True, False]))
    other = Checks(book=False)
    other.says("A is less than B.", False)
    assert capsys.readouterr().out.endswith("this sentence of the book does not hold: A is less than B.\n")
    other.says("A is less than B.", True, torch.tensor([True, True]))
    assert capsys.readouterr().out == ""
    other.add("$a < b$", "probability 0.95", "here", "3 > 2", False)
    assert other.rows == [
        ("$a < b$", "probability 0.95", "here", "does not hold with these parameters; expected: 3 > 2")
    ]
    with pytest.raises(AssertionError, match="condition 0 does not hold"):
        other.add("$a < b$", "on every run, all arms", "here", "3 > 2", False)


def test_the_squares_of_a_claim_stand_in_fives_and_are_sorted_by_state():
    states = ["open", "held", "reversed", "held", "held", "held"]
    assert share_of_parts(states) == "■■■■⊠ □<br>4\u00a0held, 1\u00a0reversed, 1\u00a0open"
    assert share_of_parts(["held"]) == "■<br>1\u00a0held"


def test_an_estimate_is_text_with_its_interval():
    assert ranged((0.834, 0.8, 0.8549)) == "0.83 (0.80 to 0.85)"
