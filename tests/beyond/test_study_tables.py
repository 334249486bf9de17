"""A laboratory's table as it is: what each column is taken for, results, plates, and what is refused in which words."""

import re
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from fedgo.beyond import Client, Fitting, Options, Plan, Server, Study, converse
from fedgo.beyond.study import cli
from fedgo.beyond.study.plates import plate, tell_plate
from fedgo.beyond.study.table import COUNTS, OTHER, PLACE, STATUS, read

SCREEN = """ligand,SMILES,base,temperature,pressure,operator,yield
XPhos,CC(C)P,KOAc,90,1,Ann,61
XPhos,CC(C)P,KOAc,90,1,Bob,63.5
XPhos,CC(C)P,None,90,1,Ann,PENDING
PPh3,P(c1),KOAc,105,1,Ann,
PPh3,P(c1),None,105,1,Bob,failed
"""


def written(folder: Path, text: str, name: str = "table.csv", encoding: str = "utf-8") -> Path:
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


def said(study: Path | str, *words: Any, code: int = 0) -> str:
    done = CliRunner().invoke(cli.main, ["--study", str(study), *map(str, words)])
    assert done.exit_code == code, done.output
    return done.output


def test_texts_results_replicates_copies_and_constants_are_read_as_they_are(tmp_path: Path) -> None:
    table = read(written(tmp_path, SCREEN), result="yield", ignore=["operator"])
    assert table.options.role_of == {
        "ligand": "category",
        "SMILES": "it says the same as 'ligand'",
        "base": "category",
        "temperature": "number",
        "pressure": "it is always '1'",
        "operator": "ignored",
        "yield": "result",
    }
    assert table.options.names == ("XPhos, KOAc", "XPhos, None", "PPh3, KOAc", "PPh3, None")
    assert table.results == ((1, "XPhos, KOAc", 61.0), (2, "XPhos, KOAc", 63.5), (5, "PPh3, None", "failed"))
    assert table.report[0] == "5 rows: 4 options, 3 features, 3 results, 1 options with several"
    assert "  pressure: left out: it is always '1'" in table.report
    assert "  yield: result: 2 numbers, 1 failed, 2 without" in table.report
    # options with different texts have the distance 1; here so have those with different temperatures
    features, groups = table.options.encoded(4)
    assert groups == (0, 0, 1, 1, 2)
    assert torch.cdist(features[:1], features).square().tolist() == [pytest.approx([0, 1, 2, 3])]


READ = {
    "a line sep=": ("sep=;\nx;y\n1,5;2\n2,5;1\n", {}, ["1.5", "2.5"]),
    "comments": ("# Source: a paper, 2020\n# MIT\nx,y\n1.5,2\n2.5,1\n", {}, ["1.5", "2.5"]),
    "a mark": ("\ufeffx,y\n1.5,2\n2.5,1\n", {}, ["1.5", "2.5"]),
    "no header": ("1.5,2\n2.5,1\n", {}, ["1.5", "2.5"]),
    "a title, and units": ("A,,\nx,y,z\nK,bar,s\n1.5,2,1\n2.5,1,1\n3.5,4,2\n", {}, ["1.5", "2.5", "3.5"]),
    "two columns without a header": (",,S\nX,K,THF\nX,L,DMF\nY,K,THF\n", {}, ["X, K", "X, L", "Y, K"]),
    "groups above": (",,F 1,R 1\nRun,B,T,y\n,,°C,g\n1,a,5,2\n2,a,6,3\n", {"result": "y"}, ["1", "2"]),
    "empty rows and columns": ("x,y,,\n1.5,2,,\n,,,\n2.5,1,,\n", {}, ["1.5", "2.5"]),
    "a running number of repeated rows": ("run,a,b\n1,5,2\n2,6,1\n3,6,1\n", {}, ["5", "6"]),
    "a number with gaps": ("entry,a\n3,5\n7,5\n9,6\n", {}, ["5", "6"]),
    "an index without a header": (",a,b\n31,5,1\n7,5,2\n9,6,1\n", {}, ["31", "7", "9"]),
    "texts too long for a name": (f"a,b\n{'x' * 201},1\n{'x' * 202},2\n", {}, ["1", "2"]),
    "names that are no numbers": ("x,exp\n1,e1\n1,e2\n2,e3\n", {}, ["e1", "e2", "e3"]),
    "codes": ("solvent,t\n1,5\n2,5\n1,6\n", {"category": ["solvent"]}, ["1, 5", "2, 5", "1, 6"]),
    "long texts": (f"a,b\n{'x' * 30},1\n{'x' * 31},1\n{'x' * 31},2\n", {}, None),
    "one option": ("x,y\n1,2\n", {}, ["row 1"]),
    "one column": ("what I like\nred hot tea\nred ice tea\n", {}, ["red hot tea", "red ice tea"]),
    "bars": ("name,ratio EtOH|H2O,t\nA,1|1,20\nB,2|1,30\nC,1|2,45\n", {}, ["A", "B", "C"]),
    "a comma and a line break in quotes": ('n,x\n"a,\nb",0\n"\nc ",1\n', {"name": "n"}, ["a, b", "c"]),
    "a number written twice": ("a,b\n1,5\n1.0,5\n1,7\n2,5\n", {}, ["1, 5", "1, 7", "2, 5"]),
    "a thousand that is ignored": ('x,s\n1,"3,000"\n2,"4,000"\n', {"ignore": ["s"]}, ["1", "2"]),
    "results of any size": ("x,r\n1,1e-12\n2,1e12\n5,-3\n", {"result": "r"}, ["1", "2", "5"]),
}


