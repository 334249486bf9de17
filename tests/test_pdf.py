"""The PDF has every page of the book in order, an outline, and links that stay inside it or lead to the web."""

import json
import sys
from pathlib import Path

import pytest
from book_modules import load, shared
from pypdf import PdfReader

ROOT = Path(__file__).resolve().parents[1]

CSS = (ROOT / "book/_assets/book.css").read_text(encoding="utf-8")
TOC = """format: jb-book
root: book/index
parts:
  - caption: The paper
    chapters:
      - file: book/_executed/01_first
      - file: book/_executed/02_second
  - caption: About
    chapters:
      - file: book/choices
"""
LONG = "<p>Some words to fill the page.</p>" * 60
PAGES = {
    "book/index": "<h1>The book</h1><p>FRONT <a href='_executed/02_second.html#target'>there</a></p>",
    "book/_executed/01_first": "<h1>1. First<a class='headerlink' href='#'>#</a></h1>"
    "<section id='part-γ'><h2>1.1. A section</h2><p>ONE <a href='https://example.org/'>web</a></p></section>"
    "<p><a href='../../source/fedgo/star.html#line-7'>source</a> <a href='#part-γ'>above</a></p>"
    "<details class='hide'><summary><p>show</p></summary><p>HIDDEN</p></details>"
    "<script>addEventListener('beforeprint', () => { document.querySelector('details').open = true })</script>",
    "book/_executed/02_second": f"<h1>2. Second</h1>{LONG}<p id='target'>TWO</p><table><tr>"
    f"<td style='white-space: nowrap'>{'wide ' * 60}</td><td>END</td></tr></table>",
    "book/choices": "<h1>Choices</h1><p>THREE <a href='_executed/01_first.html'>back</a></p>",
}


pdf, website = load("pdf"), shared("website")

try:
    pdf.chromium()
    reason = ""
except pdf.PdfError as fault:
    reason = str(fault)
needs_chromium = pytest.mark.skipif(bool(reason), reason=reason)


@pytest.fixture
def site(tmp_path):
    """A built book of four pages, in a folder whose name has to be escaped in an address."""
    root = tmp_path / "a book"
    for name, body in PAGES.items():
        file = root / f"_build/html/{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"<!doctype html><meta charset='utf-8'><style>{CSS}</style>"
            f"<article class='bd-article'>{body}</article>",
            encoding="utf-8",
        )
    (root / "_toc.yml").write_text(TOC)
    (root / "_config.yml").write_text("title: The book\nauthor: Its authors\n")
    (root / website.GOOD).write_text(json.dumps(website.sources(root)))
    return root


@needs_chromium
def test_pages_outline_and_links(site):
    reader = PdfReader(pdf.make(site))
    sheets = [sheet.extract_text() for sheet in reader.pages]
    text = "\n".join(sheets)
    found = [text.index(word) for word in ("Its authors", "FRONT", "ONE", "TWO", "END", "THREE")]
    assert found == sorted(found)
    assert "HIDDEN" not in text and "#" not in text
    assert "The code of this cell is left out" in text
    assert [sheet.split()[-1] for sheet in sheets[1:]] == [str(n) for n in range(2, len(sheets) + 1)]
    assert (reader.metadata.title, reader.metadata.author) == ("The book", "Its authors")
    assert reader.page_mode == "/UseOutlines"

    def outline(items):
        for item in items:
            if isinstance(item, list):
                yield [*outline(item)]
            else:
                yield item.title, reader.get_destination_page_number(item)

    last = len(sheets) - 1
    chapters = [("1. First", 1), [("1.1. A section", 1)], ("2. Second", 2)]
    assert [*outline(reader.outline)] == [
        ("The book", 0),
        ("The paper", 1),
        chapters,
        ("About", last),
        [("Choices", last)],
    ]

    links = [(n, note.get_object()) for n, sheet in enumerate(reader.pages) for note in sheet["/Annots"]]
    places = {sheet.indirect_reference.idnum: n for n, sheet in enumerate(reader.pages)}
    inside = {(n, places[link["/Dest"][0].idnum]) for n, link in links if "/Dest" in link}
    target = next(n for n, sheet in enumerate(sheets) if "TWO" in sheet)
    assert target > 2
    assert inside == {(0, target), (1, 1), (last, 1)}
    assert {link["/A"]["/URI"] for _, link in links if "/A" in link} == {"https://example.org/"}
    assert b"file:" not in (site / "_build/fedgo.pdf").read_bytes()


@needs_chromium
def test_what_is_too_wide_is_shrunk(site):
    """The last word of a table far wider than the paper lies on it."""
    found = []

    def see(text, on_page, in_text, *_):
        if text.strip() == "END":
            found.append(in_text[4] * on_page[0] + in_text[5] * on_page[2] + on_page[4])

    for sheet in PdfReader(pdf.make(site)).pages:
        sheet.extract_text(visitor_text=see)
    (x,) = found
    assert 300 < x < 595 - 51  # points; A4 without the margin


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("_build/html/book/choices.html", None, r"choices\.html is missing\)"),
        ("_build/good.json", None, "the last build of the book failed, or there was none"),
        ("_toc.yml", TOC + "# edited\n", "the sources changed since the book was built"),
        ("notebooks/01_first.md", "# New\n", "the sources changed since the book was built"),
    ],
)
def test_a_book_that_is_not_built_is_not_printed(site, monkeypatch, file, content, reason):
    (site / "notebooks").mkdir()
    (site / file).unlink() if content is None else (site / file).write_text(content)
    monkeypatch.setattr(pdf, "ROOT", site)
    with pytest.raises(SystemExit, match=f"^The PDF was not made: .*{reason}; run `make book` first$"):
        pdf.main()
    assert not (site / "_build/fedgo.pdf").exists()


@pytest.mark.parametrize("named", ["", "/no/such/browser"])
def test_without_chromium_the_remedy_is_named(site, monkeypatch, named):
    monkeypatch.setenv("CHROMIUM", named)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(pdf, "ROOT", site)
    with pytest.raises(SystemExit, match=f"{named or 'Chromium'} is not there.*CHROMIUM=/path/to/chrome"):
        pdf.main()


def test_a_browser_that_does_not_start_is_named(site, monkeypatch):
    monkeypatch.setenv("CHROMIUM", sys.executable)
    monkeypatch.setattr(pdf, "ROOT", site)
    with pytest.raises(SystemExit, match=f"{sys.executable} could not print"):
        pdf.main()
