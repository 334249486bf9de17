"""Each gate of the book refuses the fault that is planted for it, and names the place."""

from pathlib import Path

import nbformat
import pytest
from book_modules import shared
from small_book import HEADER, PARAMETERS, cell

gates = shared("gates")

FIGURE = {"figure": {"name": "fig-a", "caption": "A."}, "image": {"alt": "A line."}}
ROOT = Path(__file__).parents[1]
PNG = nbformat.v4.new_output("display_data", data={"image/png": "aaaa"})
ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])


def executed(*outputs, code="\nf(x)\ng(x)", **metadata):
    """A notebook of a good cell and one with these outputs."""
    good = nbformat.v4.new_code_cell("1")
    other = nbformat.v4.new_code_cell(code, outputs=[*outputs], metadata=metadata)
    return nbformat.v4.new_notebook(cells=[good, other])


def stream(name, text):
    return nbformat.v4.new_output("stream", name=name, text=text)


def shown(text, mime="text/plain"):
    return nbformat.v4.new_output("execute_result", data={mime: text}, execution_count=1)


def glued(text, mime="text/plain"):
    about = {"scrapbook": {"name": "p01-spread", "mime_prefix": gates.GLUED}}
    return nbformat.v4.new_output("display_data", data={gates.GLUED + mime: text}, metadata=about)


CELL = "notebook a, cell 1 (f(x)): "


def test_error_output():
    assert gates.error_outputs(executed(PNG), "a") == []
    assert gates.error_outputs(executed(ERROR), "a") == [CELL + "error output ValueError: no"]


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        (stream("stdout", "all is well\n"), None),
        (stream("stderr", "\nUserWarning: no\n  x = 1\n"), "writes to stderr: UserWarning: no"),
        (stream("stdout", "x" * 100_000), None),
        (
            stream("stdout", "x" * 300_000),
            "its outputs are 0.3 million characters, 0.3 of them text; show less",
        ),
        (shown("x" * 300_000), "0.3 of them text"),
        (shown("x" * 300_000, "text/html"), "0.3 of them text"),
        (shown("x" * 300_000, "image/svg+xml"), None),
        (shown("x" * 9_000_000, "image/svg+xml"), "9.0 million characters, 0.0 of them text"),
    ],
)
def test_noise(output, fault):
    found = gates.noise(executed(output), "a")
    assert (
        (found == [])
        if fault is None
        else (len(found) == 1 and found[0].startswith(CELL) and fault in found[0])
    )


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-inf", "np.float64(nan)", "tensor(nan)", "'nan'", "'inf %'", "[1, NaN]"]
)
def test_glued_gap(text):
    assert gates.glued_gaps(executed(glued(text)), "a") == [CELL + f"glues 'p01-spread', which is {text}"]


@pytest.mark.parametrize(
    "output", [glued("1.5"), glued("'finance, information, Nanjing'"), shown("nan"), PNG]
)
def test_what_is_no_glued_gap(output):
    assert gates.glued_gaps(executed(output), "a") == []


def test_figure_without_image():
    assert gates.missing_figures(executed(PNG, mystnb=FIGURE), "a") == []
    assert gates.missing_figures(executed(mystnb=FIGURE), "a") == [
        CELL + "declares a figure but has no image among its outputs"
    ]


def test_figure_beside_another_output():
    """Every output of a figure cell becomes the figure, under one label; streams and glued values do not."""
    fine = executed(stream("stdout", "a\n"), glued("1"), PNG, mystnb=FIGURE)
    assert gates.missing_figures(fine, "a") == []
    double = executed(shown("[<Line2D>]"), PNG, mystnb=FIGURE)
    assert gates.missing_figures(double, "a") == [
        CELL + "shows more than its figure; end the last line with ';'"
    ]


def test_figure_without_alternative_text():
    silent = executed(PNG, mystnb={"figure": FIGURE["figure"]})
    assert gates.missing_figures(silent, "a") == [CELL + "its figure has no mystnb.image.alt"]