@pytest.mark.parametrize(("text", "how", "names"), READ.values(), ids=READ)
def test_a_table_is_read(text: str, how: dict[str, Any], names: list[str] | None, tmp_path: Path) -> None:
    options = read(written(tmp_path, text), **how).options
    expected = names or [f"row {k}" for k in (1, 2, 3)]
    assert [name.split(", ")[0] if "run" in text else name for name in options.names] == expected


ROLES = {  # a table whose last column has the results, and the roles of the others
    "orders": ("RunOrder,StdOrder,T,y\n3,2,20,1\n1,3,30,2\n2,1,20,3\n", [COUNTS, COUNTS, "number"]),
    "EDBO+": ("t,priority,y\n1,-1,5\n2,0,PENDING\n3,0,PENDING\n", ["number", "EDBO+ computed it"]),
    "spectra": ("ligand,400,410,y\nA,1,2,3\nB,2,2,4\nA,2,3,5\n", ["category", "number", "number"]),
    "pandas' headers": ("0,1,2\n5.1,3.5,10\n4.9,3.0,20\n", ["number"] * 2),
    "blanks": ("x  y  z\n1.5  2  3\n2.5  1  4\n", ["number"] * 2),
    "commas in a header": ("a (1,2,3);y\n1,5;2\n2,5;3\n", ["number"]),
    "signs": ("pattern,t,y\n--,1,5\n-+,2,.\n++,3,7\n", ["category", "number"]),
    "only a setting": ("T,ee,rep1,y\n80,9,5,55\n90,9,6,60\n100,,7,\n", ["number", OTHER, OTHER]),
    "single results, their mean and spread": (
        "T,raw1,raw2,mean,y (sd),y\n80,1,3,9,2,5\n90,2,3,9,3,6\n",
        ["number"] + [OTHER] * 4,
    ),
    "like results": ("T_mean,raw 1,target pH,Ionic strength,y\n20,1,7,50,5\n30,2,8,90,6\n", ["number"] * 4),
    "like counters": ("iterations,rounds,atomic number,y\n1,2,29,5\n2,4,27,6\n", ["number"] * 3),
    "places": (
        "Well,Plate,Status,S,y\nA1,1,ok,K,5\nA1,2,ok,L,6\nB2,1,,L,\n",
        [PLACE, PLACE, STATUS, "category"],
    ),
    "names": ("E,t,y\n" + "".join(f"E{k % 11},{k % 11},{k}\n" for k in range(13)), ["name", "number"]),
    "row names": ("rownames,dose,rep,y\n1,2,1,5\n2,2,2,6\n3,4,1,7\n", [COUNTS, "number", COUNTS]),
    "Design-Expert": ("Std,Run,A:T,y\n3,1,60,7\n1,2,50,5\n2,3,60,8\n", [COUNTS, COUNTS, "number"]),
    "labels in any order": (
        "Flask No.,NO,t,y\n7,300,2,5\n2,100,2,6\n9,200,1,7\n",
        ["name", "number", "number"],
    ),
    "a bracket in a header": ("[Pd],t,y\n1,80,5\n2,80,6\n", ["number", "it is always '80'"]),
    "points beside commas": ("c;t;y\n1,250;2;5\n1,500;3;6,5\n", ["number"] * 2),
    "UTF-16": ("ä\tb\ty\n1.5\t2\t5\n2.5\t3\t-\n", ["number"] * 2),
    "a unit row with gaps": (
        "Run,T,t,y\n,°C,h,%\n1,20,1,30\n2,40,2,33\n3,60,1,12\n",
        ["name", "number", "number"],
    ),
}


