"""A study on options of one's own: read, scaled, asked, told, kept, come back to, options added and retired."""

import math
import random

import pytest
import torch

from fedgo import Langevin, Network
from fedgo.beyond.surrogates import Relinearised
from fedgo.federation.study import Options, Study, table

LINES = [
    "name,sugar,heat,fixed",
    "plain,0,100,7",
    "sweet,30,110,7",
    "hot,10,200,7",
    "both,25,190,7",
    "some,12,140,7",
]
TASTE = {"plain": 2.0, "sweet": 3.0, "hot": 3.5, "both": 2.5, "some": 4.0, "more": 3.9}
PLAIN = {"centre": 3.0, "spread": 0.5, "trials": 30}
GUARDED = PLAIN | {"surrogate": Relinearised(Network(2, 3), 1), "noise": 0.1, "reach": 3.0}


@pytest.fixture
def csv(tmp_path):
    return written(tmp_path / "options.csv", LINES)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """An oracle of few rounds."""
    init = Langevin.__init__
    monkeypatch.setattr(Langevin, "__init__", lambda self, *a, **k: init(self, *a, **{"rounds": 50} | k))


def written(path, lines):
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def opened(csv, name="study.npz", **options):
    return Study(csv.parent / name, csv, **PLAIN | options)


def go_on(study, pulls, draw, scale=1.0):
    asked = []
    for _ in range(pulls):
        asked.append(study.ask())
        study.tell(asked[-1], scale * (TASTE[asked[-1]] + draw.gauss(0, 0.1)))
    return asked


def test_features_are_scaled_by_the_ranges_of_the_first_options(csv):
    options = Options.read(csv)
    assert options.names[0] == "plain" and options.columns == ["sugar", "heat", "fixed"]
    expected = [[0, 0], [1, 0.1], [1 / 3, 1], [5 / 6, 0.9], [0.4, 0.4]]
    torch.testing.assert_close(options.scaled(5), torch.tensor(expected, dtype=torch.float64))
    assert options.scaled(2)[2].tolist() == pytest.approx([1 / 3, 10])


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["name,sugar", *LINES[1:]], "row 2 of .*give a name and 1 finite numbers"),
        ([*LINES, "plain,0,x,7"], r"row 7 of .*\['plain', '0', 'x', '7'\]: give a name and 3 finite numbers"),
        ([*LINES, "odd,0,nan,7"], "row 7 of .*give a name and 3 finite numbers"),
        ([*LINES, "odd,0,1"], "row 7 of .*give a name and 3 finite numbers"),
        ([*LINES, "plain,0,1,7"], "the names is .*give each option one of its own"),
        (["name,fixed", "plain,7", "sweet,7"], r"the columns is \['fixed'\]: no feature varies"),
        ([], "the table is .*give a header"),
    ],
)
def test_a_table_that_is_none_is_refused(csv, lines, reason):
    with pytest.raises(ValueError, match=reason):
        opened(written(csv, lines))


@pytest.mark.parametrize("how", [PLAIN, GUARDED])
def test_a_study_that_is_opened_for_every_trial_is_the_one_that_stayed_open(csv, how):
    whole, draw = opened(csv, "one.npz", **how), random.Random(1)
    asked = go_on(whole, 20, random.Random(1))
    assert [go_on(opened(csv, "two.npz", **how), 1, draw)[0] for _ in range(20)] == asked
    again = {row.option: row for row in opened(csv, "two.npz", **how).standings()}
    for row in whole.standings():
        assert tuple(row)[1:] == pytest.approx(tuple(again[row.option])[1:], nan_ok=True, rel=1e-9)


def test_certificates_hold_where_there_is_a_guard(csv):
    study = opened(csv, **GUARDED)
    go_on(study, 30, random.Random(1))
    rows = study.standings()
    assert all(TASTE["some"] - TASTE[row.option] <= row.certificate <= 6 for row in rows)
    assert sum(row.pulls for row in rows) == 30 and study.client.memory.applied > 4
    assert "at most below best" in table(rows).splitlines()[0]
    unguarded = opened(csv, "other.npz", **GUARDED | {"reach": None})
    go_on(unguarded, 10, random.Random(1))
    assert all(math.isnan(row.certificate) for row in unguarded.standings())
    assert "below" not in table(unguarded.standings())


def test_rewards_are_told_in_the_units_they_came_in(csv):
    study = opened(csv)
    assert all(math.isnan(row.estimate) and row.pulls == 0 for row in study.standings())
    go_on(study, 20, random.Random(2))
    rows = {row.option: row for row in study.standings()}
    assert sum(row.pulls for row in rows.values()) == 14  # the uniform trials of Phase I fit ŵ₀ only
    for name, row in rows.items():
        if row.pulls:
            assert row.mean == pytest.approx(TASTE[name], abs=0.3) and row.low < row.estimate < row.high
    other = opened(csv, "other.npz", centre=3000.0, spread=500.0)
    go_on(other, 20, random.Random(2), 1000)
    for row in other.standings():
        for mine, theirs in zip(rows[row.option][2:6], row[2:6], strict=True):
            assert theirs == pytest.approx(1000 * mine, rel=1e-6, nan_ok=True)
    assert len(table(study.standings()).splitlines()) == 6 and "some" in table(study.standings())


def test_options_are_added_at_the_end_and_retired(csv):
    study, draw, more = opened(csv), random.Random(3), [*LINES, "more,14,150,7"]
    with pytest.raises(ValueError, match="its pulls are drawn from the arms that there were: add later"):
        opened(written(csv, more))
    go_on(study, 12, draw)
    before = {row.option: row for row in study.standings()}
    study = opened(written(csv, more))
    after = {row.option: row for row in study.standings()}
    assert after["more"].pulls == 0 and math.isfinite(after["more"].estimate)
    for name, row in before.items():
        assert row == pytest.approx(after[name], nan_ok=True)
    gone = [study.ask()]
    study.retire(gone[0])
    gone.append(study.ask())  # what would be asked for next is another
    study.retire(gone[1])
    assert gone[0] != gone[1] and not {*gone} & {*go_on(opened(csv), 16, draw)}
    opened(csv).retire(gone[1], False)
    assert [row.option for row in opened(csv).standings() if row.retired] == gone[:1]
    with pytest.raises(ValueError, match="add rows at the end"):
        opened(written(csv, [LINES[0], *LINES[2:]]))


def test_what_does_not_fit_the_study_is_refused(csv):
    study = opened(csv)
    with pytest.raises(ValueError, match="option is 'other': choose one of"):
        study.tell("other", 3.0)
    with pytest.raises(TypeError, match="reward is 'good'"):
        study.tell(study.ask(), "good")
    units = r"centre and spread is \[3.0, 0.6\]: it was begun with \[3.0, 0.5\]"
    with pytest.raises(ValueError, match=units):
        opened(csv, spread=0.6)
    for change in ({"seed": 1}, GUARDED):
        with pytest.raises(ValueError, match="of another plan"):
            opened(csv, **change)
    with pytest.raises(ValueError, match="spread is 0"):
        opened(csv, "new.npz", spread=0)
    with pytest.raises(TypeError, match=r"noise is None.*the noise of a reward"):
        opened(csv, "new.npz", **GUARDED | {"noise": None})
    for name in ("plain", "sweet", "hot", "both"):
        study.retire(name)
    with pytest.raises(ValueError, match="keep at least one"):
        study.retire("some")
