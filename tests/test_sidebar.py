"""Pages without an entry in the contents share what stands in their side bar, folder by folder."""

import io

from book_modules import shared

sidebar = shared("sidebar")
EXTENSION = """
def setup(app):
    pages = ("source/one", "source/two", "source/deep/three")
    app.connect("html-collect-pages", lambda app: [(page, {"title": page, "body": ""}, "page.html") for page in pages])
"""


def build(root, *extensions: str) -> dict[str, str]:
    """A site of two pages and of three that are made beside them, with the theme of the book."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    (root / "pages").mkdir(exist_ok=True)
    (root / "pages/index.rst").write_text("Front\n=====\n\n.. toctree::\n\n   second\n")
    (root / "pages/second.rst").write_text("Second\n======\n\nLower\n-----\n\nWords.\n")
    (root / "pages/made.py").write_text(EXTENSION)
    (root / "pages/conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(root / 'pages')!r})\nextensions = {['made', *extensions]}\n"
        "html_theme = 'sphinx_book_theme'\n"
    )
    site = root / "-".join(["html", *extensions])
    with docutils_namespace():
        Sphinx(
            root / "pages",
            root / "pages",
            site,
            root / "trees",
            "html",
            status=None,
            warning=io.StringIO(),
            freshenv=True,
        ).build(force_all=True)
    return {path.relative_to(site).as_posix(): path.read_text() for path in site.glob("**/*.html")}


def test_a_site_is_the_same_with_it(tmp_path):
    plain, quick = build(tmp_path), build(tmp_path, "sidebar")
    assert 'href="../../second.html"' in quick["source/deep/three.html"]
    assert 'href="../second.html"' in quick["source/two.html"]
    assert quick == plain


def test_what_was_made_is_used_for_the_same_folder_and_options_only():
    asked, made = [], {}

    def make(**options: object) -> str:
        asked.append(options)
        return str(len(asked))

    def of(folder: str, **options: object) -> str:
        return sidebar.shared(make, folder, made)(**options)

    assert [of("a", depth=1), of("a", depth=1), of("b", depth=1), of("a", depth=2)] == ["1", "1", "2", "3"]