def test_of_an_excel_file_with_several_sheets_the_one_that_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = MagicMock(sheet_names=["Info", "Data"])
    book.parse.return_value = pd.DataFrame([["Project", "Owner"], ["x", "y"]])
    monkeypatch.setattr(pd, "ExcelFile", lambda path: nullcontext(book))
    path = written(tmp_path, "", name="two.xlsx")
    with pytest.warns(UserWarning, match="of two.xlsx only the sheet 'Info' is read; move another .*: Data"):
        assert read(path).options.names == ("x",)


@pytest.mark.parametrize("case", ROLES)
def test_what_the_columns_of_published_tables_are_taken_for(case: str, tmp_path: Path) -> None:
    text, expected = ROLES[case]
    path = written(tmp_path, text, encoding="utf-16" if case == "UTF-16" else "utf-8")
    header = re.split(r"[,;\s]+", text.partition("\n")[0])[-1]
    assert read(path, result=header).options.roles == (*expected, "result")


REFUSED: dict[str, tuple[Any, ...]] = {  # the table, what is said, and perhaps how it is read
    "empty cells": ("x,y\n1,2\n,3\n2,4\n", "is 'x': is it the result.* otherwise fill in row 2, or give"),
    "an empty setting": ("x,r\n1,2\n,3\n2,\n", "'x' in row 2 is ''.*mend.* by --ignore", {"result": "r"}),
    "two columns": ("a,b,y\n1,2,5\n,3,6\n4,x,7\n", "'a' in row 2 .*; .*'b' in row 3", {"result": "y"}),
    "a decimal comma": ("exp,t\ne1,1,5\ne2,2,5\n", "2 fields in line 2, saw 3; .*separate by semicolons"),
    "a footnote": ("L,t,y\nA,2,3\nB,3,4\n* note,,\n", r"row 3: '\* note' is a footnote", {"result": "y"}),
    "a sum": ("s,b,y\nA,K,3\nB,K,4\nTotal (g),,7\n", "row 3: 'Total .g.' sums up", {"result": "y"}),
    "thousands": ("s;y\n1.200;1,5\n800;2,5\n", "'s' in row 1 is '1.200': other columns", {"result": "y"}),
    "a point": ("s,y\n850,3\n1.200,4\n930,5\n", "row 2 is '1.200': is this a th", {"result": "y"}),
    "words above": ("s,y\nA,n.d.\nB,3\nC,1\nA,5\n", "the result of .* is 'n.d.'", {"result": "y"}),
    "odd numbers": ('s,c\nA,"1,000,000"\nB,"2,000,000"\n', "'c' in row 1 is '1,000,000': is it a number"),
    "units": ("T,y\n80 °C,2\n90 °C,3\n", "'T' in row 1 is '80 °C': is it a number", {"result": "y"}),
    "no setting": ("s,c,y\nX,-,5\nY,5,6\nX,9,7\n", "'c' in row 1 is '-': other rows have", {"result": "y"}),
    "merged cells": ("L,T\nX,20\n,40\nS,20\n,40\n", "the column 'L' above empty cells is 'X': fill in"),
    "JSON": ('[{"a":1},{"a":2}]', "give JSON as CSV"),
    "a title": ("Title\nx,y\n1,2\n", "delete lines above the header"),
    "a thousand or 1": ("x;y\n1,234;5\n2,345;6\n", "'x' in row 1 is '1,234': is this a decimal comma"),
    "double headers": ("t,t\n1,2\n3,4\n", r"the name that two columns have is \['t'\]"),
    "an underscore": ("x,y\n1_000,2\n3,4\n", "the column 'x' in row 1 is '1_000': other rows"),
    "nothing varies": ("name,x\na,7\nb,7\n", "the list of features is .*none varies"),
    "a name of a megabyte": (f"n,x\n{'a' * 10**6},0\nb,1\n", "the name of option 1 is", {"name": "n"}),
    "an open quote": ('x,y\n1,"2\n3,4\n', "EOF inside string"),
    "empty": ("", r"the table is \[\]: give a header"),
    "a result that is not named": ("x,yield\n1,5\n2,6\n", "is it the result. Then give --result 'yield'"),
    "another name": ("x,yield\n1,5\n2,6\n", "'yelt': did you mean 'yield'", {"result": "yelt"}),
    "no results yet": ("x,y\n1,5\n2,6\n", "If there are no results yet, give none", {"result": "yield"}),
    "no number": ("x,r\n1,<5\n2,6\n", "is '<5': give a number with a decimal point", {"result": "r"}),
    "out of range": ("x,r\n1,1e400\n2,6\n", "row 1: the result of '1' is '1e400'", {"result": "r"}),
    "one name twice": ("n,x\na,1\nb,2\na,3\n", "row 3: 'a' has other features in row 1", {"name": "n"}),
    "an option of the command": ("n,x\n--site,1\nb,2\n", "does not begin with --", {"name": "n"}),
    "a long wrong row": (f"x,y\n1,2\n{'z' * 10**5},3\n4,5\n", "z \\.\\.\\.': other rows have numbers"),
}


