"""Verdicts and regrets side by side: what is counted, what is paired, and which settings are named."""

import pytest
import torch

from fedgo import Trace
from fedgo.experiments import verdicts
from fedgo.experiments.claims import Change, Claim, Part
from fedgo.experiments.verdicts import quote_study, regrets_compared, verdicts_compared


def parts(*holds):
    return [Part("p", 1.0, 1.0, 1.0, 1.0, holds=part) for part in holds]


def test_a_row_has_both_verdicts_with_their_parts_and_says_whether_it_stays():
    claim = Claim("c", "Section 6", "it is better", "a ratio", "below 1", None, "results", "partly")
    same = Change(claim, ("partly", parts(True, False)), ("partly", parts(False, True)))
    other = Change(claim, ("partly", parts(True, False)), ("not reproduced", parts(False, False)))
    head, _, first, second = verdicts_compared([same, other], "as it is", "changed").data.splitlines()
    assert head == "| the paper's words | as it is | changed | stable |"
    quoted = "| Section 6: “it is better” | partly ■□ 1\u00a0of\u00a02 |"
    assert first == f"{quoted} partly ■□ 1\u00a0of\u00a02 | yes |"  # how many hold, not which
    assert second == f"{quoted} not reproduced □□ 0\u00a0of\u00a02 | **no** |"


def test_what_a_study_changes_is_quoted_with_its_size_and_what_made_it(monkeypatch):
    quoted = {}

    def display(data, raw, metadata):
        quoted[metadata["scrapbook"]["name"]] = metadata["value"]

    monkeypatch.setattr("fedgo.experiments.tables.display", display)
    claim = Claim("c", "Section 6", "it is better", "a ratio", "below 1", None, "results", "partly")
    same = Change(claim, ("partly", parts(True, False)), ("partly", parts(False, True)))
    other = Change(
        claim, ("partly", parts(True, False, True)), ("not reproduced", parts(False, False, False))
    )
    quote_study("p0", "line3", [same, other])
    made_by = {name: quoted.pop(f"p0-{name}") for name in ("made", "command", "commit", "code")}
    assert made_by["command"] == "`make tune LINE3=1`" and all(len(text) > 8 for text in made_by.values())
    numbers = {"judged": 2, "verdicts": 1, "parts": 5, "gained": 1, "lost": 3, "settings": 8, "tuned-on": 30}
    assert quoted == {f"p0-{name}": value for name, value in numbers.items()}


def test_regrets_are_paired_and_named_with_the_setting_of_their_study(monkeypatch):
    def played(name, *regret):
        whole = torch.tensor(regret, dtype=torch.float64).unsqueeze(1)
        nothing = torch.zeros(whole.shape, dtype=torch.int64)
        return Trace(name, "P", 2, 0, nothing, -whole, whole, nothing, nothing, nothing.bool())

    asked = []
    monkeypatch.setattr(verdicts, "tuned", lambda *of: asked.append(of) or {"lam": float(len(asked))})
    traces = {"e": {"A": played("A", 10, 30), "B": played("B", 0, 0)}}
    others = {"e": {"A": played("A, line 3", 11, 31)}}
    head, _, row = regrets_compared(traces, others, "line3", "before", "after").data.splitlines()
    assert head == "| problem | regret of | before | after | difference |"
    assert (
        row.replace("\u00a0", " ")
        == r"| P | A | 20 ± 10 ($\lambda$ 1) | 21 ± 10 ($\lambda$ 2) | 1 (1 to 1) |"
    )
    assert asked == [("e", "A"), ("e", "A, line 3", "line3")]


def test_what_was_not_played_cannot_be_compared():
    with pytest.raises(KeyError, match="hartmann6"):
        regrets_compared({}, {"hartmann6": {"A": None}}, "line3", "before", "after")
