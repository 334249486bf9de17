"""A figure's picture is shown on another page, with its alternative text and without its caption."""

from types import SimpleNamespace

import pytest
from book_modules import load
from docutils import nodes
from docutils.utils import new_document

shown_again = load("shown_again")


def page_with_a_figure():
    """A page as Sphinx keeps it: a figure with the id fig-a, and another one."""
    document = new_document("a")
    for name in ("fig-a", "fig-b"):
        picture = nodes.image(uri=f"{name}.svg", alt=f"What {name} shows.")
        document += nodes.figure("", picture, nodes.caption("", "A caption."), ids=[name])
    return document


@pytest.fixture
def fill(monkeypatch):
    """The page that asks for a figure's picture, after the pages have been read; and what the build is told."""
    said = []
    logger = SimpleNamespace(warning=lambda text, location: said.append(text))
    monkeypatch.setattr(shown_again.logging, "getLogger", lambda name: logger)

    def run(label, labels):
        document = new_document("front")
        document += shown_again.again(label=label, classes=[])
        document.settings.env = SimpleNamespace(
            domaindata={"std": {"anonlabels": labels}}, get_doctree=lambda name: page_with_a_figure()
        )
        shown_again.Fill(document).run()
        return document, said

    return run


def test_the_picture_is_shown_with_its_text_and_without_its_caption(fill):
    document, said = fill("fig-a", {"fig-a": ("a", "fig-a")})
    (picture,) = document.findall(nodes.image)
    assert (picture["uri"], picture["alt"]) == ("fig-a.svg", "What fig-a shows.")
    assert not list(document.findall(nodes.caption)) and not list(document.findall(nodes.figure)) and not said


@pytest.mark.parametrize("labels", [{}, {"fig-c": ("a", "sec-c")}])
def test_a_figure_that_no_page_has_is_named(fill, labels):
    document, said = fill("fig-c", labels)
    assert said == ["no page has a figure 'fig-c'"] and not document.children
