"""The built site as a reader meets it, by `book/audit.py`; and every check of that program finds a planted fault.

The site is `_build/html`, or the folder that FEDGO_SITE names.
"""

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from book_modules import load

from fedgo.experiments import explorer

ROOT = Path(__file__).resolve().parents[1]
load("source_links", "source_links")
load("provenance", "provenance")
pdf = load("pdf", "pdf")
audit = load("audit")
SITE = audit.built_site()
try:
    pdf.chromium()
    NO_BROWSER = ""
except pdf.PdfError as fault:
    NO_BROWSER = str(fault)
needs_browser = pytest.mark.skipif(bool(NO_BROWSER), reason=NO_BROWSER)


@needs_browser
@pytest.mark.skipif(
    not (SITE / "index.html").is_file(), reason=f"there is no built site in {SITE}: run `make book` first"
)
def test_the_site_has_no_fault_that_is_not_known():
    done = subprocess.run(
        [sys.executable, ROOT / "book/audit.py"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# The faults that are planted for the checks.

WHITE = (
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>"
    "<rect fill='white' width='9' height='9'/></svg>"
)
FORMULA = "<mjx-container style='display: inline-block; width: 600px'>x</mjx-container>"
FOLLOW = """<script>
  const asked = matchMedia("(prefers-color-scheme: dark)");
  (asked.onchange = () => { document.documentElement.dataset.theme = asked.matches ? "dark" : "light"; })();
</script>"""


@pytest.fixture(scope="module")
def browser():
    """One browser for the module."""
    if NO_BROWSER:
        pytest.skip(NO_BROWSER)
    with audit.browser() as started:
        yield started


@pytest.fixture(scope="module")
def tab(browser):
    """A tab without a network, and what is heard in it."""
    context = browser.new_context(offline=True)
    heard = audit.listen(context)
    return SimpleNamespace(page=context.new_page(), heard=heard)


@pytest.fixture(scope="module")
def still(browser):
    """A tab in which no script runs."""
    return browser.new_context(offline=True, java_script_enabled=False).new_page()


@pytest.fixture
def show(tab, tmp_path):
    """Open a page with this article, on a phone unless said."""

    def open_page(article: str, size=audit.PHONE):
        file = tmp_path / "page.html"
        file.write_text(
            f"<!doctype html><meta charset=utf-8><title>A page</title><article>{article}</article>"
        )
        tab.heard.clear()
        audit.open_page(tab.page, file, size, "light")
        return tab.page

    return open_page


def assert_found(faults: list[str], expected: str | None) -> None:
    """The fault that was planted is found, and nothing else is taken for one."""
    assert (expected is None and not faults) or (expected and any(expected in fault for fault in faults)), (
        faults
    )


@pytest.mark.parametrize(
    ("article", "fault"),
    [
        (f"<img src=\"{WHITE}\"><script>console.log('fine')</script>", None),
        ("<img src='http://example.invalid/a.png'>", "asks another host: http://example.invalid/a.png"),
        ("<script>fetch('https://example.invalid/').catch(() => 0)</script>", "https://example.invalid/"),
        ("<script>console.error('no', 1)</script>", "console: no 1"),
        ("<script src='gone.js'></script>", "ERR_FILE_NOT_FOUND"),
        ("<script>throw new Error('thrown')</script>", "uncaught: thrown"),
    ],
)
def test_gate_what_the_browser_reports(show, tab, article, fault):
    show(article)
    assert_found(tab.heard, fault)


@pytest.mark.parametrize(
    ("article", "fault"),
    [
        (r"<p>No formula; <code>\frac</code> <mjx-container>\(x\)</mjx-container></p>", None),
        (r"<p>\(x + y\)</p>", r"raw TeX: \(x"),
        (r"<p>so <b>\frac{1}{2}</b></p>", r"raw TeX: \frac"),
        (r"<p>\begin{align} x</p>", r"raw TeX: \begin"),
        ("<p>a $$ x $$</p>", "raw TeX: a $$"),
        ("<p>the $x$ is</p>", "raw TeX: the $x"),
        ("<mjx-merror>Undefined control sequence</mjx-merror>", "MathJax error: Undefined"),
        (r"<script>document.title = '\\(x\\)'</script>", r"raw TeX: \(x\)"),
        ("<p>either | or | both</p> <p>|x| ≤ |y| + |z|</p>", None),
        ("<p>| arm | regret |\n| --- | --- |</p>", "raw table: | arm | regret |"),
        ("<p>made at &lt;IPython.core.display.Markdown object&gt;</p>", "raw object: <IPython.core.display"),
    ],
)
def test_gate_raw_tex(show, article, fault):
    assert_found(audit.measure(show(article), "raw_tex"), fault)


@pytest.mark.parametrize(
    ("article", "fault"),
    [
        (f"<div class=math style='overflow-x: auto'>{FORMULA}</div><p>Text.</p>", None),
        ("<div style='width: 600px'>wide</div>", "the page is 608 px wide on a screen of 390 px"),
        (f"<h1>{'long' * 50}</h1>", "longlong"),
        (f"<div class=math style='overflow: hidden'>{FORMULA}</div>", "cut off by div.math"),
        ("<div style='overflow: hidden'><pre>" + 90 * "x" + "</pre></div>", "cut off by div"),
        (
            "<div class=math style='height: 9px; overflow: auto hidden'>"
            "<mjx-c style='display: block; height: 30px'></mjx-c></div>",
            "cut off above or below",
        ),
    ],
)
def test_gate_overflow(show, article, fault):
    assert_found(audit.measure(show(article), "overflow"), fault)


WIDE_ROW = "<tr><th>a</th><td style='white-space: nowrap'>" + 60 * "wide " + "</td></tr>"
SCROLLS = "style='display: block; overflow-x: auto'"


@pytest.mark.parametrize(
    ("article", "fault"),
    [
        (f"<div class=math {SCROLLS}>{FORMULA}</div><table {SCROLLS}><tr><td>b</td></tr></table>", None),
        (
            f"<div style='width: 500px'><div id=eq-a class=math {SCROLLS}>{FORMULA}</div></div>",
            "formula eq-a is",
        ),
        (
            f"<section id=s style='width: 500px'><div class=math {SCROLLS}>{FORMULA}</div></section>",
            "the formula 'x' in s is wider than its column",
        ),
        (f"<section id=s><table {SCROLLS}>{WIDE_ROW}</table></section>", "table 'awide wide"),
        (f"<table {SCROLLS}><caption>Named</caption>{WIDE_ROW}</table>", "table 'Named' in the page is"),
        (f"<div style='overflow-x: auto'><table>{WIDE_ROW}</table></div>", "the table 'awide"),
    ],
)
def test_gate_what_is_out_of_sight(show, article, fault):
    assert_found(audit.measure(show(article, audit.LAPTOP), "out_of_sight"), fault)


MOVES = """<style>
  div { transition: margin-left 9s; margin-left: 2000px; }
  @media (min-width: 600px) { div { margin-left: 0; } }
</style><div>Text.</div>"""


def test_what_moves_after_a_change_of_size_is_measured_at_its_end(show):
    page = show(MOVES)
    assert_found(audit.measure(page, "overflow"), "Text. is cut off by the edge of the screen")
    audit.resize(page, audit.LAPTOP)
    assert_found(audit.measure(page, "overflow"), None)


@pytest.mark.parametrize(
    ("article", "fault"),
    [
        ("<p>Black on white.</p><p style='visibility: hidden; color: #eee'>unseen</p>", None),
        ("<div style='background: #000'><p style='color: #fff; background: #fff1'>white</p></div>", None),
        ("<p style='color: #888'>faint</p>", "contrast 3.54, 136,136,136 on 255,255,255: faint"),
        ("<p style='opacity: 0.5'>thin</p>", ": thin"),
        ("<div style='background: #222; color: #fff'><p style='color: #444'>dark</p></div>", ": dark"),
        ("<p style='color: color(srgb 0.9 0.9 0.9)'>modern</p>", ": modern"),
        ("<svg><text style='fill: #ddd' y=20>label</text></svg>", ": label"),
        ("<p style='color: #fff'><mjx-math>x</mjx-math></p>", ": x"),
        ("<p style='color: oklch(0.5 0 0)'>not read</p>", ": not read"),
    ],
)
def test_gate_contrast(show, article, fault):
    assert_found(audit.measure(show(article), "contrast"), fault)


@pytest.mark.parametrize(
    ("image", "mode", "fault"),
    [
        ("class=in-light", "light", None),
        ("class=in-dark", "dark", "the first image is 1.00 bright"),
        ("class=in-light", "dark", "not in-dark: the image seen"),
        ("", "light", "not in-light: the image seen"),
        ("class=in-light style='filter: invert(1)'", "light", "the first image is 0.00 bright"),
        (
            "class=in-light style='filter: brightness(0.8)'",
            "light",
            "a filter, brightness(0.8), changes the image",
        ),
        ("class=in-light style='padding: 8px'", "light", "a frame around the image seen"),
        ("hidden class=in-dark", "light", None),
    ],
)
def test_gate_renderings_of_figures(show, image, mode, fault):
    page = show(f'{FOLLOW}<img src="{WHITE}" alt="seen" {image}>')
    assert audit.wrong_mode(page, mode) == []
    assert_found(audit.wrong_brightness(page, mode), fault)


@pytest.mark.parametrize(("script", "fault"), [(FOLLOW, None), ("", "does not turn dark")])
def test_gate_mode(show, script, fault):
    assert_found(audit.wrong_mode(show(script), "dark", patience=300), fault)


@pytest.mark.parametrize(
    ("label", "fault"), [("scalars sent: 1.2K after 100 steps", None), ("", "has the label ''")]
)
def test_gate_label_of_a_drawing(show, label, fault):
    page = show(f"<svg aria-label='{label}'></svg><button><svg></svg></button><svg aria-hidden=true></svg>")
    assert_found(audit.measure(page, "drawings"), fault)


def swept(last: float) -> dict:
    """The sweep of an algorithm whose regret ends at ``last``."""
    row = {"regret": [1, last], "sent": 2 * last, "syncs": [[1]], "count": last}
    return {
        "colour": "#D55E00",
        "phase_one": 1,
        "runs": 1,
        "steps": [1, 20],
        "sweep": [row, row | {"regret": [last, 9], "sent": 0}, row],
    }


def offers(least: float) -> list[dict]:
    """Two thresholds of an algorithm whose regret is at ``least`` this."""
    regret = torch.tensor([least, least + 2])
    return [explorer.offer(regret, 1e6 / least, 100, 0.1), explorer.offer(10 * regret, 1e3, 10, math.inf)]


def acted(shift: int) -> dict:
    """Twenty steps of two clients; the third and the last but one fire."""
    level = [0.1, 0.2, 1.5, *(0.04 * k for k in range(1, 16)), 1.5, 0.3]
    scene = {"gamma": 1.0, "clients": 2, "first": 1, "arm": [shift, 1, 0, *(17 * [1])], "level": level}
    return scene | {"fires": [2, 18], "loss": [0.0, 0.5], "colours": ["#0072b2", "#d55e00"]}


def explorers(changing: bool) -> dict[str, str]:
    """Each explorer with data of two problems (and two algorithms), which may be the same."""
    pairs = [(p, i, a, j) for i, p in enumerate("PQ", 1) for j, a in enumerate(("Fed-GO-UCB", "DisLinUCB"))]
    sweeps, bills = {"P": {}, "Q": {}}, {"P": {}, "Q": {}}
    for p, i, a, j in pairs:
        sweeps[p][a] = swept(3 * i + j if changing else 3)
        bills[p][a] = offers(3 * i + j if changing else 3)
    scenes = {"P": acted(0), "Q": acted(int(changing))}
    return {
        "threshold": explorer.threshold_explorer(sweeps, [0.1, 1.0, math.inf], 0.1, "fig"),
        "budget": explorer.budget_explorer(bills, "fig"),
        "trigger": explorer.trigger_explorer(scenes, "fig"),
    }


def scripts(*names: str) -> str:
    """The book's own scripts, as a page brings them."""
    codes = [(ROOT / f"book/_assets/{name}.js").read_text(encoding="utf-8") for name in names]
    return "".join(f"<script>{code}</script>" for code in codes)


@pytest.mark.parametrize("kind", ["threshold", "budget", "trigger"])
@pytest.mark.parametrize(
    ("changing", "old", "new", "fault"),
    [
        (True, "", "", None),
        (False, "", "", "does not change the drawing"),
        (
            True,
            "slider.input.addEventListener",
            "slider.input.removeEventListener",
            "'{}' does not change the text",
        ),
        (True, "plot.register", "void", "the {} explorer is not visible"),
    ],
)
def test_gate_explorers(show, tab, kind, changing, old, new, fault):
    code = scripts("plot", kind)
    assert old in code
    faults = audit.dead_explorers(show(explorers(changing)[kind] + code.replace(old, new)))
    name = {"threshold": "threshold γ", "budget": "budget", "trigger": "step"}[kind]
    assert_found(faults, fault and fault.format(kind if "visible" in fault else name))
    assert tab.heard == []


def test_gate_explorers_presses_every_button(show):
    code = scripts("plot", "trigger").replace("step.addEventListener", "step.removeEventListener")
    found = audit.dead_explorers(show(explorers(True)["trigger"] + code))
    assert found == ["trigger: 'one step' changes nothing"]


def test_the_budget_can_be_dragged(show):
    """A pointer that is down takes the budget along; what it may not pay for is no longer in the ranking."""
    page = show(explorers(True)["budget"] + scripts("plot", "budget"))
    box = page.locator("svg.drag").bounding_box()
    ranking, height = page.locator("ol"), box["y"] + box["height"] / 2
    seen = []
    page.mouse.move(box["x"] + 0.9 * box["width"], height)
    page.mouse.down()
    for share in (0.98, 0.3):
        page.mouse.move(box["x"] + share * box["width"], height)
        seen.append((ranking.inner_text(), page.locator("output").inner_text()))
    page.mouse.up()
    page.mouse.move(box["x"] + 0.9 * box["width"], height)
    assert page.locator("output").inner_text() == seen[1][1]
    assert seen[0] != seen[1] and "γ = 0.1" in seen[0][0] and "γ = 0.1" not in seen[1][0]


def test_the_ranking_is_by_regret_and_takes_what_sends_most_within_the_budget(show):
    page = show(explorers(True)["budget"] + scripts("plot", "budget"))
    slider, rows = page.locator("input"), page.locator("ol li")
    slider.fill("200")
    assert [row.split(",")[0] for row in rows.all_inner_texts()] == ["Fed-GO-UCB 4 ± 1", "DisLinUCB 5 ± 1"]
    slider.fill("0")
    assert [row.split(",")[0] for row in rows.all_inner_texts()] == []
    page.locator("select").nth(1).select_option("packed")
    assert [row.split(",")[0] for row in rows.all_inner_texts()] == [
        "Fed-GO-UCB 40 ± 10",
        "DisLinUCB 50 ± 10",
    ]


@pytest.mark.parametrize(
    ("ticks", "printed"),
    [
        ([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1,000"]),
        ([0, 1e3, 1e5, 1e7], ["0", "10³", "10⁵", "10⁷"]),
        ([1, 100, 1e4, 1e6], ["1", "10²", "10⁴", "10⁶"]),
    ],
)
def test_the_ticks_of_an_axis_are_all_in_digits_or_all_powers(show, ticks, printed):
    page = show(scripts("plot"))
    assert page.evaluate("ticks => ticks.map(plot.printed(ticks))", ticks) == printed


def test_the_trigger_plays_to_its_end_and_begins_again(show):
    page = show(explorers(True)["trigger"] + scripts("plot", "trigger"))
    play, step = page.locator("button").nth(0), page.locator("input")
    play.click()
    page.wait_for_function("document.querySelector('button').textContent === 'play'", timeout=20_000)
    assert step.input_value() == "19"
    assert "says nothing" in page.locator(".explore-text").inner_text()
    step.fill("2")
    assert "all 2 clients synchronise" in page.locator(".explore-text").inner_text()
    heights = page.locator("rect").evaluate_all("all => all.map((e) => Number(e.getAttribute('height')))")
    page.locator("button").nth(1).click()
    after = page.locator("rect").evaluate_all("all => all.map((e) => Number(e.getAttribute('height')))")
    assert heights[0] > heights[2] > 0 and after[0] == 0 < after[2]


@pytest.mark.parametrize(
    ("hidden", "figure", "fault"),
    [
        ("hidden", f'<img src="{WHITE}">', None),
        ("", f'<img src="{WHITE}">', "the budget explorer is visible but dead"),
        ("hidden", f'<img hidden src="{WHITE}">', "the static figure fig-b is not there"),
        ("hidden", "", "the static figure fig-b is not there"),
    ],
)
def test_gate_without_scripts(still, tmp_path, hidden, figure, fault):
    file = tmp_path / "page.html"
    box = f"<div class=explore data-kind=budget data-figure=fig-b {hidden}>dead</div>"
    file.write_text(f"<figure id=fig-b>{figure}</figure>{box}")
    still.goto(file.as_uri())
    assert_found(audit.wrong_without_scripts(still), fault)


@pytest.mark.parametrize(
    ("alt", "fault"),
    [
        ("alt='Two falling lines over the threshold.'", None),
        ("", "''"),
        ("alt='a figure'", "'a figure'"),
        ("alt='../_images/0c01556817571524c51e.svg'", ".svg'"),
    ],
)
def test_gate_alternative_text(tmp_path, alt, fault):
    page = tmp_path / "page.html"
    page.write_text(f"<img src=a.svg {alt}>")
    assert_found(audit.poor_alt_texts(page), fault)


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("<a id=here href=#here>", None),
        ("<a href='other%20page.html#there'>", None),
        ("<a href='https://example.org/x#y'>", None),
        ("<a href='gone.html'>", "gone.html leads to no file"),
        ("<a href='../beside.md'>", "beside.md leads to no file"),
        ("<script src='gone.js'></script>", "gone.js leads to no file"),
        ("<a href='#gone'>", "#gone leads to no anchor"),
        ("<a href='other%20page.html#gone'>", "#gone leads to no anchor"),
        ("<meta http-equiv=Refresh content='0; url=gone.html'>", "gone.html leads to no file"),
        ("<a href='http://localhost:8888/tree'>", "does not lead to the web"),
        ("<a href='file:///etc/hosts'>", "does not lead to the web"),
    ],
)
def test_gate_dead_links(tmp_path, link, fault):
    page = tmp_path / "html/page.html"
    page.parent.mkdir()
    page.write_text(link)
    (page.parent / "other page.html").write_text("<p id=there>")
    (tmp_path / "beside.md").touch()
    assert_found(audit.dead_links(page, page.parent), fault)


SAID = ("aa", "bb", "3.11", "runs", "12", "2026")  # how facts of the foot below begin
STAMP = {"commit": "1a2b", "notebook": "a" * 64, "package": "b" * 64, "lock": "c" * 64}
STAMP |= {"parameters": {"runs": "10", "seed": "0"}, "seconds": 12.3, "date": "2026-01-02T03:04:05+00:00"}
STAMP |= {"python": "3.11.7", "traces": []}
OWN = '<a href="../../open/01_a.ipynb">download notebook</a>'
HOSTS = """<a href="https://mybinder.org/v2/gh/me/book/main?urlpath=lab%2Ftree%2Fnotebooks%2F01_a.md">open in Binder</a>
<a href="https://colab.research.google.com/github/me/book/blob/gh-pages/open/01_a.ipynb">open in Colab</a>
<a href="https://github.com/me/book/edit/main/notebooks/01_a.md">edit source</a>"""
EXECUTED_PAGE = f"""<p class=open-in>{OWN}
{HOSTS}</p>
<figure id=fig-a><figcaption>A. <a href="../../source/01_a.html#line-2">source</a></figcaption></figure>
<footer class=origin><dl><dt>commit</dt><dd>1a2b</dd><dt>notebook</dt><dd>aaaaaaaaaaaa</dd>
<dt>package</dt><dd>bbbbbbbbbbbb</dd><dt>lock</dt><dd>cccccccccccc</dd><dt>Python</dt><dd>3.11.7</dd>
<dt>parameters</dt><dd>runs = 10, seed = 0</dd>
<dt>run time</dt><dd>12 s</dd><dt>executed</dt><dd>2026-01-02T03:04:05+00:00</dd></dl></footer>"""
SHOWN = "<pre><span id=line-1> 1text\n</span><span id=line-2> 2x = 1\n</span><span id=line-3> 3plot(x)</span></pre>"


@pytest.mark.parametrize(
    ("check", "file", "old", "new", "fault"),
    [
        (audit.wrong_links_row, "page", "", "", None),
        (audit.wrong_links_row, "page", HOSTS, "", None),
        (audit.wrong_links_row, "page", OWN, "", "'download notebook' leads to None"),
        (audit.wrong_links_row, "page", "2Fnotebooks", "2Fbook", "'open in Binder' leads to"),
        (audit.wrong_links_row, "page", "blob/gh-pages/open", "blob/main/notebooks", "'open in Colab' leads to"),
        (audit.wrong_links_row, "page", "../../open/01_a", "../../open/02_b", "'download notebook' leads to"),
        (audit.wrong_links_row, "page", "edit/main/notebooks/01_a.md", "tree/main", "'edit source' leads to"),
        (audit.wrong_links_row, "page", "edit source", "source", "'edit source' leads to None"),
        (audit.wrong_links_row, "download", "%pip install fedgo", "import fedgo", "does not install the package"),
        (audit.wrong_links_row, "download", '"cells"', '"cell"', "is no valid notebook"),
        (audit.wrong_foot, "page", "", "", None),
        (audit.wrong_foot, "page", "1a2b", "3c4d", "the foot says 'commit: 3c4d', the stamp '1a2b'"),
        (audit.wrong_foot, "page", "<dt>package</dt>", "<dt>software</dt>", "'package: None'"),
        *[(audit.wrong_foot, "page", f"<dd>{v}", "<dd>x", "the foot says") for v in SAID],
        (audit.wrong_source_lines, "page", "", "", None),
        (audit.wrong_source_lines, "page", "#line-2", "#line-1", "is not its cell but: text"),
        (audit.wrong_source_lines, "page", "#line-2", "#line-7", "is not its cell but: nothing"),
        (audit.wrong_source_lines, "page", "#line-2", "", "does not link to its source"),
        (audit.wrong_source_lines, "shown", "plot(x)", "plot(y)", "is not its cell"),
    ],
)  # fmt: skip
def test_gate_of_executed_pages(tmp_path, check, file, old, new, fault):
    """A tree with one executed page, in which one thing is changed."""
    site = tmp_path / "_build/html"
    cell, figure = nbformat.v4.new_code_cell, {"mystnb": {"figure": {"name": "fig-a"}}}
    download = nbformat.v4.new_notebook(cells=[cell("1"), cell("%pip install fedgo")])
    executed = nbformat.v4.new_notebook(
        cells=[cell("x = 1\nplot(x)", metadata=figure)], metadata={"fedgo": STAMP}
    )
    files = {
        "page": (site / "book/_executed/01_a.html", EXECUTED_PAGE),
        "shown": (site / "source/01_a.html", SHOWN),
        "download": (site / "open/01_a.ipynb", nbformat.writes(download)),
        "executed": (tmp_path / "book/_executed/01_a.ipynb", nbformat.writes(executed)),
        "notebook": (tmp_path / "notebooks/01_a.md", "x = 1"),
    }
    for name, (path, text) in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        assert name != file or old in text
        path.write_text(text.replace(old, new) if name == file and old else text)
    assert_found(check(files["page"][0], tmp_path), fault)


# The program.

SIZES = f"<article><div id=eq-a class=math style='overflow-x: auto'>{FORMULA.replace('600', '1300')}</div></article>"
WELL = f"<!doctype html><meta charset=utf-8><title>A page</title>{FOLLOW}<article><p>Text.</p></article>"
LINE = "book/b.html: 1280 px: the formula eq-a is wider than its column"


@pytest.fixture
def tree(tmp_path):
    """A site of three pages, of which the second has a wide formula; the third is in the table of contents only."""
    pages = {"index": "book/index.html", "book/index": WELL, "book/b": WELL + SIZES}
    (tmp_path / "book/audit").mkdir(parents=True)
    (tmp_path / "_toc.yml").write_text("root: book/index\nchapters:\n- file: book/b\n  - file: book/c\n")
    for name, text in pages.items():
        file = tmp_path / f"_build/html/{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def run(tree, *arguments):
    """The program, looking at that site."""
    return subprocess.run(
        [sys.executable, ROOT / "book/audit.py", *arguments],
        env=os.environ | {"FEDGO_SITE": str(tree / "_build/html")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@needs_browser
def test_the_program_prints_one_fault_per_line(tree):
    done = run(tree)
    assert done.stdout.splitlines() == [
        LINE,
        "book/c.html: the table of contents names it, and it is not there",
    ]
    assert (done.returncode, done.stderr) == (1, "")
    (tree / audit.KNOWN).write_text(f"# What is known.\n\n{LINE}\n")
    done = run(tree, "book/b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("patterns", "known", "printed"),
    [
        ([], [], [LINE]),
        (["book/[a-c]"], [LINE], []),
        ([], [LINE], []),
        ([], None, [LINE]),
        (["book/index.html"], [LINE], []),
        ([], [LINE, "book/c.html: thin"], [f"book/c.html: mended, so take it out of {audit.KNOWN}: thin"]),
        (["book/c"], [LINE, "book/d.html: thin"], []),
        ([], [LINE, "book/d.html: thin"], [f"book/d.html: mended, so take it out of {audit.KNOWN}: thin"]),
    ],
)
def test_what_is_known_is_left_out_and_what_is_mended_is_a_fault(tree, monkeypatch, patterns, known, printed):
    fault = audit.Fault("book/b.html", "the formula eq-a is wider than its column", "1280 px")
    monkeypatch.setattr(
        audit, "look_at_all", lambda site, tree, pages: [fault] if site / "book/b.html" in pages else []
    )
    if known:
        (tree / audit.KNOWN).write_text("\n".join(["# What is known.", "", *known]))
    found = audit.audit(tree / "_build/html", patterns, known is not None)
    assert [str(fault) for fault in found] == printed


def test_the_program_refuses_what_it_cannot_look_at(tree):
    done = run(tree, "book/d")
    assert done.returncode == 2 and "no page of the site is called book/d.html" in done.stderr
    (tree / "_build/html/index.html").unlink()
    done = run(tree)
    assert done.returncode == 2 and "there is no built site in " in done.stderr


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("book/choices.md", "book/choices.html"),
        ("book/choices.html", "book/choices.html"),
        ("notebooks/04*", "book/_executed/04*.html"),
        ("book/api/*", "book/api/*.html"),
    ],
)
def test_a_page_can_be_named_by_its_source(name, page):
    assert audit.page_of(name) == page


def test_a_fault_in_several_views_is_one():
    views = [
        ("390 px, dark", ["faint", "faint"]),
        ("390 px, light", ["faint", "thin"]),
        ("1280 px, light", ["faint"]),
        ("", ["raw"]),
    ]
    assert [str(fault) for fault in audit.merged(views, "a.html")] == [
        "a.html: 390 px; 1280 px, light: faint",
        "a.html: 390 px, light: thin",
        "a.html: raw",
    ]