@pytest.mark.parametrize("table", REFUSED.values(), ids=REFUSED)
def test_a_table_is_refused_by_its_column_and_row(table: tuple[Any, ...], tmp_path: Path) -> None:
    text, words, *how = table
    with pytest.raises(ValueError, match=words) as refused:
        Study(tmp_path / "study.json", written(tmp_path, text), trials=10, **dict(*how))
    assert len(str(refused.value)) < 500 and not (tmp_path / "study.json").exists()


def test_results_are_told_at_once_and_lower_is_better_in_the_unit_of_the_owner(tmp_path: Path) -> None:
    path, table = tmp_path / "s.json", written(tmp_path, SCREEN)
    how = ("--result", "yield", "--ignore", "operator", "--trials", 9)
    assert "Nothing is written." in said(path, "begin", table, *how[:4], "--check") and not path.exists()
    out = said(path, "begin", table, *how, "--lower-is-better")
    assert "  base: category, 2 values: KOAc, None" in out and "4 options. Next: fedgo ask" in out
    study = Study(path)
    assert study.told == [("XPhos, KOAc", "", 61.0), ("XPhos, KOAc", "", 63.5)] and study.setup.old == 2
    study.tell("XPhos, None", 70.0)
    study.tell("PPh3, KOAc", 20.0)
    assert study.standings()[0].option == "PPh3, KOAc" and study.standings()[0].mean == 20
    shown = said(path, "show").splitlines()
    assert shown[0] == "best so far: PPh3, KOAc, mean 20 of 1 result; lower is better"
    assert shown[2].endswith("estimated")
    assert {row.option for row in study.standings() if row.retired} == {"PPh3, None"}
    frame = study.to_frame()
    assert frame["results"]["XPhos, KOAc"] == "61.0 63.5" and frame["SMILES"]["PPh3, KOAc"] == "P(c1)"
    assert said(path, "export", tmp_path / "r.csv") and len(pd.read_csv(tmp_path / "r.csv")) == 4
    assert "exists" in said(path, "export", tmp_path / "r.csv", code=1)
    again = read(tmp_path / "r.csv", ignore=["operator"])
    assert {str(value) for *_, value in again.results} == {"20.0", "61.0", "63.5", "70.0", "failed"}
    assert all(again.options.having(r) == study.content[0].options.having(r) for r in ("number", "category"))
    study.retire("PPh3, KOAc")
    assert "best so far: XPhos, KOAc, mean 62.25" in said(path, "show")


