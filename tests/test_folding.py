"""What is folded: the rest of a section behind the line that opens it, and every proof."""

import io

import pytest
from book_modules import load
from bs4 import BeautifulSoup

PAGE = """
Title
=====

Seen.

.. fold:: The rest, with *words*

Put away.

.. figure:: none.png
   :name: fig-one

   A figure.

.. prf:proof::

   Take any. Done.

.. unfold::

Seen again.

.. fold:: More

Put away too.

.. fold:: And more

The end.

Below
-----

Open, :numref:`fig-one`.

.. fold:: Nothing
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The page's HTML, and the warnings."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    load("folding", "folding")
    place = tmp_path_factory.mktemp("folding")
    (place / "index.rst").write_text(PAGE)
    warnings = io.StringIO()
    settings = {"extensions": ["folding", "sphinx_proof"], "html_theme": "basic", "numfig": True}
    with docutils_namespace():
        folders = str(place), None, str(place / "html"), str(place / "trees"), "html"
        Sphinx(*folders, confoverrides=settings, status=None, warning=warnings).build()
    return (place / "html/index.html").read_text(encoding="utf-8"), warnings.getvalue()


@pytest.fixture
def page(built):
    return BeautifulSoup(built[0], "html.parser").select_one("div.body")


def said(node):
    return " ".join(node.get_text(" ").split())


def test_the_rest_of_a_section_is_folded_up_to_where_it_ends(page):
    folds = [each for each in page.select("details.fold") if not each.find_parent("details")]
    lines = [said(each.summary.extract()) for each in folds]
    assert lines == ["The rest, with words", "More", "And more", "Nothing"]
    assert folds[0].select_one("figure") and "Put away." in said(folds[0])
    assert [said(each) for each in folds[1:]] == ["Put away too.", "The end.", ""]
    assert not any(each.has_attr("open") for each in folds)
    for each in folds:
        each.decompose()
    assert "Seen again." in said(page) and "Open, Fig. 1" in said(page) and "Put away" not in said(page)


def test_a_proof_is_folded_and_its_first_word_opens_it(page):
    (proof,) = page.select("details.fold details.fold")
    assert said(proof.summary.extract()) == "Proof"
    assert said(proof) == "Take any. Done."


def test_a_fold_of_nothing_is_a_warning(built):
    assert built[1].count("there is nothing to fold") == 1