def notebook(*lines):
    text = HEADER + PARAMETERS.replace("runs = 10", "\n".join(["runs = 10", *lines])) + cell("1")
    return shared("chapters").jupytext.reads(text, fmt="md:myst")


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"runs": 2, "share": 1, "name": "a", "quick": True, "grid": [1]}, None),
        ({"run": 5}, "notebook a has no parameter 'run'; it has: runs, share, name, quick, grid"),
        ({"runs": "abc"}, "parameter 'runs' is 'abc' (str); the notebook has 10, give int too"),
        ({"runs": 2.0}, "parameter 'runs' is 2.0 (float); the notebook has 10, give int too"),
        ({"runs": True}, "parameter 'runs' is True (bool)"),
        ({"runs": None}, "parameter 'runs' is None (NoneType)"),
        ({"share": "1"}, "parameter 'share' is '1' (str); the notebook has 0.5, give float too"),
        ({"name": 3}, "give str too"),
        ({"quick": 1}, "give bool too"),
        ({"grid": 1}, "give list too"),
    ],
)
def test_parameters(parameters, fault):
    source = notebook("share = 0.5", "name = 'b'", "quick = False", "grid = [1, 2]")
    found = gates.unfit_parameters(source, "a", parameters)
    assert (found == []) if fault is None else (len(found) == 1 and fault in found[0])


def test_a_parameter_that_is_computed_may_be_anything():
    assert gates.unfit_parameters(notebook("steps = 2 * runs"), "a", {"steps": 1.5}) == []


REFUSED = {
    "the regret was 241.7 after": "241.7",
    "it fell by 40 % or so": "40 %",
    "12 ± 3 on average": "± 3",
    "it is 20 times cheaper": "20 times",
    "it sent 1e5 scalars": "1e5",
    "it sent about 500 scalars": "500 scalars",
    "it sent 10⁵ of them": "10⁵",
    "over 40 runs": "40 runs",
    "by 1/3 of that": "1/3",
    "twelve percent fewer": "twelve percent",
    "twenty per cent fewer": "twenty per cent",
    "ten % fewer": "ten %",
    "2.5e-3 at most": "2.5e-3",
    "it took 30 minutes": "30 minutes",
}


@pytest.mark.parametrize(("prose", "refused"), REFUSED.items())
def test_a_measurement_typed_into_prose_is_refused(prose, refused):
    (fault, *_) = gates.typed_measurements(f"---\nversion: 1.16\n---\n\n{prose}\n", "a.md")
    assert fault.startswith(
        f"a.md, line 5: the number '{refused}' is typed into prose; glue what was measured"
    )


@pytest.mark.parametrize(
    "box", ["prf:theorem", "admonition", "exercise", "solution", "dropdown", "grid-item-card"]
)
def test_a_statement_and_what_a_box_says_is_prose(box):
    (fault,) = gates.typed_measurements(f"```{{{box}}} Two\nWith probability 0.95.\n```\n", "a.md")
    assert "line 2: the number '0.95'" in fault


@pytest.mark.parametrize(
    "prose",
    [
        "{glue:text}`fall:.1f` % and $0.8$ at `x = 0.5`, see [a page](a-1.5.md), N = 20",
        "$$\n0.5 + 1/3\n$$",
        "the level is 95 %, in Section 5.1",
        "lines 2/and 3, 2024, the 20 arms",
        "```{code-cell} ipython3\nx = 0.123\n```",
        "```{source} fedgo.star.Star\n:start-at: 0.5\n```",
        "run r of seed 1, e5 and twelve of them",
    ],
)
def test_what_is_no_typed_measurement(prose):
    assert gates.typed_measurements(f"---\nversion: 1.16\n---\n\n{prose}\n", "a.md") == []


@pytest.mark.parametrize(
    ("page", "refused"),
    {
        "As chapter 10 says.\n": "chapter 10",
        "In chapters\n[11](a.ipynb) and [12](b.ipynb).\n": "chapters\n[11",
        "Chapters 4 to 6 do.\n": "Chapters 4",
        "```{exercise} One\nRead [chapter 3](a.md).\n```\n": "chapter 3",
        "```{code-cell} ipython3\n---\n    caption: As in chapter 2.\n---\n```\n": "chapter 2",
        "```{code-cell} ipython3\n---\n    alt: The same as in Chapter 2, smaller.\n---\n```\n": "Chapter 2",
    }.items(),
)
def test_a_chapter_is_named_and_not_numbered(page, refused):
    (fault,) = gates.typed_chapters(page, "a.md")
    assert f"'{refused}' is typed; numbers move" in fault


@pytest.mark.parametrize(
    "page",
    [
        "The chapter before, [the results](results.ipynb), in 10 chapters.\n",
        "```{code-cell} ipython3\nstreams('check of chapter 7')  # chapter 7\n```\n",
    ],
)
def test_a_link_and_code_may_hold_a_number(page):
    assert gates.typed_chapters(page, "a.md") == []


def test_no_page_of_the_book_numbers_a_chapter():
    pages = [*(ROOT / "notebooks").glob("*.md"), *(ROOT / "book").glob("*.md")]
    found = [fault for page in pages for fault in gates.typed_chapters(page.read_text("utf-8"), page.name)]
    assert len(pages) > 20 and not found, "\n".join(found)
