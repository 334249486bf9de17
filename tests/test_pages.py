"""The book's own extensions of Sphinx, on a small book that uses each of them."""

import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import nbformat
import opened
import package
import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

FOLDED = """# Folded

Seen.

```{fold} The rest, with *words*
```

Put away.

```{prf:proof}
Take any. Done.
```

```{unfold}
```

Seen again.

```{fold} More
```

The end.

## Below

```{fold} Nothing
```
"""
NAMES = """# Book

%s

```{eval-rst}
.. automodule:: fedgo.confidence
   :members: Ball
```
"""
DRAWN = """# Drawn

See ($x$), then. It is in {{ repository }}.
"""
ROOT = """# Book

```{toctree}
folded
book/_executed/problem
drawn
```
"""
EXTENSIONS = ["package", "folding", "opened", "breaking", "dark"]
RUN = {"date": "2026-01-02T03:04:05", "commit": "1a2b" * 10, "parameters": {"runs": "3"}, "seconds": 61.7}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small book's site, with what the build complained of in said.txt."""
    place = tmp_path_factory.mktemp("book")
    cells = [nbformat.v4.new_markdown_cell("# A chapter\n\nIts text."), nbformat.v4.new_code_cell("1")]
    cells[1].outputs = [nbformat.v4.new_output("stream", text="1")]
    chapter = nbformat.v4.new_notebook(cells=cells, metadata={"fedgo": RUN})
    files = {"index.md": ROOT, "folded.md": FOLDED, "drawn.md": DRAWN, "book/rerun.md": "# Again"}
    files |= {"book/_executed/problem.ipynb": nbformat.writes(chapter)}
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    config = {"extensions": ["myst_nb", "sphinx_proof", *EXTENSIONS], "nb_execution_mode": "off"}
    config |= {"myst_enable_extensions": ["dollarmath", "colon_fence"], "fedgo_repository": "me/book"}
    said = StringIO()
    with docutils_namespace(), pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_REPOSITORY", raising=False)  # GitHub's machines set it
        Sphinx(place, None, place / "html", place / "trees", "html", config, None, said).build()
    (place / "html/said.txt").write_text(said.getvalue(), encoding="utf-8")
    return place / "html"


def read(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


def words(html: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", html).split())


def test_a_fold_ends_where_it_is_said_or_with_its_section_and_a_proof_is_one(site: Path) -> None:
    body = re.search(r'<h1.*(?=<div class="clearer")', read(site, "folded.html"), re.DOTALL)
    parts = [words(part) for part in re.split(r'<details class="fold">|</details>', body[0] if body else "")]
    assert parts[1:4] == ["The rest, with words Put away.", "Proof Take any. Done.", ""]
    assert parts[4:6] == ["Seen again.", "More The end."] and "Below" in parts[6]
    assert read(site, "said.txt").count("there is nothing to fold") == 1


def test_a_name_that_is_gone_stops_the_build(tmp_path: Path) -> None:
    """The pages are built as `make book` builds them, with -W -n --keep-going: a missing reference is an error."""
    gone = ["fedgo.confidence.Ball.gone", "fedgo.confidence.gone", "fedgo.gone"]
    names = " ".join(f"{{src}}`{name}`" for name in ["fedgo.confidence.Ball.sigma", *gone])
    (tmp_path / "index.md").write_text(NAMES % names, encoding="utf-8")
    ignored = [("py:.*", ".*")]
    config = {"extensions": ["myst_nb", "package"], "nitpicky": True, "nitpick_ignore_regex": ignored}
    said, options = StringIO(), {"warningiserror": True, "keep_going": True}
    with docutils_namespace():
        places = (tmp_path, None, tmp_path / "html", tmp_path / "trees")
        app = Sphinx(*places, "html", config, None, said, **options)
        app.build()
    missing = re.findall(r"reference target not found: ([\w.]+)", said.getvalue())
    assert app.statuscode == 1 and missing == gone


def test_a_default_that_is_no_python_is_dots() -> None:
    shown = package.interface(*[None] * 5, "(a: list = <factory>, b = <function <lambda> at 0x1>)", "int")  # type: ignore[arg-type]
    assert shown == ("(a: list = ..., b = ...)", "int")


def test_a_formula_keeps_the_marks_that_touch_it(site: Path) -> None:
    (kept,) = re.findall(r'See <span class="unbroken">(.*?)</span> then', read(site, "drawn.html"))
    assert words(kept) == r"( \(x\) ),"


def test_a_page_links_to_the_repository_or_says_that_its_address_is_not_set(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = '<a class="reference external" href="https://github.com/me/book">the repository</a>'
    assert f"It is in {link}." in read(site, "drawn.html")
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    app, source = SimpleNamespace(config=SimpleNamespace(fedgo_repository="")), ["in {{ repository }}."]
    opened.annotate(app, "index", source)  # type: ignore[arg-type]
    assert source == ["in the repository (address not set yet)."]


def test_an_executed_page_says_where_else_it_is_open_and_of_which_run_it_is(site: Path) -> None:
    page = read(site, "book/_executed/problem.html")
    assert re.findall(r'<a href="([^"]*)">[a-z]+ [a-zA-Z ]+</a>', page) == [
        "../../open/problem.ipynb",
        "https://mybinder.org/v2/gh/me/book/main?urlpath=lab%2Ftree%2Fnotebooks%2Fproblem.md",
        "https://colab.research.google.com/github/me/book/blob/gh-pages/open/problem.ipynb",
        "https://github.com/me/book/edit/main/notebooks/problem.md",
    ]
    run = "Executed on 2026-01-02 from commit 1a2b1a2b1a2b in 62 s. "
    run += "Run this chapter again with these parameters or others: runs = 3 ."
    assert run in words(page)
    notebook = nbformat.read(site / "open/problem.ipynb", 4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert '%pip install --quiet --no-deps "fedgo @ git+https://github.com/me/book"' in code[0]
    assert code[1:] == ["1"]
    assert not any(cell.get("outputs") for cell in notebook.cells)
