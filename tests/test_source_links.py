"""Code of the package in a chapter is today's, is linked to its line, and is refused where it is gone."""

import io

import pytest
from book_modules import load

MODULE = '''"""A module."""

LIMIT = (
    3
)


class Ball:
    """A ball."""

    @property
    def radius(self):
        """How far."""
        share = 2
        return share


def first(x): return x
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one module, which the extension takes for the project's."""
    links = load("source_links", "source_links")
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "fedgo").mkdir()
    (tmp_path / "fedgo/__init__.py").write_text('"""Nothing."""\n')
    (tmp_path / "fedgo/ball.py").write_text(MODULE)
    return links


def build(root, page: str) -> tuple[str, str]:
    """The page as HTML, and what Sphinx warns of."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    file, text = root / "pages/index.rst", f"Title\n=====\n\n{page}\n"
    if not file.exists():  # the second build finds the page as it was
        file.parent.mkdir()
        file.write_text(text)
    assert file.read_text() == text
    warnings = io.StringIO()
    with docutils_namespace():
        app = Sphinx(
            root / "pages", None, root / "html", root / "trees", "html",
            confoverrides={"extensions": ["source_links"], "html_theme": "basic"}, status=None, warning=warnings,
        )  # fmt: skip
        app.build()
    return (root / "html/index.html").read_text(), warnings.getvalue()


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [
        ("fedgo.ball.LIMIT", 3, "LIMIT = (\n    3\n)"),
        (
            "fedgo.ball.Ball.radius",
            11,
            MODULE[MODULE.index("    @property") : MODULE.index("\n\n\ndef first")],
        ),
        ("fedgo.ball.first", 18, "def first(x): return x"),
        ("fedgo.ball.first.x", 18, "def first(x): return x"),
    ],
)
def test_the_statement_that_defines_a_name(package, tmp_path, name, line, text):
    found = package.passage(name, root=tmp_path)
    assert (found.file, found.line) == ("fedgo/ball.py", line)
    assert "".join(found.text.split()) == "".join(text.split())
    assert not found.text.startswith(" ")


def test_a_passage_may_start_later(package, tmp_path):
    found = package.passage("fedgo.ball.Ball.radius", "share = ", tmp_path)
    assert found == ("fedgo/ball.py", 14, "share = 2\nreturn share")


@pytest.mark.parametrize(
    ("name", "start_at", "fault"),
    [
        ("fedgo.ball.gone", "", "fedgo/ball.py does not define 'gone'"),
        ("fedgo.gone.Ball", "", "does not define 'gone'"),
        ("fedgo.ball", "", "'fedgo.ball' is a module; name a definition in it"),
        ("fedgo.ball.first", "share", "no line of 'fedgo.ball.first' contains 'share'"),
    ],
)
def test_what_is_gone_is_named(package, tmp_path, name, start_at, fault):
    with pytest.raises(LookupError, match=fault):
        package.passage(name, start_at, tmp_path)
    _, warnings = build(tmp_path, f".. source:: {name}\n   :start-at: {start_at}")
    assert fault in warnings


def test_the_page_shows_todays_code_and_where_it_stands(package, tmp_path):
    page = ".. source:: fedgo.ball.Ball.radius fedgo.ball.first\n"
    shown, warnings = build(tmp_path, page)
    assert warnings == ""
    for line in (11, 18):
        assert f'href="source/fedgo/ball.html#line-{line}">fedgo/ball.py, line {line}</a>' in shown
    assert shown.count('<div class="highlight-python') == 2
    module = tmp_path / "fedgo/ball.py"
    module.write_text(MODULE.replace("LIMIT", "# a comment\nLIMIT").replace("share = 2", "share = 5"))
    shown, warnings = build(tmp_path, page)  # not all afresh: the page itself is the same
    assert warnings == ""
    assert "fedgo/ball.py, line 12</a>" in shown and '<span class="mi">5</span>' in shown


def test_a_link_follows_its_line(package, tmp_path):
    shown, _ = build(tmp_path, ":src:`fedgo.ball.first`")
    assert "ball.html#line-18" in shown
    (tmp_path / "fedgo/ball.py").write_text("# moved down\n" + MODULE)
    shown, _ = build(tmp_path, ":src:`fedgo.ball.first`")
    assert "ball.html#line-19" in shown


def test_the_page_of_a_module_is_highlighted_again_only_where_it_changed(package, tmp_path, watch):
    from sphinx.highlighting import PygmentsBridge

    highlighted = watch(PygmentsBridge, "highlight_block")
    store, module = tmp_path / "trees/highlighted.json", tmp_path / "fedgo/ball.py"
    build(tmp_path, ":src:`fedgo.ball.first`")
    whole = (tmp_path / "html/source/fedgo/ball.html").read_text()
    assert len(highlighted) == 2 and "LIMIT" in whole
    module.write_text(MODULE.replace("LIMIT", "MOST"))
    build(tmp_path, ":src:`fedgo.ball.first`")
    assert len(highlighted) == 3
    assert "MOST" in (tmp_path / "html/source/fedgo/ball.html").read_text()
    assert "LIMIT" not in store.read_text()  # what is used no more is not kept
    module.write_text(MODULE)
    store.write_text(store.read_text()[:-9])  # a build that was stopped while it wrote
    build(tmp_path, ":src:`fedgo.ball.first`")
    assert len(highlighted) == 5
    assert (tmp_path / "html/source/fedgo/ball.html").read_text() == whole


def test_other_readers_see_the_code_itself(package, tmp_path):
    text = (
        "Before.\n\n```{source} fedgo.ball.Ball.radius fedgo.ball.first\n```\n\nBetween.\n\n"
        "```{source} fedgo.ball.Ball.radius\n:start-at: return\n```\n\n```{note}\nAfter.\n```"
    )
    assert package.written_out(text, tmp_path) == (
        'Before.\n\n```python\n@property\ndef radius(self):\n    """How far."""\n    share = 2\n    return share\n\n'
        "def first(x): return x\n```\n\nBetween.\n\n```python\nreturn share\n```\n\n```{note}\nAfter.\n```"
    )
