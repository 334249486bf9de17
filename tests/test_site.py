"""The built site as a reader meets it: offline, light and dark, on a phone, with links and figures that hold.

Every check is a function that returns the faults it finds, and has a test with a fault planted for it. The site is
`_build/html`, or the folder that FEDGO_SITE names; the browser is the system's Chromium, or the one CHROMIUM names.
"""

import functools
import io
import os
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import nbformat
import numpy as np
import pytest
from book_modules import load
from bs4 import BeautifulSoup
from PIL import Image
from playwright.sync_api import Error, sync_playwright

from fedgo.paper.explorer import explorer

ROOT = Path(__file__).resolve().parents[1]
SITE = Path(os.environ.get("FEDGO_SITE", ROOT / "_build/html")).resolve()
TREE = SITE.parents[1]  # of the sources that the site was built from
pdf = load("pdf")
try:
    CHROMIUM: str | None = pdf.chromium()
except pdf.PdfError:
    CHROMIUM = None
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
EXPLORED = "book/_executed/04_phase_two.html"

needs_site = pytest.mark.skipif(
    not (SITE / "index.html").is_file(), reason=f"there is no built site in {SITE}: run `make book` first"
)


def toc_pages() -> list[Path]:
    """The page of every file in the table of contents."""
    toc = (TREE / "_toc.yml").read_text(encoding="utf-8")
    return [SITE / f"{file}.html" for file in re.findall(r"^[\s-]*(?:root|file): (\S+)", toc, re.MULTILINE)]


def other_pages() -> list[Path]:
    """The pages of source code and the theme's own; `index.html` only leads to the first page of the book."""
    return [
        p for p in sorted([*SITE.glob("*.html"), *SITE.glob("source/**/*.html")]) if p != SITE / "index.html"
    ]


class Tags(HTMLParser):
    """Every start tag of a page, with its attributes."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}))


@functools.cache
def tags(page: Path) -> list[tuple[str, dict[str, str]]]:
    return Tags(page).found


@functools.cache
def soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_bytes(), "html.parser")


# Checks of the files.


def poor_alt_texts(page: Path) -> list[str]:
    """An image's text says what is seen: it is more than a word and not the name of a file."""
    texts = [(a.get("src", ""), a.get("alt", "").strip()) for tag, a in tags(page) if tag == "img"]
    file_name = re.compile(r"[^ ]*\.(png|svg|jpe?g|gif|webp)", re.IGNORECASE)
    return [
        f"{page.name}: the image {source[-40:]} has the alternative text {text!r}"
        for source, text in texts
        if len(text) < 20 or file_name.fullmatch(text)
    ]


@functools.cache
def anchors(page: Path) -> set[str]:
    return {attributes["id"] for _, attributes in tags(page) if "id" in attributes}


HERE = (None, "localhost", "127.0.0.1", "0.0.0.0", "::1")


def dead_links(page: Path, site: Path) -> list[str]:
    """A link inside the site leads to a file and to an anchor in it; one to outside is http(s), not this machine's."""
    faults = []
    found = {attributes[key] for _, attributes in tags(page) for key in ("href", "src") if key in attributes}
    found |= {
        a["content"].split("url=")[1] for _, a in tags(page) if a.get("http-equiv", "").lower() == "refresh"
    }
    for link in sorted(found):
        url = urlsplit(link)
        if url.scheme == "data":
            continue
        if url.scheme or url.netloc:
            if url.scheme not in ("http", "https") or url.hostname in HERE:
                faults.append(f"{page.name}: {link} does not lead to the web")
            continue
        file = (page.parent / unquote(url.path)).resolve() if url.path else page
        if not file.is_file() or not file.is_relative_to(site):
            faults.append(f"{page.name}: {link} leads to no file")
        elif url.fragment and file.suffix == ".html" and unquote(url.fragment) not in anchors(file):
            faults.append(f"{page.name}: {link} leads to no anchor")
    return faults


