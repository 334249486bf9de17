"""The pages are built with warnings as errors; what is used again gives the same site; only a good one counts."""

from types import SimpleNamespace

import pytest
from book_modules import shared

chapters, website = shared("chapters"), shared("website")

INDEX = "(here)=\n# A page\n\n{ref}`here` {eq}`one` {cite:p}`known2024` {doc}`second` {ref}`there`\n\n"
INDEX += "```{math}\n:label: one\n1\n```\n\n```{bibliography}\n```\n"


@pytest.fixture
def book(tmp_path):
    """A book of two pages for Jupyter Book itself."""
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/index\nchapters: [{file: book/second}]\n")
    (tmp_path / "_config.yml").write_text(
        "title: A book\nbibtex_bibfiles: [book/some.bib]\nexclude_patterns: [_build]\n"
        "sphinx: {extra_extensions: [sphinx_proof]}\n"
    )
    (tmp_path / "book/some.bib").write_text("@misc{known2024, title = {A}, author = {B, C}, year = 2024}\n")
    (tmp_path / "book/index.md").write_text(INDEX)
    (tmp_path / "book/second.md").write_text("# Another\n\n(there)=\n## Below\n\nWords.\n")
    return tmp_path


def pages(book) -> dict[str, str]:
    """Every page of the site; the addresses of styles carry a number that an earlier build may have left out."""
    site = book / website.SITE
    found = {str(path.relative_to(site)): path.read_text() for path in site.glob("**/*.html")}
    return {name: website.re.sub(r"\?v=\w+", "", text) for name, text in found.items()}


def test_a_missing_reference_is_named(book):
    """References that lead somewhere are built, and each that does not is named."""
    assert website.build(book) == book / "_build/html/index.html"
    assert "url=book/index.html" in (book / "_build/html/index.html").read_text()
    gone = {
        "gone-ref": "{ref}`gone-ref`",
        "gone-eq": "{eq}`gone-eq`",
        "gone-fig": "{numref}`gone-fig`",
        "gone-lemma": "{prf:ref}`gone-lemma`",
        "gone2024": "{cite:p}`gone2024`",
        "gone.Class": "{py:class}`gone.Class`",
        "gone-page": "[a page](gone-page.md)",
        "gone-image": "![an image](gone-image.png)",
        "gone_number": "{glue:text}`gone_number:.1f`",
    }
    (book / "book/index.md").write_text(INDEX + "\n\n".join(["", *gone.values()]))
    with pytest.raises(chapters.BuildError) as fault:
        website.build(book)
    assert [name for name in gone if name not in str(fault.value)] == []


def test_an_edit_gives_the_site_that_a_build_from_nothing_gives(book):
    """A new title stands in side bars and links of pages that were not read again; a label that is gone is missed."""
    website.build(book)
    second = book / "book/second.md"
    second.write_text("# Renamed\n\n(there)=\n## Lower\n\nWords.\n\n## More\n")
    website.build(book)
    after = pages(book)
    assert all("Renamed" in after[f"book/{name}.html"] for name in ("index", "second"))
    assert "Lower" in after["book/index.html"]
    (book / website.GOOD).unlink()
    website.build(book)
    assert pages(book) == after
    second.write_text("# Renamed\n\n## Lower\n")
    with pytest.raises(chapters.BuildError, match="there"):
        website.build(book)


@pytest.fixture
def quick(book, monkeypatch):
    """The book, built by a Sphinx that only pretends: a page for every source, and a warning for "{ref}`gone`"."""

    def run(command, **options):
        quick.commands.append(command)
        for page in (book / "book").glob("*.md"):
            path = book / website.SITE / f"book/{page.stem}.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page.read_text())
        bad = "{ref}`gone`" in (book / "book/index.md").read_text()
        said = (
            "reading\n\x1b[91mbook/index.md:1: WARNING: undefined label: 'gone'\x1b[39;49;00m\ndone\n" * bad
        )
        return website.subprocess.CompletedProcess(command, int(bad), said)

    quick = SimpleNamespace(commands=[])
    monkeypatch.setattr(website.subprocess, "run", run)
    return quick


def afresh(quick) -> bool:
    """Whether the last build read every page."""
    return "--afresh" in quick.commands[-1]


def test_nothing_stays_of_a_page_that_is_gone(book, quick):
    website.build(book)
    assert afresh(quick)
    website.build(book)
    assert not afresh(quick)
    (book / "book/second.md").unlink()
    website.build(book)
    assert afresh(quick)
    assert pages(book).keys() == {"book/index.html"}


def test_only_a_good_build_of_todays_sources_counts(book, quick):
    missing = "the last build of the book failed, or there was none; run `make book` first"
    changed = "the sources changed since the book was built; run `make book` first"
    assert website.why_not_good(book) == missing
    website.build(book)
    assert website.why_not_good(book) == ""
    index = book / "book/index.md"
    index.write_text(INDEX + "\nA word more.\n")
    assert website.why_not_good(book) == changed
    website.build(book)
    assert website.why_not_good(book) == ""
    index.write_text(INDEX + "\n{ref}`gone`\n")
    with pytest.raises(chapters.BuildError) as fault:
        website.build(book)
    assert str(fault.value) == "the HTML build failed:\nbook/index.md:1: WARNING: undefined label: 'gone'"
    assert website.why_not_good(book) == missing
    index.write_text(INDEX)
    assert website.why_not_good(book) == missing
    website.build(book)
    assert afresh(quick)
    for damaged in ("", "{}", "[]", "null", '{"pages": 1}'):
        (book / website.GOOD).write_text(damaged)
        assert website.why_not_good(book) == missing


def test_what_is_edited_while_the_pages_are_built_is_not_in_the_stamp(book, quick, monkeypatch):
    run = website.subprocess.run

    def slow(*arguments, **options):
        done = run(*arguments, **options)
        (book / "book/index.md").write_text(INDEX + "\nToo late.\n")
        return done

    monkeypatch.setattr(website.subprocess, "run", slow)
    website.build(book)
    assert "the sources changed" in website.why_not_good(book)


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("book/index.md", "pages"),
        ("book/_executed/01_a.ipynb", "pages"),
        ("notebooks/01_a.md", "pages"),
        ("book/new.md", "frame"),
        ("book/names.py", "frame"),
        ("book/some.bib", "frame"),
        ("book/_assets/book.css", "frame"),
        ("fedgo/star.py", "frame"),
        ("fedgo/data/magic.csv", "frame"),
        ("_toc.yml", "frame"),
        ("_config.yml", "frame"),
        ("requirements.lock", "frame"),
        ("book/_executed/.ipython/history", None),
        ("book/_traces/a/b.npz", None),
        ("fedgo/__pycache__/star.pyc", None),
        ("README.md", None),
    ],
)
def test_what_the_site_is_made_of(book, file, part):
    path = book / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name != "new.md":
        path.touch()
    before = website.sources(book)
    path.write_text("changed")
    after = website.sources(book)
    assert (before["frame"] != after["frame"]) == (part == "frame")
    assert part is None or before[part] != after[part]
    assert part is not None or before == after


def test_another_repository_is_another_frame(book, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    before = website.sources(book)["frame"]
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/mine")
    assert website.sources(book)["frame"] != before