def test_what_is_measured_with_the_result_is_no_feature_and_an_export_can_be_begun(tmp_path: Path) -> None:
    table = written(tmp_path, "No,water,slump,strength\n2,10,5,40\n3,20,,\n4,35,7,52\n9,30,,\n")
    with pytest.raises(ValueError, match=r"'strength' or 'slump': is it the result.* fill in row 2, 4, or"):
        read(table)
    study = Study(tmp_path / "s.json", table, result="strength", trials=9)
    with pytest.warns(UserWarning, match="not kept: what is written in slump"):
        study.tell_plate(study.plate(1).assign(slump="6", strength="50"))
    assert "option 4, mean 52" in said(tmp_path / "s.json", "show")
    study.to_frame().to_csv(tmp_path / "e.csv")
    again = read(tmp_path / "e.csv")
    assert again.options.having("number") == ["water"] and again.options.label == "No"
    assert sorted(result for *_, result in again.results) == [40.0, 50.0, 52.0]


def test_a_german_export_is_read_as_excel_saves_it_and_a_text_hides_no_decimal_comma(tmp_path: Path) -> None:
    text = "Versuchsplan für Deckel;;\nStand: März;;\nT;Länge;Verzug\n10;1,5;0,9\n20;2,5;n.i.O.\n15;1,2;\n"
    with pytest.raises(ValueError, match=r"changed: row 2: the result of '20' is 'n.i.O.': [^;]*$"):
        read(written(tmp_path, text, encoding="cp1252"), result="Verzug")
    table = read(written(tmp_path, text.replace("n.i.O.", "failed"), encoding="cp1252"), result="Verzug")
    assert table.results == ((1, "10", 0.9), (2, "20", "failed")) and table.decimal_comma
    assert sum("a title" in line for line in table.report) == 2 and "Windows-1252" in str(table.report)
    study, table = tmp_path / "s.json", written(tmp_path, "L;T;w;y\nA;1;0,5;5,5\nA;2;;6\n")
    Study(study, table, trials=5, result="y", ignore=["w"])
    said(study, "export", tmp_path / "e.csv")
    assert "some of its cells are empty" in str(read(tmp_path / "e.csv").report)


def test_what_a_study_was_begun_with_stays_and_a_plate_that_cannot_be_written_opens_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = tmp_path / "s.json", written(tmp_path, "a,b,c\n1,1,7\n1,2,7\n2,1,7\n")
    how = ("begin", table, "--trials", 9, "--category", "c")
    assert said(path, *how) and "0 new options" in said(path, *how)
    assert "{'b': 'number'}: begin another" in said(path, *how, "--ignore", "b", code=1)
    grown = Study(path, written(tmp_path, "a,b,c\n1,1,7\n3,2,7\n"))
    assert grown.setup.options.names == ("1, 1", "1, 2", "2, 1", "3, 2")
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    assert "openpyxl" in said(path, "ask", "--to", tmp_path / "p.xlsx", code=1) and not grown.open
    table = written(tmp_path, "L,T,result\nA,1,5\nB,2,7\n")
    other = Study(tmp_path / "t.json", table, trials=5, ignore=["result"])
    assert other.tell_plate(other.plate(1).assign(result=[9])) == 1 and len(other.told) == 1


def test_a_plate_is_told_all_or_none(tmp_path: Path) -> None:
    rows = "\n".join(f"{a},{b},{c}" for a in ("THF", "DMF") for b in range(5) for c in range(4))
    path = tmp_path / "s.json"
    said(path, "begin", written(tmp_path, f"solvent,equiv,hours\n{rows}\n"), "--trials", 40)
    plate, other = tmp_path / "plate.csv", tmp_path / "other.csv"
    assert "fedgo tell" in said(path, "ask", "--count", 8, "--to", plate)
    assert "exists" in said(path, "ask", "--to", plate, code=1)
    said(path, "ask", "--count", 8, "--to", other)
    first, second = (pd.read_csv(file) for file in (plate, other))
    assert len({*first["option"], *second["option"]}) == 16
    assert list(first)[1:] == ["solvent", "equiv", "hours", "result"]
    before = path.read_text()
    hours = first["hours"].where(first.index != 4, 77)
    first.assign(result=["5", "x", "", *"12345"], hours=hours).to_csv(plate, index=False)
    words = said(path, "tell", plate, code=1)
    assert "row 2: the result of 'DMF, 1, 0' is 'x'" in words and "row 5: " in words
    assert path.read_text() == before
    filled = first.assign(result=["5", "failed", "", *"12345"]).sample(frac=1, random_state=0)
    filled.to_csv(plate, sep=";", index=False)
    assert said(path, "tell", plate) == f"{plate}: 7 results\n"
    study = Study(path)
    assert len(study.told) == 6 and len(study.open) == 9
    assert "is told already, and so are 5 more; if it is another trial" in said(path, "tell", plate, code=1)
    assert said(path, "tell", plate, "--again") and len(study.told) == 12
    unasked = pd.DataFrame({"solvent": ["THF"], "equiv": [4], "hours": [3], "result": [2.5]})
    assert study.tell_plate(unasked) == 1 and study.told[-1] == ("THF, 4, 3", "", 2.5)
    with pytest.raises(ValueError, match="row 1: no option of the study is"):
        study.tell_plate(unasked.assign(solvent="water"))


