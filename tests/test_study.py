"""A study on options of one's own: read, scaled, asked, told, kept, come back to, options added and retired."""

import math
import random

import pytest
import torch

from fedgo import Langevin, Settings
from fedgo.federation import Client, Plan, Server, converse
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


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "options.csv"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """An oracle of few rounds."""
    rounds = Langevin.__init__
    monkeypatch.setattr(Langevin, "__init__", lambda self, *a, **k: rounds(self, *a, **{"rounds": 50} | k))


def begun(csv, name="study.npz", **options):
    return Study(csv.parent / name, csv, **{"centre": 3.0, "spread": 0.5, "trials": 30} | options)


def go_on(study, pulls, draw):
    asked = []
    for _ in range(pulls):
        asked.append(study.ask())
        study.tell(asked[-1], TASTE[asked[-1]] + draw.gauss(0, 0.1))
    return asked


def test_features_are_scaled_by_the_ranges_of_the_first_options(csv):
    options = Options.read(csv)
    assert options.names[0] == "plain" and options.columns == ["sugar", "heat", "fixed"]
    expected = [[0, 0], [1, 0.1], [1 / 3, 1], [5 / 6, 0.9], [0.4, 0.4]]
    torch.testing.assert_close(options.scaled(5), torch.tensor(expected, dtype=torch.float64))
    assert options.scaled(2)[2].tolist() == pytest.approx([1 / 3, 10])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("name,sugar", "row 2 of .*give a name and 1 finite numbers"),
        ("plain,0,x,7", r"row 7 of .*\['plain', '0', 'x', '7'\]: give a name and 3 finite numbers"),
        ("odd,0,nan,7", "row 7 of .*give a name and 3 finite numbers"),
        ("odd,0,1", "row 7 of .*give a name and 3 finite numbers"),
        ("plain,0,1,7", "the names is .*give each option one of its own"),
    ],
)
def test_a_table_that_is_none_is_refused(csv, line, reason):
    lines = [line, *LINES[1:]] if line == "name,sugar" else [*LINES, line]
    csv.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=reason):
        begun(csv)


def test_a_study_that_is_opened_for_every_trial_is_the_one_that_stayed_open(csv):
    whole = begun(csv, "one.npz")
    asked = go_on(whole, 14, random.Random(1))
    draw = random.Random(1)
    again = [go_on(begun(csv, "two.npz"), 1, draw)[0] for _ in range(14)]
    assert again == asked and str(begun(csv, "two.npz").standings()) == str(begun(csv, "one.npz").standings())


def test_rewards_are_told_in_the_units_they_came_in(csv):
    study = begun(csv)
    assert all(math.isnan(row.estimate) and row.pulls == 0 for row in study.standings())
    go_on(study, 20, random.Random(2))
    rows = {row.option: row for row in study.standings()}
    assert sum(row.pulls for row in rows.values()) == 14  # the uniform trials of Phase I fit ŵ₀ only
    for name, row in rows.items():
        if row.pulls:
            assert row.mean == pytest.approx(TASTE[name], abs=0.3) and row.low < row.estimate < row.high
    other = begun(csv, "other.npz", centre=3000.0, spread=500.0)
    draw = random.Random(2)
    for _ in range(20):
        name = other.ask()
        other.tell(name, 1000 * (TASTE[name] + draw.gauss(0, 0.1)))
    for row in other.standings():
        for mine, theirs in zip(rows[row.option][2:6], row[2:6], strict=True):
            assert theirs == pytest.approx(1000 * mine, rel=1e-6, nan_ok=True)
    assert len(table(study.standings()).splitlines()) == 6 and "some" in table(study.standings())


def test_options_are_added_at_the_end_and_retired(csv):
    study = begun(csv)
    draw = random.Random(3)
    with pytest.raises(ValueError, match="its pulls are drawn from the arms that there were: add later"):
        _more(csv)
        begun(csv)
    csv.write_text("\n".join(LINES), encoding="utf-8")
    go_on(study, 12, draw)
    before = {row.option: row for row in study.standings()}
    _more(csv)
    study = begun(csv)
    after = {row.option: row for row in study.standings()}
    assert after["more"].pulls == 0 and math.isfinite(after["more"].estimate)
    for name, row in before.items():
        assert row == pytest.approx(after[name], nan_ok=True)
    wanted = [study.ask()]
    study.retire(wanted[0])
    wanted.append(study.ask())  # what would be asked for next is another
    study.retire(wanted[1])
    assert len({*wanted, *go_on(begun(csv), 8, draw)}) > 2 and wanted[0] != wanted[1]
    assert not {*wanted} & {*go_on(begun(csv), 8, draw)}
    begun(csv).retire(wanted[1], False)
    assert [row.option for row in begun(csv).standings() if row.retired] == wanted[:1]
    csv.write_text("\n".join([LINES[0], *LINES[2:]]), encoding="utf-8")
    with pytest.raises(ValueError, match="add rows at the end"):
        begun(csv)


def _more(csv):
    csv.write_text("\n".join([*LINES, "more,14,150,7"]), encoding="utf-8")


def test_what_does_not_fit_the_study_is_refused(csv):
    study = begun(csv)
    with pytest.raises(ValueError, match="option is 'other': choose one of"):
        study.tell("other", 3.0)
    with pytest.raises(TypeError, match="reward is 'good'"):
        study.tell(study.ask(), "good")
    with pytest.raises(
        ValueError, match=r"centre and spread is \[3.0, 0.6\]: it was begun with \[3.0, 0.5\]"
    ):
        begun(csv, spread=0.6)
    with pytest.raises(ValueError, match="of another plan"):
        begun(csv, seed=1)
    with pytest.raises(ValueError, match="spread is 0"):
        begun(csv, "new.npz", spread=0)
    for name in ("plain", "sweet", "hot", "both"):
        study.retire(name)
    with pytest.raises(ValueError, match="keep at least one"):
        study.retire("some")


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_arms_are_added_for_everybody_between_two_exchanges(encoding):
    draw = torch.Generator().manual_seed(1)
    arms = torch.rand(8, 2, generator=draw, dtype=torch.float64)
    settings = Settings(0.3, 0.5, 1.0, encoding)
    old, new = Plan(arms[:5], settings, 3), Plan(arms, settings, 3)

    def turns(clients, server, steps, met):
        for t in range(steps):
            arm = clients[t % 3].ask()
            met.append(arm)
            if clients[t % 3].tell(arm, float(arms[arm].sum()) + 0.1 * (t % 5)):
                converse(server, clients)
        return met

    clients, server = [Client(old, i) for i in range(3)], Server(old)
    first = turns(clients, server, 20, [])
    clients, server = [client.extended(new) for client in clients], server.extended(new)
    sent = server.scalars
    assert set(turns(clients, server, 40, [])) - set(first) and server.scalars > sent
    converse(server, clients)
    for client in clients:
        assert torch.equal(client.memory.base, server.desk.total)
    if encoding == "counts":
        assert server.desk.total[:8].sum() == 60
    with pytest.raises(ValueError, match="add arms at the end, and leave all else as it is"):
        clients[0].extended(old)
    server.begin()
    with pytest.raises(ValueError, match="Phase I or an exchange goes on: add later"):
        server.extended(new)
