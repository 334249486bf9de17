"""`make mutants` plants what it says where it says, and asks the tests that can see it."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import mutants  # noqa: E402


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a + b", "a - b"),
        ("a <= b", "a < b"),
        ("a == b", "a != b"),
        ("a and b", "a or b"),
        ("not a", "a"),
        ("a.clamp(min=0)", "a"),
        ("0.5", "1.0"),
        ("0.0", "1.0"),
        ("3", "4"),
    ],
)
def test_a_fault_is_one_operator_comparison_constant_sign_or_clamp(before, after):
    fault = mutants.mutated(ast.parse(before, mode="eval").body)
    assert fault is not None and ast.unparse(fault) == after


@pytest.mark.parametrize("whole", ["a", "True", "'1'", "f(a)", "a < b < c"])
def test_other_code_has_no_fault(whole):
    assert mutants.mutated(ast.parse(whole, mode="eval").body) is None


def test_every_fault_of_a_file_is_put_in_its_place_and_nowhere_else(tmp_path):
    path = tmp_path / "made.py"
    path.write_text(
        'λ = "β" + str(1 - 2)\n\n\ndef f(x: "int | None" = 3) -> "int | str":\n    return -x\n', "utf-8"
    )
    text = path.read_text("utf-8")
    found = [mutants.planted(text, node, new).splitlines() for node, new in mutants.spots(path)]
    lines = {
        (number, new)
        for planted in found
        for number, (old, new) in enumerate(zip(text.splitlines(), planted, strict=True))
        if old != new
    }
    assert lines == {
        (0, 'λ = ("β" - str(1 - 2))'.replace('"', "'")),
        (0, 'λ = "β" + str((1 + 2))'),
        (0, 'λ = "β" + str((2) - 2)'),
        (0, 'λ = "β" + str(1 - (3))'),
        (3, 'def f(x: "int | None" = (4)) -> "int | str":'),
        (4, "    return (x)"),
    }
    assert len(found) == len(lines)


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("fedgo.experiments.claims", "tests/test_claims.py"),
        ("fedgo.experiments.guarded", "tests/test_guarded.py"),  # `from fedgo.experiments import guarded`
        ("fedgo.optimism.cuts", "tests/test_line_three.py"),
        ("fedgo.federation.wire", "tests/test_federation.py"),  # what the package's own file takes from it
    ],
)
def test_the_tests_most_like_a_module_are_asked_first(module, first):
    assert mutants.tests_of(module)[0] == first


def test_of_a_module_that_no_test_imports_those_of_its_users_are_asked():
    assert "tests/test_federated_surrogates.py" in mutants.tests_of("fedgo.federation.model")


def test_a_failing_test_and_a_late_one_catch_a_mutant(tmp_path):
    (tmp_path / "test_made.py").write_text("def test(): assert 1 + 1 == 2\n")
    assert mutants.run(tmp_path, ["test_made.py"], 300) == "survived"
    (tmp_path / "test_made.py").write_text("def test(): assert 1 + 1 == 3\n")
    assert mutants.run(tmp_path, ["test_made.py"], 300) == "caught"
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text("def test(): assert True\n")
    four = [*(f"test_{number}.py" for number in range(3)), "test_made.py"]
    assert mutants.run(tmp_path, four, 300) == "caught"
    (tmp_path / "test_made.py").write_text("def test():\n    while True: pass\n")
    assert mutants.run(tmp_path, ["test_made.py"], 3) == "caught"
