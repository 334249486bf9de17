"""Formulas and the marks that touch them stay together, and no text is lost."""

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
