"""What other sites show of a page: its first sentence, and a picture only where somebody could fetch it."""

import itertools

import pytest
from book_modules import load
from docutils import nodes
from docutils.utils import new_document

load("source_links", "source_links")
load("provenance", "provenance")
sharing = load("sharing")

SENTENCE = "This chapter computes all that the paper shows, with the runs of everybody and a hundred seeds"


def page(*texts):
    document = new_document("page")
    document += [nodes.paragraph("", text) for text in texts]
    return document


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ((SENTENCE,), SENTENCE),
        (("Short.", SENTENCE), SENTENCE),
        (
            (r"Let \\hat w be the parameter that the clients have fitted together in Phase I.", SENTENCE),
            SENTENCE,
        ),
        ((3 * f"{SENTENCE}, ",), f"{SENTENCE}, {SENTENCE}, This …"),
        ((), ""),
    ],
)
def test_a_description_is_the_first_sentence_without_formulas(texts, found):
    assert sharing.description(page(*texts)) == found
    assert len(found) <= sharing.LONGEST + 2
    assert sharing.description(None) == ""


def test_a_page_names_the_picture_only_where_its_address_is_known():
    here = sharing.tags("A <page>", SENTENCE, "A book", "", "book/a")
    assert "https:" not in here and 'og:title" content="A &lt;page&gt;"' in here
    there = sharing.tags("A page", "", "A book", sharing.address("Me/book"), "book/a")
    assert 'og:image" content="https://me.github.io/book/_static/card.png"' in there
    assert 'og:url" content="https://me.github.io/book/book/a.html"' in there
    assert "description" not in there and sharing.address("") == ""


def test_the_words_of_the_card_fit_beside_its_drawing(tmp_path):
    figure = sharing.card(*sharing.WORDS)
    figure.savefig(tmp_path / "card.png")
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 4 and max(box.x1 for box in boxes) < 720
    assert all(low.y1 < high.y0 for high, low in itertools.pairwise(boxes))
    assert (tmp_path / "card.png").read_bytes()[16:24] == b"".join(n.to_bytes(4) for n in sharing.SIZE)
