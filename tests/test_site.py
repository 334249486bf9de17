"""The built site as a reader meets it: `_build/html`, or the folder that FEDGO_SITE names."""

import os
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

SITE = Path(os.environ.get("FEDGO_SITE", Path(__file__).resolve().parents[1] / "_build/html")).resolve()
PAGES = [
    file.relative_to(SITE).as_posix() for file in sorted(SITE.rglob("*.html")) if "_static" not in file.parts
]
READ = [
    page
    for page in PAGES
    if not page.startswith("_modules/") and "<article" in (SITE / page).read_text(encoding="utf-8")
]
BROWSERS = [
    os.environ.get("CHROMIUM"),
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
]
BROWSER = next((found for name in BROWSERS if name and (found := shutil.which(name))), None)
needs_site = pytest.mark.skipif(not PAGES, reason=f"there is no built site in {SITE}: run `make book` first")
NO_BROWSER = "there is no Chromium: `apt-get install chromium`, or CHROMIUM=/path"
# With CI=true, as GitHub sets it, the tests are not skipped: `tab` fails, and they with it.
needs_browser = pytest.mark.skipif(not BROWSER and os.environ.get("CI") != "true", reason=NO_BROWSER)
LABELS = ["image-alt", "svg-img-alt", "label", "select-name", "button-name", "link-name", "summary-name"]
ALIKE = re.compile("book/api/(?!problems)")  # of the pages that are made from docstrings one is enough
# A formula has the colour of the text around it, in a thousand elements.
WITHOUT_FORMULAS = "document.querySelectorAll('mjx-container').forEach(formula => formula.remove())"
PHONE, LAPTOP = 390, 1280  # pixels
CHECKS = [
    ("light", PHONE, ["scrollable-region-focusable"]),
    ("light", LAPTOP, [*LABELS, "color-contrast"]),
    ("dark", LAPTOP, ["color-contrast"]),
]
# What is wider than the room that it has, and is not scrolled by itself.
WIDE = """() => [...document.querySelectorAll("html, .bd-content, .bd-article-container, .bd-article")]
  .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.className || box.tagName)"""
HEARD: list[str] = []  # what the page shown asked other hosts for, and what went wrong in it


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    """A tab without a network, heard while it is open."""
    if not BROWSER:
        pytest.fail(NO_BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        page.set_default_timeout(120_000)  # milliseconds: many formulas on a crowded machine
        page.on("request", lambda request: HEARD.extend([request.url] * request.url.startswith("http")))
        page.on("pageerror", lambda error: HEARD.append(str(error)))
        yield page
        browser.close()


def show(tab: Page, page: str) -> None:
    """Open a page on a laptop, and wait until its formulas are set."""
    HEARD.clear()
    tab.set_viewport_size({"width": LAPTOP, "height": 800})
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.goto((SITE / page).as_uri())
    tab.evaluate("window.MathJax?.startup?.promise ?? true")


@pytest.mark.slow
@needs_site
@needs_browser
@pytest.mark.parametrize("page", READ)
def test_a_page_fits_the_screen_asks_no_other_host_and_has_contrast_and_labels(tab: Page, page: str) -> None:
    show(tab, page)
    for width in (LAPTOP, PHONE):
        tab.set_viewport_size({"width": width, "height": 800})
        assert (HEARD, tab.evaluate(WIDE)) == ([], []), f"{width} px"
    if ALIKE.match(page):
        return
    tab.evaluate(WITHOUT_FORMULAS)
    tab.wait_for_timeout(500)  # 300 ms after a change the theme makes what scrolls focusable
    for mode, width, rules in CHECKS:
        tab.set_viewport_size({"width": width, "height": 800})
        tab.evaluate("mode => document.documentElement.dataset.theme = mode", mode)
        found = Axe().run(tab, "article, .bd-links", {"runOnly": rules, "resultTypes": ["violations"]})
        assert found.violations_count == 0, f"{mode}: {found.generate_report()}"


@pytest.mark.slow
@needs_site
@needs_browser
@pytest.mark.parametrize(
    "page", [page for page in READ if 'div class="explore"' in (SITE / page).read_text("utf-8")]
)
def test_every_control_of_an_explorer_changes_its_drawing(tab: Page, page: str) -> None:
    show(tab, page)
    for box in tab.locator("div.explore").all():
        for control in box.locator("input, select, button").all():
            before = box.inner_html()
            match control.evaluate("node => node.tagName"):
                case "INPUT":
                    control.fill("1")
                case "SELECT":
                    control.select_option(index=1)
                case _:
                    control.click()
            assert box.inner_html() != before, control.evaluate("node => node.outerHTML")


@pytest.mark.slow
@needs_site
@needs_browser
def test_an_excerpt_of_a_search_has_no_code_and_no_tex_and_on_paper_all_is_open(tab: Page) -> None:
    page = "book/_executed/confidence_set.html"
    show(tab, "search.html")
    shown = tab.evaluate("page => Search.htmlToText(page, '')", (SITE / page).read_text("utf-8"))
    assert "ŵ_0" in shown and re.findall(r"\\\w+|\\\(|\bimport \w+", shown) == []
    show(tab, page)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    closed = tab.locator(".bd-article details:not([open])")
    assert tab.locator(".bd-article details").count() > closed.count() == 0


@needs_site
def test_links_inside_the_site_lead_somewhere_and_no_directive_is_shown_as_text() -> None:
    texts = {page: (SITE / page).read_text(encoding="utf-8") for page in PAGES}
    anchors = {
        page: set(map(unescape, re.findall(r'\s(?:id|name)="([^"]+)"', texts[page]))) for page in PAGES
    }
    dead = [page for page in READ if re.search(r"<p>```\{|<p>:::|\{n\}`", texts[page])]
    for page, text in texts.items():
        for link in set(re.findall(r'\s(?:href|src)="([^"]*)"', text)):
            path, _, fragment = unquote(unescape(link)).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = (SITE / page).parent.joinpath(path.partition("?")[0]).resolve() if path else SITE / page
            name = target.relative_to(SITE).as_posix()
            if not target.is_file() or (fragment and name in anchors and fragment not in anchors[name]):
                dead.append(f"{page}: {link}")
    moved = re.findall(r'": \["([\w/]+)", "', texts["404.html"])
    places = [[SITE / folder / f"{page}.html" for folder in ("book", "book/_executed")] for page in moved]
    assert (dead, [one for one, other in places if not (one.is_file() or other.is_file())]) == ([], [])