def test_only_a_site_gets_its_open_trials_again(tmp_path: Path) -> None:
    table = written(tmp_path, "name,x\n" + "".join(f"o{k},{k}\n" for k in range(30)))
    study = Study(tmp_path / "s.json", table, trials=100)
    assert len({*study.batch(3), *study.batch(3), study.ask(), study.ask()}) == 8
    shared = Study(tmp_path / "t.json", table, trials=100, sites=["north", "south"])
    north = shared.batch(2, "north")
    assert shared.batch(2, "north") == north and not {*north} & {*shared.batch(2, "south")}


def test_what_was_measured_is_not_asked_again_and_what_failed_or_was_dropped_waits(tmp_path: Path) -> None:
    old = [0.4, 0.6, 3.9, 3.3, 2.4, 6.1, 9.9, 9.8, 5.9, *[""] * 7]
    table = "name,x,y,r\n" + "".join(f"o{k},{k % 4},{k // 4},{result}\n" for k, result in enumerate(old))
    study = Study(tmp_path / "s.json", written(tmp_path, table), trials=12, result="r")
    asked = study.batch(7)
    assert {*asked} == {f"o{k}" for k in range(9, 16)}
    for option in asked[:3]:
        study.drop(option)
    study.tell(asked[3], "failed")
    assert study.ask() not in asked[:4]
    assert Study(study.path, trials=200).setup.trials == 200


def test_a_grown_table_adds_options_and_says_what_the_study_does_not_have(tmp_path: Path) -> None:
    path, table = tmp_path / "s.json", "solvent,t\nTHF,1\nDMF,2\nTHF,3\n"
    Study(path, written(tmp_path, table), trials=9)
    with pytest.warns(UserWarning, match="left out, as the study does not have them: 'new'"):
        grown = Study(path, written(tmp_path, "solvent,t,new\nTHF,3,7\nwater,4,8\n"))
    options = grown.setup.options
    assert options.names[:3] == ("THF, 1", "DMF, 2", "THF, 3") and len(options.names) == 4
    assert grown.report == ("2 rows: 1 new options, 4 in all",) and grown.setup.arms.shape[1] == 4
    assert options.words(options.names[3:]) == ["solvent water, t 4"]


