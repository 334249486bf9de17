"""Formulas and the marks that touch them stay together, computed numbers have a minus sign, and no text is lost."""

import pytest
from book_modules import load
from docutils import nodes
from docutils.utils import new_document

typography = load("typography")


def paragraph(*parts):
    document = new_document("page")
    document += nodes.paragraph("", "", *parts)
    typography.Unbroken(document).run()
    return document[0]


def formula():
    return nodes.math("", "x")


@pytest.mark.parametrize(
    ("before", "after", "bound"),
    [
        ("Let ", ", then", "x,"),
        ("(", ") is", "(x)"),
        ("see “", "”. Then", "“x”."),
        ("", ".", "x."),
    ],
)
def test_marks_are_bound_to_the_formula(before, after, bound):
    parts = [nodes.Text(before)] * bool(before) + [formula(), nodes.Text(after)]
    found = paragraph(*parts)
    assert found.astext() == before + "x" + after
    (inline,) = found.findall(nodes.inline)
    assert inline.astext() == bound
    assert inline["classes"] == ["unbroken"]
    assert len(list(inline.findall(nodes.math))) == 1


def test_a_formula_among_words_and_two_in_a_row_are_as_they_were():
    assert not list(paragraph(nodes.Text("of "), formula(), nodes.Text(" and")).findall(nodes.inline))
    found = paragraph(formula(), nodes.Text(","), formula(), nodes.strong("", "."))
    assert found.astext() == "x,x."
    assert [part.astext() for part in found.findall(nodes.inline)] == ["x,"]


def test_a_formula_that_comes_first_takes_nothing_from_the_end():
    found = paragraph(formula(), nodes.Text(" opens ("))
    assert found.astext() == "x opens ("
    assert not list(found.findall(nodes.inline))


@pytest.mark.parametrize(
    ("tex", "parts"),
    [
        ("N = 20", ["N = 20"]),
        (
            r"\Lambda = \ln(\det\Sigma_{NT}/\det I) + x_1x_2x_3",
            [r"\Lambda = {}", r"\ln(\det\Sigma_{NT}/\det I) + {}", "x_1x_2x_3"],
        ),
        (r"\sqrt{a + b + c + d + e + f + g + h + i + j}", [r"\sqrt{a + b + c + d + e + f + g + h + i + j}"]),
        (
            r"|a + b| \le c_1c_2c_3c_4c_5c_6c_7c_8 - d",
            [r"|a + b| \le {}", "c_1c_2c_3c_4c_5c_6c_7c_8 - {}", "d"],
        ),
        (r"aaaaaaaaaaaaaaaaaaa = -b", ["aaaaaaaaaaaaaaaaaaa = {}", "-b"]),
        (r"\left( a + b + c + d + e + f + g + h + i + j \right)", None),
    ],
)
def test_a_long_formula_breaks_after_a_relation_or_a_sign_outside_of_brackets(tex, parts):
    document = new_document("page")
    document += nodes.paragraph("", "", nodes.math(tex, tex), nodes.Text("."))
    typography.Breaking(document).run()
    assert [part.astext() for part in document.findall(nodes.math)] == (parts or [tex])


def pasted(text):
    return nodes.inline("", text, classes=["pasted-text"])


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (pasted("-41"), "−41"),
        (pasted("-0.5"), "−0.5"),
        (nodes.entry("", nodes.paragraph("", "-41 ± 7 [-48, -34]")), "−41\u00a0±\u00a07 [−48, −34]"),
        (nodes.entry("", nodes.paragraph("", "mean ± error")), "mean ± error"),
        (nodes.entry("", nodes.paragraph("", "fig-3 2024-01-02 1e-9")), "fig-3 2024-01-02 1e-9"),
        (nodes.entry("", nodes.paragraph("", "", nodes.literal("", "-1"))), "-1"),
        (nodes.entry("", nodes.paragraph("", "", nodes.math("", "-1"))), "-1"),
        (nodes.inline("", "-41"), "-41"),
    ],
)
def test_a_computed_number_has_a_minus_sign(part, shown):
    document = new_document("page")
    document += nodes.paragraph("", "", part)
    typography.Minus(document).run()
    assert document.astext() == shown


def column(*cells):
    """A table of one column, and the classes of its cells after the transform."""
    rows = [nodes.row("", nodes.entry("", nodes.paragraph("", "", *parts))) for parts in cells]
    document = new_document("page")
    document += nodes.table("", nodes.tgroup("", nodes.tbody("", *rows), cols=1))
    typography.Wordy(document).run()
    return [cell["classes"] for cell in document.findall(nodes.entry)]


def test_a_column_is_of_words_by_its_longest_text_and_formulas_do_not_count():
    short, phrase, sentence = (
        nodes.Text("1,001 ± 208"),
        nodes.Text("twenty options, a week"),
        nodes.Text("so " * 30),
    )
    long = nodes.math("", r"\\lambda_{\\text{least}} \\ge 10^{-4}")
    assert column([short], [short.copy(), long]) == [[], []]
    assert column([short], [phrase]) == [["phrases"]] * 2
    assert column([sentence], [short]) == [["phrases", "sentences"]] * 2