def wrong_links_row(page: Path, tree: Path) -> list[str]:
    """Below the title of an executed page: four links, each to something that exists or will when it is pushed."""
    name, site = page.stem, page.parents[2]
    row = {link.get_text(): unquote(str(link["href"])) for link in soup(page).select("p.open-in a")}
    patterns = {
        "open in Binder": rf"https://mybinder\.org/v2/gh/[\w.-]+/[\w.-]+/[\w.-]+\?urlpath=lab/tree/notebooks/{name}\.md",
        "open in Colab": "https://colab.research.google.com/github/"
        rf"[\w.-]+/[\w.-]+/blob/gh-pages/open/{name}\.ipynb",
        "download notebook": rf"\.\./\.\./open/{name}\.ipynb",
        "edit source": rf"https://github\.com/[\w.-]+/[\w.-]+/edit/[\w.-]+/notebooks/{name}\.md",
    }
    faults = [
        f"{name}: '{label}' leads to {row.get(label)}"
        for label, pattern in patterns.items()
        if not re.fullmatch(pattern, row.get(label, ""))
    ]
    if not (tree / f"notebooks/{name}.md").is_file():
        faults.append(f"{name}: there is no notebooks/{name}.md to open or edit")
    try:
        notebook = nbformat.read(site / f"open/{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        return [*faults, f"{name}: open/{name}.ipynb is no valid notebook: {error}"]
    second = notebook.cells[1]
    if second.cell_type != "code" or not re.search(r"pip install.*\bfedgo\b", second.source):
        faults.append(f"{name}: the second cell of open/{name}.ipynb does not install the package")
    return faults


def wrong_foot(page: Path, tree: Path) -> list[str]:
    """The foot of an executed page says what the stamp of its executed notebook says."""
    stamp = nbformat.read(tree / f"book/_executed/{page.stem}.ipynb", as_version=4).metadata.fedgo
    facts = {
        term.get_text(): term.find_next("dd").get_text() for term in soup(page).select("footer.origin dt")
    }
    parameters = ", ".join(f"{key} = {value}" for key, value in stamp.parameters.items())
    expected = {
        "commit": stamp.commit or "no repository",
        "notebook": stamp.notebook[:12],
        "package": stamp.package[:12],
        "lock": stamp.lock[:12],
        "parameters": parameters or "none",
        "run time": f"{stamp.seconds:.0f} s",
        "executed": stamp.date,
    }
    return [
        f"{page.stem}: the foot says '{key}: {facts.get(key)}', the stamp '{value}'"
        for key, value in expected.items()
        if facts.get(key) != value
    ]


def wrong_source_lines(page: Path, tree: Path) -> list[str]:
    """The link in a figure's caption leads to the first line of the cell that drew it."""
    faults = []
    cells = nbformat.read(tree / f"book/_executed/{page.stem}.ipynb", as_version=4).cells
    figures = [
        (c.metadata.mystnb.figure, c.source) for c in cells if "figure" in c.metadata.get("mystnb", {})
    ]
    for figure, code in figures:
        link = soup(page).select_one(f"figure#{figure.name} figcaption a[href*='#line-']")
        if link is None:
            faults.append(f"{page.stem}: the caption of {figure.name} does not link to its source")
            continue
        file, _, anchor = str(link["href"]).partition("#line-")
        shown = soup((page.parent / file).resolve())
        lines = [shown.find(id=f"line-{int(anchor) + k}") for k in range(len(code.strip().splitlines()))]
        texts = [re.sub(r"^\s*\d+", "", line.get_text(), count=1).rstrip() for line in lines if line]
        if texts != [line.rstrip() for line in code.strip().splitlines()]:
            first = texts[0] if texts else "nothing"
            faults.append(
                f"{page.stem}: line {anchor}, to which {figure.name} links, is not its cell but: {first}"
            )
    return faults


# Checks in the browser.


def listen(context) -> list[str]:
    """The list to which every request off the host, console error and uncaught error is added from now on."""
    faults: list[str] = []

    def requested(request) -> None:
        if urlsplit(request.url).scheme not in ("file", "data", "blob"):
            faults.append(f"asks another host: {request.url}")

    context.on("request", requested)
    context.on(
        "console", lambda said: faults.append(f"console: {said.text}") if said.type == "error" else None
    )
    context.on("weberror", lambda thrown: faults.append(f"uncaught: {thrown.error.message}"))
    return faults


READY = """async () => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
}"""

RAW_TEX = r"""() => {
  const errors = document.querySelectorAll("mjx-merror, [data-mjx-error]");
  const faults = [...errors].map((e) => "MathJax error: " + e.textContent);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [document.title];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement.closest("code, pre, script, style, noscript, mjx-container")) texts.push(node.data);
  }
  for (const text of texts) {
    const found = text.match(/\\[a-zA-Z]{2,}|\\[()[\]]|\$\$|\$[^\s$]/);
    if (found) faults.push("raw TeX: " + text.slice(Math.max(0, found.index - 30), found.index + 30).trim());
  }
  return faults;
}"""

# Boxes that scroll may hold something wider; those that hide what overflows may not.
OVERFLOW = """() => {
  const width = innerWidth, faults = [];
  const name = (e) => [e.tagName.toLowerCase(), ...e.classList].slice(0, 2).join(".");
  const known = new Map();
  const around = (e) => {  // the boxes around e, e among them, that do not show what overflows them
    if (!e) return [];
    if (!known.has(e)) {
      const how = getComputedStyle(e).overflowX, outer = around(e.parentElement);
      known.set(e, how === "visible" ? outer : [{ e, how, edge: e.getBoundingClientRect() }, ...outer]);
    }
    return known.get(e);
  };
  const look = (box, parent, what) => {
    let { left, right } = box, by = "";
    for (const { e, how, edge } of box.width ? around(parent) : []) {
      if (how === "auto" || how === "scroll") ({ left, right } = edge);
      else if (!by && (right > edge.right + 1 || left < edge.left - 1)) by = name(e);
    }
    if (box.width && !by && (right > width + 1 || left < -1)) by = "the edge of the screen";
    if (by) faults.push(`${what.replace(/\\s+/g, " ").trim().slice(0, 40)} is cut off by ${by}`);
  };
  const page = document.documentElement.scrollWidth, article = document.querySelector("article");
  if (page > width) faults.push(`the page is ${page} px wide on a screen of ${width} px`);
  if (!article) return faults;
  const range = document.createRange();
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.data.trim() || node.parentElement.closest("mjx-container, svg, script, style")) continue;
    range.selectNodeContents(node);
    look(range.getBoundingClientRect(), node.parentElement, node.data);
  }
  for (const e of article.querySelectorAll("mjx-container, img, svg, select, input, button, div, pre")) {
    if (!e.closest("mjx-container mjx-container, mjx-assistive-mml")) {
      look(e.getBoundingClientRect(), e.parentElement, `${name(e)} ${e.textContent}`);
    }
  }
  for (const e of article.querySelectorAll(".math")) {
    if (getComputedStyle(e).overflowY === "visible") continue;
    const edge = e.getBoundingClientRect();
    const glyphs = e.querySelectorAll(":not(mjx-ext) > mjx-c, mjx-stretchy-v"); // ext: cut by the bracket it is part of
    const boxes = [...glyphs].map((glyph) => glyph.getBoundingClientRect());
    if (boxes.some((box) => box.top < edge.top - 1 || box.bottom > edge.bottom + 1)) {
      faults.push(`${name(e)} ${e.textContent.trim().slice(0, 30)} is cut off above or below`);
    }
  }
  return faults;
}"""

# WCAG 2's ratio for every pair of colours in which the article sets text, formulas and labels of drawings.
CONTRAST = """() => {
  document.getAnimations().forEach((animation) => animation.cancel()); // colours as they will stay
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+(e-?\\d+)?/g).map(Number);
    const scale = text.startsWith("rgb") ? 1 : text.startsWith("color(srgb ") ? 255 : NaN;
    return [r * scale, g * scale, b * scale, a];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((value, k) => a * value + (1 - a) * under[k]);
  const known = new Map([[null, { ground: [255, 255, 255], opacity: 1 }]]);
  const behind = (e) => {
    if (!known.has(e)) {
      const { backgroundColor, opacity } = getComputedStyle(e), outer = behind(e.parentElement);
      known.set(e, { ground: over(parse(backgroundColor), outer.ground), opacity: opacity * outer.opacity });
    }
    return known.get(e);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const seen = new Map();
  const look = (e, text) => {
    const style = getComputedStyle(e);
    if (style.visibility !== "visible" || !e.getClientRects().length) return;
    const { ground, opacity } = behind(e);
    if (opacity === 0) return;
    const [r, g, b, a] = parse(e.closest("svg") ? style.fill : style.color);
    const ink = over([r, g, b, a * opacity], ground);
    const key = [...ink, ...ground].map(Math.round).join();
    if (seen.has(key)) return;
    const [high, low] = [light(ink), light(ground)].sort((x, y) => y - x), ratio = (high + 0.05) / (low + 0.05);
    const what = `${ink.map(Math.round)} on ${ground.map(Math.round)}: ${text.trim().slice(0, 40)}`;
    seen.set(key, ratio >= 4.5 ? null : `contrast ${ratio.toFixed(2)}, ${what}`);
  };
  const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (node.data.trim() && !e.closest("script, style, mjx-container, option")) look(e, node.data);
  }
  document.querySelectorAll("article :is(mjx-math, mjx-mstyle, select)").forEach((e) => look(e, e.textContent));
  return [...seen.values()].filter(Boolean);
}"""

DRAWINGS = """() => [...document.querySelectorAll(".explore svg")]
  .map((e) => e.getAttribute("aria-label") ?? "").filter((label) => label.length < 20)
  .map((label) => `a drawing of the explorer has the label '${label}'`)"""


def wrong_mode(page, mode: str) -> list[str]:
    """The page follows the colours that the reader's system asks for; call it before the checks of colours."""
    page.emulate_media(color_scheme=mode)
    followed = f"document.documentElement.dataset.theme === '{mode}'"
    try:
        if not page.evaluate(followed):
            page.wait_for_function(followed, timeout=2000)
    except Error:
        return [f"the page does not turn {mode}"]
    return []


def wrong_brightness(page, dark: bool) -> list[str]:
    """Figures are dark in dark mode: all by their style, the first of the page by the pixels on the screen."""
    images = page.locator("article img")
    filters = images.evaluate_all("images => images.map((image) => getComputedStyle(image).filter)")
    faults = [f"image {k} has the filter '{f}'" for k, f in enumerate(filters) if ("invert(" in f) != dark]
    if filters:
        pixels = np.asarray(Image.open(io.BytesIO(images.first.screenshot())).convert("L")) / 255
        if (pixels.mean() > 0.35) if dark else (pixels.mean() < 0.65):
            faults.append(
                f"the first image is {pixels.mean():.2f} bright in {'dark' if dark else 'light'} mode"
            )
    return faults


def dead_explorer(page) -> list[str]:
    """Each control of the explorer changes what is drawn and what is said."""
    box = page.locator("div.explore")
    if not box.is_visible():
        return ["the explorer is not visible"]

    def state() -> list[str]:
        return [
            box.locator("polyline").first.get_attribute("points"),
            box.locator(".explore-text").inner_text(),
        ]

    faults = []
    slider, selects = box.locator("input[type=range]"), box.locator("select")
    actions = {"the threshold": lambda: slider.fill(slider.get_attribute("min"))}
    for name, select in zip(("the problem", "the algorithm"), selects.all(), strict=True):
        actions[name] = functools.partial(select.select_option, index=1)
    for name, act in actions.items():
        before = state()
        act()
        faults += [
            f"{name} does not change the {part}"
            for part, old, new in zip(("curve", "text"), before, state(), strict=True)
            if old == new
        ]
    return faults


def wrong_without_scripts(page) -> list[str]:
    """Where scripts do not run there is the static figure, and no dead control beside it."""
    faults = []
    if not page.locator("#fig-04-explore img").is_visible():
        faults.append("the static figure is not there")
    if page.locator("div.explore").is_visible():
        faults.append("the explorer is visible but dead")
    return faults


@pytest.fixture(scope="module")
def browser():
    """One browser for the module."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH; install it, or name one: CHROMIUM=/path/to/chrome")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


@pytest.fixture(scope="module")
def tab(browser):
    """A tab without a network, and what `listen` hears in it."""
    context = browser.new_context(offline=True, color_scheme="dark", viewport=WIDE)
    heard = listen(context)
    return SimpleNamespace(page=context.new_page(), heard=heard)


@pytest.fixture(scope="module")
def still(browser):
    """A tab in which no script runs."""
    return browser.new_context(offline=True, java_script_enabled=False).new_page()


# Every page of the site.


@pytest.fixture(scope="module")
def walk(tab):
    """The faults that each check finds in all pages: each is opened dark on a phone, then made wide, then light."""
    faults, page = defaultdict(list), tab.page

    def note(file: Path, check: str, found: list[str]) -> None:
        faults[check] += [f"{file.relative_to(SITE).as_posix()}: {fault}" for fault in found]

    for file in [*toc_pages(), *other_pages()]:
        tab.heard.clear()
        page.goto("about:blank")  # cheaper to make narrow and dark than the page before
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        page.goto(file.as_uri())
        page.evaluate(READY)
        note(file, "overflow", page.evaluate(OVERFLOW))
        note(file, "tex", page.evaluate(RAW_TEX))
        if file.is_relative_to(SITE / "book"):
            note(file, "drawings", page.evaluate(DRAWINGS))
            page.set_viewport_size(WIDE)
            for mode in ("dark", "light"):
                note(file, "mode", wrong_mode(page, mode))
                note(file, "contrast", [f"{mode}: {fault}" for fault in page.evaluate(CONTRAST)])
                note(file, "figures", wrong_brightness(page, dark=mode == "dark"))
        note(file, "console", tab.heard)
    return faults


def joined(faults) -> str:
    return "\n".join(faults)


@needs_site
@pytest.mark.parametrize("check", ["console", "mode", "tex", "overflow", "contrast", "figures", "drawings"])
def test_every_page(walk, check):
    assert not walk[check], joined(walk[check])


@needs_site
def test_every_file_of_the_table_of_contents_is_a_page():
    assert toc_pages()
    assert [page.name for page in toc_pages() if not page.is_file()] == []


@needs_site
def test_links_are_alive():
    pages = [SITE / "index.html", *toc_pages(), *other_pages()]
    faults = [fault for page in pages for fault in dead_links(page, SITE)]
    assert not faults, joined(faults)


@needs_site
def test_images_say_what_is_seen():
    faults = [fault for page in [*toc_pages(), *other_pages()] for fault in poor_alt_texts(page)]
    assert not faults, joined(faults)


@needs_site
@pytest.mark.parametrize("check", [wrong_links_row, wrong_foot, wrong_source_lines])
def test_every_executed_page(check):
    executed = [page for page in toc_pages() if page.parent.name == "_executed"]
    faults = [fault for page in executed for fault in check(page, TREE)]
    assert executed
    assert not faults, joined(faults)


@needs_site
def test_the_explorer_obeys(tab):
    tab.heard.clear()
    tab.page.set_viewport_size(WIDE)
    tab.page.goto((SITE / EXPLORED).as_uri())
    assert dead_explorer(tab.page) + tab.heard == []


@needs_site
def test_the_explorer_without_scripts(still):
    still.goto((SITE / EXPLORED).as_uri())
    assert wrong_without_scripts(still) == []


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


@pytest.fixture
def show(tab, tmp_path):
    """Open a page with this article, on a phone."""

    def open_page(article: str):
        file = tmp_path / "page.html"
        file.write_text(
            f"<!doctype html><meta charset=utf-8><title>A page</title><article>{article}</article>"
        )
        tab.page.emulate_media(color_scheme="light")
        tab.page.set_viewport_size(PHONE)
        tab.heard.clear()
        tab.page.goto(file.as_uri())
        tab.page.evaluate(READY)
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
    ],
)
def test_gate_raw_tex(show, article, fault):
    assert_found(show(article).evaluate(RAW_TEX), fault)


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
    assert_found(show(article).evaluate(OVERFLOW), fault)


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
    assert_found(show(article).evaluate(CONTRAST), fault)


@pytest.mark.parametrize(
    ("style", "mode", "fault"),
    [
        ("filter: invert(0.93)", "dark", None),
        ("", "light", None),
        ("", "dark", "image 0 has the filter 'none'"),
        ("", "dark", "the first image is 1.00 bright in dark mode"),
        ("filter: invert(1)", "light", "the first image is 0.00 bright in light mode"),
    ],
)
def test_gate_brightness_of_figures(show, style, mode, fault):
    page = show(f'<img src="{WHITE}" style="{style}">')
    assert_found(wrong_brightness(page, dark=mode == "dark"), fault)


@pytest.mark.parametrize(("script", "fault"), [(FOLLOW, None), ("", "does not turn dark")])
def test_gate_mode(show, script, fault):
    assert_found(wrong_mode(show(script), "dark"), fault)


@pytest.mark.parametrize(
    ("label", "fault"), [("scalars sent: 1.2K after 100 steps", None), ("", "has the label")]
)
def test_gate_label_of_a_drawing(show, label, fault):
    assert_found(show(f"<div class=explore><svg aria-label='{label}'></svg></div>").evaluate(DRAWINGS), fault)


def swept(last: float) -> dict:
    row = {"regret": [0, last], "sent": [0, 2 * last], "syncs": [[1]], "count": last}
    return {
        "colour": "red",
        "phase_one": 1,
        "runs": 1,
        "steps": [1, 2],
        "sweep": [row, row | {"regret": [last, 9]}],
    }


@pytest.mark.parametrize(
    ("changing", "script", "fault"),
    [
        (True, True, None),
        (False, True, "the problem does not change the curve"),
        (True, False, "the explorer is not visible"),
    ],
)
def test_gate_explorer(show, changing, script, fault):
    """The book's own script on data of two problems and two algorithms, which may be the same."""
    problems = {
        p: {a: swept(i + j if changing else 1) for j, a in enumerate("AB")} for i, p in enumerate("PQ", 1)
    }
    code = (ROOT / "book/_assets/explore.js").read_text(encoding="utf-8")
    page = show(explorer(problems, [0.1, 1.0], 1.0) + (f"<script>{code}</script>" if script else ""))
    assert_found(dead_explorer(page), fault)


@pytest.mark.parametrize(
    ("hidden", "figure", "fault"),
    [
        ("hidden", f'<img src="{WHITE}">', None),
        ("", f'<img src="{WHITE}">', "the explorer is visible but dead"),
        ("hidden", "", "the static figure is not there"),
    ],
)
def test_gate_without_scripts(still, tmp_path, hidden, figure, fault):
    file = tmp_path / "page.html"
    file.write_text(f"<figure id=fig-04-explore>{figure}</figure><div class=explore {hidden}>dead</div>")
    still.goto(file.as_uri())
    assert_found(wrong_without_scripts(still), fault)


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
    assert_found(poor_alt_texts(page), fault)


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
    assert_found(dead_links(page, page.parent), fault)


STAMP = {"commit": "1a2b", "notebook": "a" * 64, "package": "b" * 64, "lock": "c" * 64}
STAMP |= {"parameters": {"runs": "10", "seed": "0"}, "seconds": 12.3, "date": "2026-01-02T03:04:05+00:00"}
EXECUTED_PAGE = """<p class=open-in>
<a href="https://mybinder.org/v2/gh/me/book/main?urlpath=lab%2Ftree%2Fnotebooks%2F01_a.md">open in Binder</a>
<a href="https://colab.research.google.com/github/me/book/blob/gh-pages/open/01_a.ipynb">open in Colab</a>
<a href="../../open/01_a.ipynb">download notebook</a>
<a href="https://github.com/me/book/edit/main/notebooks/01_a.md">edit source</a></p>
<figure id=fig-a><figcaption>A. <a href="../../source/01_a.html#line-2">source</a></figcaption></figure>
<footer class=origin><dl><dt>commit</dt><dd>1a2b</dd><dt>notebook</dt><dd>aaaaaaaaaaaa</dd>
<dt>package</dt><dd>bbbbbbbbbbbb</dd><dt>lock</dt><dd>cccccccccccc</dd><dt>parameters</dt><dd>runs = 10, seed = 0</dd>
<dt>run time</dt><dd>12 s</dd><dt>executed</dt><dd>2026-01-02T03:04:05+00:00</dd></dl></footer>"""
SHOWN = "<pre><span id=line-1> 1text\n</span><span id=line-2> 2x = 1\n</span><span id=line-3> 3plot(x)</span></pre>"


@pytest.mark.parametrize(
    ("check", "file", "old", "new", "fault"),
    [
        (wrong_links_row, "page", "", "", None),
        (wrong_links_row, "page", "2Fnotebooks", "2Fbook", "'open in Binder' leads to"),
        (wrong_links_row, "page", "blob/gh-pages/open", "blob/main/notebooks", "'open in Colab' leads to"),
        (wrong_links_row, "page", "../../open/01_a", "../../open/02_b", "'download notebook' leads to"),
        (wrong_links_row, "page", "edit/main/notebooks/01_a.md", "tree/main", "'edit source' leads to"),
        (wrong_links_row, "page", "edit source", "source", "'edit source' leads to None"),
        (wrong_links_row, "download", "%pip install fedgo", "import fedgo", "does not install the package"),
        (wrong_links_row, "download", '"cells"', '"cell"', "is no valid notebook"),
        (wrong_foot, "page", "", "", None),
        (wrong_foot, "page", "1a2b", "3c4d", "the foot says 'commit: 3c4d', the stamp '1a2b'"),
        (wrong_foot, "page", "<dt>package</dt>", "<dt>software</dt>", "'package: None'"),
        *[(wrong_foot, "page", f"<dd>{v}", "<dd>x", "the foot says") for v in ("aa", "bb", "cc", "runs", "12", "2026")],
        (wrong_source_lines, "page", "", "", None),
        (wrong_source_lines, "page", "#line-2", "#line-1", "is not its cell but: text"),
        (wrong_source_lines, "page", "#line-2", "#line-7", "is not its cell but: nothing"),
        (wrong_source_lines, "page", "#line-2", "", "does not link to its source"),
        (wrong_source_lines, "shown", "plot(x)", "plot(y)", "is not its cell"),
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