def test_what_was_always_the_same_is_no_other_option_and_a_new_text_is(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    Study(path, written(tmp_path, "solvent,t,gas,p\nTHF,1,Ar,1\nDMF,2,Ar,1\nTHF,3,Ar,1\n"), trials=9)
    fine = written(tmp_path, "solvent,t,gas,p\nwater,3,Ar,1.0\n", "fine.csv")
    assert len(Study(path, fine).setup.options.names) == 4
    for row, words in (("THF,1,N2,1", "'gas' is 'N2', and in this study"), ("THF,1,Ar,2", "'p'")):
        other = written(tmp_path, f"solvent,t,gas,p,result\n{row},5\n", "other.csv")
        for call in (Study(path).tell_plate, lambda other: Study(path, other)):
            with pytest.raises(ValueError, match=f"row 1: {words}"):
                call(other)


def test_a_plate_of_another_study_is_refused(tmp_path: Path) -> None:
    mine = Study(tmp_path / "s.json", written(tmp_path, "solvent,t\nTHF,1\nTHF,2\nDMF,1\n"), trials=9)
    for name, text, words in (
        ("column", "base,t\nKOH,1\nKOH,2\nKF,1\n", "it lacks 'solvent'"),
        ("option", "solvent,t\nTHF,9\nTHF,8\nDMF,7\n", "no option of the study is .*row 2: "),
        ("result", "solvent,t,ee\nTHF,1,\nTHF,2,\nDMF,1,\n", "did you mean"),
    ):
        how = {"result": "ee"} if name == "result" else {}
        other = Study(tmp_path / f"{name}.json", written(tmp_path, text, f"{name}.csv"), trials=9, **how)
        told = other.plate(2).assign(**{other.setup.options.result: [1, 2]})
        with pytest.raises(ValueError, match=words), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mine.tell_plate(told.drop(columns="option", errors="ignore"))
    assert mine.told == []


def test_a_result_told_twice_is_asked_back(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    study = Study(path, written(tmp_path, "name,t,r\na,1,5\nb,2,\nc,3,\n"), trials=9, name="name", result="r")
    words = said(path, "tell", "a", "5", code=1)
    assert "5 of 'a' is told already; if it is another trial, give --again" in words
    assert said(path, "tell", "a", "5", "--again").startswith("a: 5; 2 results, of it 5, 5 (")
    first = study.ask()
    study.tell(first, 4.0)
    with pytest.raises(ValueError, match="again=True"):
        study.tell(first, 4.0)
    study.tell(first, 4.5)
    assert len(study.told) == 4
    strains = written(tmp_path, "strain,y\nA,5\nB,6\nC,\nD,\n", "strains.csv")
    plain = Study(tmp_path / "t.json", strains, trials=9, result="y", method="ucb1")
    assert plain.tell_plate(plain.plate(2).assign(y=["1", "2"])) == 2


def test_the_words_of_a_person_s_first_day(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    rows = "\n".join(f"{n},{n % 5},{n % 7},{'' if n > 3 else n}" for n in range(36))
    table = written(tmp_path, f"Exp,t,c,cost\n{rows}\n")
    begun = said(path, "begin", table, "--trials", 40, "--result", "cost")
    assert "row 36 has no result and the settings of row 1: one option" in begun
    assert "The highest result is best; if it is the lowest, give --lower-is-better." in begun
    with pytest.warns(UserWarning, match="8 of 40 trials repeat an option of the same batch"):
        Study(path).batch(40)
    assert "--again takes it back" in said(path, "tell", "0, 5", "failed")
    assert "after fedgo retire OPTION --again" in said(path, "untell", "0, 5", code=1)
    said(path, "export", tmp_path / "e.csv")
    again = said(path, "begin", tmp_path / "e.csv", "--check", "--lower-is-better")
    assert "Exp: left out: it numbers the rows" in again and "The lowest result is best." in again


@pytest.mark.parametrize("differ", [False, True])
def test_sites_of_a_federation_tell_plates(differ: bool, tmp_path: Path) -> None:
    rows = "\n".join(f"{a},{b}," for a in ("THF", "DMF", "MeCN") for b in range(6))
    options = Options.of(written(tmp_path, f"solvent,equiv,yield\n{rows}\n"), result="yield")
    plan = Plan.of(options, clients=2, fitting=Fitting(0.5, 12, differ=differ))
    assert plan.fitting is not None and getattr(plan.fitting.surrogate, "groups", None) == (0, 0, 0, 1)
    clients, server = [Client(plan, me) for me in range(2)], Server(plan)
    for _ in range(3):
        for client in clients:
            trials = plate(client, options, 4)
            assert list(trials) == ["option", "solvent", "equiv", "yield"] and 1 <= len(trials) <= 4
            assert [options.names[arm] for arm in client.upcoming(4)] == list(trials["option"])
            before, results = client.memory, [str(9 - equiv) for equiv in trials["equiv"].astype(int)]
            for wrong in ("x", "1e200"):
                with pytest.raises(ValueError, match=f"row 1: the result of .* is '{wrong}'"):
                    tell_plate(client, options, trials.assign(**{"yield": [wrong, *results[1:]]}))
            assert client.memory is before
            trials.assign(**{"yield": results}).to_csv(tmp_path / "plate.csv", index=False)
            tell_plate(client, options, tmp_path / "plate.csv")
        converse(server, clients)
    sums = sum(client.memory.base + client.memory.own for client in clients)
    mean = torch.tensor([9.0 - k % 6 for k in range(18)])
    assert sums[0].sum() > 8 and torch.equal(sums[1], sums[0] * mean)
    failed = plate(clients[0], options, 1).assign(**{"yield": ["failed"]})
    tell_plate(clients[0], options, failed)
    assert failed["option"][0] not in plate(clients[0], options, 18)["option"].tolist()
