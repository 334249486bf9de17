"""Look at the built site as a reader meets it: offline, light and dark, on a phone and on two desktops.

`python book/audit.py [PAGE ...]` prints every fault in a line of its own and exits with 1 if there is one. A check is a
function that returns the faults of a page as sentences; what is measured in the browser (the system's Chromium, or the
one that CHROMIUM names) is in the scripts of the folder `audit` beside this file. `audit/known.txt` lists the faults
that are known and not yet mended; a line of it that is no fault any more is one itself.
"""

import argparse
import functools
import io
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import nbformat
import numpy as np
from bs4 import BeautifulSoup
from pdf import PdfError, chromium
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Error, Locator, Page, Request, sync_playwright
from provenance import foot

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "book/audit"
KNOWN = "book/audit/known.txt"
PHONE, LAPTOP, DESKTOP = (390, 844), (1280, 800), (1440, 900)
MODES = ("dark", "light")


class Fault(NamedTuple):
    """What is wrong with a page, and in which views of it."""

    page: str
    text: str
    view: str = ""

    def __str__(self) -> str:
        """The line that the program prints."""
        return f"{self.page}: {f'{self.view}: ' if self.view else ''}{self.text}"


def toc_pages(site: Path, tree: Path) -> list[Path]:
    """The page of every file in the table of contents of the sources in ``tree``."""
    toc = (tree / "_toc.yml").read_text(encoding="utf-8")
    return [site / f"{file}.html" for file in re.findall(r"^[\s-]*(?:root|file): (\S+)", toc, re.MULTILINE)]


def other_pages(site: Path) -> list[Path]:
    """The pages of source code and the theme's own; `index.html` only leads to the first page of the book."""
    found = sorted([*site.glob("*.html"), *site.glob("source/**/*.html")])
    return [page for page in found if page != site / "index.html"]


class Tags(HTMLParser):
    """Every start tag of a page, with its attributes."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What the parser calls."""
        self.found.append((tag, {key: value or "" for key, value in attrs}))


@functools.cache
def tags(page: Path) -> list[tuple[str, dict[str, str]]]:
    """The tags of a page, read once."""
    return Tags(page).found


@functools.cache
def soup(page: Path) -> BeautifulSoup:
    """The tree of a page, read once."""
    return BeautifulSoup(page.read_bytes(), "html.parser")


# Checks of the files.


def poor_alt_texts(page: Path) -> list[str]:
    """An image's text says what is seen: it is more than a word and not the name of a file."""
    texts = [(a.get("src", ""), a.get("alt", "").strip()) for tag, a in tags(page) if tag == "img"]
    file_name = re.compile(r"[^ ]*\.(png|svg|jpe?g|gif|webp)", re.IGNORECASE)
    return [
        f"the image {source[-40:]} has the alternative text {text!r}"
        for source, text in texts
        if len(text) < 20 or file_name.fullmatch(text)
    ]


@functools.cache
def anchors(page: Path) -> set[str]:
    """The ids of a page."""
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
                faults.append(f"{link} does not lead to the web")
            continue
        file = (page.parent / unquote(url.path)).resolve() if url.path else page
        if not file.is_file() or not file.is_relative_to(site):
            faults.append(f"{link} leads to no file")
        elif url.fragment and file.suffix == ".html" and unquote(url.fragment) not in anchors(file):
            faults.append(f"{link} leads to no anchor")
    return faults


def wrong_links_row(page: Path, tree: Path) -> list[str]:
    """Below the title of an executed page: the notebook; and, if the repository is known, three hosts that have it."""
    name, site = page.stem, page.parents[2]
    row = {link.get_text(): unquote(str(link["href"])) for link in soup(page).select("p.open-in a")}
    patterns = {"download notebook": rf"\.\./\.\./open/{name}\.ipynb"}
    hosts = {
        "open in Binder": rf"https://mybinder\.org/v2/gh/[\w.-]+/[\w.-]+/[\w.-]+\?urlpath=lab/tree/notebooks/{name}\.md",
        "open in Colab": "https://colab.research.google.com/github/"
        rf"[\w.-]+/[\w.-]+/blob/gh-pages/open/{name}\.ipynb",
        "edit source": rf"https://github\.com/[\w.-]+/[\w.-]+/edit/[\w.-]+/notebooks/{name}\.md",
    }
    if len(row) > 1 or os.environ.get("GITHUB_REPOSITORY"):
        patterns |= hosts
    faults = [
        f"'{label}' leads to {row.get(label)}"
        for label, pattern in patterns.items()
        if not re.fullmatch(pattern, row.get(label, ""))
    ]
    if not (tree / f"notebooks/{name}.md").is_file():
        faults.append(f"there is no notebooks/{name}.md to open or edit")
    try:
        notebook = nbformat.read(site / f"open/{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        return [*faults, f"open/{name}.ipynb is no valid notebook: {error}"]
    second = notebook.cells[1]
    if second.cell_type != "code" or not re.search(r"pip install.*\bfedgo\b", second.source):
        faults.append(f"the second cell of open/{name}.ipynb does not install the package")
    return faults


def executed(page: Path, tree: Path) -> Any:
    """The executed notebook that a page shows."""
    return nbformat.read(tree / f"book/_executed/{page.stem}.ipynb", as_version=4)


def facts(html: BeautifulSoup) -> dict[str, str]:
    """What the foot of a page says, by its terms."""
    terms = html.select("footer.origin dt")
    return {term.get_text(): value.get_text() for term in terms if (value := term.find_next("dd"))}


def wrong_foot(page: Path, tree: Path) -> list[str]:
    """The foot of an executed page says what the stamp of its executed notebook says today."""
    stamp = executed(page, tree).metadata.fedgo
    shown, expected = facts(soup(page)), facts(BeautifulSoup(foot(stamp, ""), "html.parser"))
    return [
        f"the foot says '{key}: {shown.get(key)}', the stamp '{expected.get(key)}'"
        for key in {**expected, **shown}
        if shown.get(key) != expected.get(key)
    ]


def wrong_source_lines(page: Path, tree: Path) -> list[str]:
    """The link in a figure's caption leads to the first line of the cell that drew it."""
    faults = []
    for cell in executed(page, tree).cells:
        if "figure" not in cell.metadata.get("mystnb", {}):
            continue
        name, code = cell.metadata.mystnb.figure.name, cell.source.strip().splitlines()
        link = soup(page).select_one(f"figure#{name} figcaption a[href*='#line-']")
        if link is None:
            faults.append(f"the caption of {name} does not link to its source")
            continue
        file, _, anchor = str(link["href"]).partition("#line-")
        shown = soup((page.parent / file).resolve())
        lines = [shown.find(id=f"line-{int(anchor) + k}") for k in range(len(code))]
        texts = [re.sub(r"^\s*\d+", "", line.get_text(), count=1).rstrip() for line in lines if line]
        if texts != [line.rstrip() for line in code]:
            first = texts[0] if texts else "nothing"
            faults.append(f"line {anchor}, to which {name} links, is not its cell but: {first}")
    return faults


def look_at_files(page: Path, site: Path, tree: Path) -> Iterator[str]:
    """Everything that needs no browser."""
    yield from poor_alt_texts(page)
    yield from dead_links(page, site)
    if page.parent == site / "book/_executed":
        yield from wrong_links_row(page, tree)
        yield from wrong_foot(page, tree)
        yield from wrong_source_lines(page, tree)


# Checks in the browser.


@functools.cache
def script(name: str) -> str:
    """A script of the folder `audit`."""
    return (SCRIPTS / f"{name}.js").read_text(encoding="utf-8")


def measure(tab: Page, name: str) -> list[str]:
    """The faults that a script of the folder `audit` finds in the page as it is now shown."""
    found: list[str] = tab.evaluate(script(name))
    return found


def open_page(tab: Page, file: Path, size: tuple[int, int], mode: str) -> None:
    """Show a page from the beginning, and wait until it is ready to be looked at."""
    tab.goto("about:blank")  # cheaper to resize and to recolour than the page before
    resize(tab, size)
    tab.emulate_media(color_scheme="dark" if mode == "dark" else "light")
    tab.goto(file.as_uri())
    tab.evaluate(script("ready"))


def resize(tab: Page, size: tuple[int, int]) -> None:
    """Give the screen this width and height, and wait until side bars have moved."""
    tab.set_viewport_size({"width": size[0], "height": size[1]})
    tab.evaluate(script("settled"))


def listen(context: BrowserContext) -> list[str]:
    """The list to which every request off the host, console error and uncaught error is added from now on."""
    faults: list[str] = []

    def requested(request: Request) -> None:
        if urlsplit(request.url).scheme not in ("file", "data", "blob"):
            faults.append(f"asks another host: {request.url}")

    context.on("request", requested)
    context.on(
        "console", lambda said: faults.append(f"console: {said.text}") if said.type == "error" else None
    )
    context.on("weberror", lambda thrown: faults.append(f"uncaught: {thrown.error.message}"))
    return faults


def wrong_mode(tab: Page, mode: str, patience: int = 30_000) -> list[str]:
    """The page follows the colours that the reader's system asks for, in ``patience`` ms; call it before the checks
    of colours."""
    tab.emulate_media(color_scheme="dark" if mode == "dark" else "light")
    followed = f"document.documentElement.dataset.theme === '{mode}'"
    try:
        if not tab.evaluate(followed):
            tab.wait_for_function(followed, timeout=patience)
    except Error:
        return [f"the page does not turn {mode}"]
    return []


def wrong_brightness(tab: Page, mode: str) -> list[str]:
    """Every image that is shown is its rendering for this mode, unchanged; the first is so by its pixels too."""
    faults = measure(tab, "renderings")
    images = tab.locator("article img:visible")
    if images.count():
        pixels = np.asarray(Image.open(io.BytesIO(images.first.screenshot())).convert("L")) / 255
        if (pixels.mean() > 0.35) if mode == "dark" else (pixels.mean() < 0.65):
            faults.append(f"the first image is {pixels.mean():.2f} bright")
    return faults


def dead_explorers(tab: Page) -> list[str]:
    """Each control of every explorer changes what is drawn or said, and the sliders, by the keyboard too, both."""
    return [fault for box in tab.locator("div.explore").all() for fault in dead_controls(box)]


def dead_controls(box: Locator) -> list[str]:
    """The same for one explorer."""
    kind = box.get_attribute("data-kind")
    if not box.is_visible():
        return [f"the {kind} explorer is not visible"]

    def drawn() -> list[str]:
        shown: list[str] = box.locator("svg").evaluate_all("all => all.map((svg) => svg.outerHTML)")
        return shown

    faults = []
    for select in box.locator("select").all():
        name, old = select.locator("xpath=..").inner_text().split()[0], drawn()
        select.select_option(index=1)
        if old == drawn():
            faults.append(f"{kind}: '{name}' does not change the drawing")
    for slider in box.locator("input[type=range]").all():
        middle = int(slider.get_attribute("max") or 0) // 2
        moves = (functools.partial(slider.fill, str(middle)), functools.partial(slider.press, "ArrowRight"))
        for move in moves:
            before = (drawn(), box.inner_text())
            move()
            parts = zip(("drawing", "text"), before, (drawn(), box.inner_text()), strict=True)
            said = slider.get_attribute("aria-label")
            faults += [
                f"{kind}: '{said}' does not change the {part}" for part, old, new in parts if old == new
            ]
    for button in box.locator("button").all():
        label, before = button.inner_text(), (drawn(), box.inner_text())
        button.click()
        if before == (drawn(), box.inner_text()):
            faults.append(f"{kind}: '{label}' changes nothing")
        if button.inner_text() != label:  # a switch: back again, so that nothing moves by itself
            button.click()
    return faults


def wrong_without_scripts(tab: Page) -> list[str]:
    """Where scripts do not run there is the static figure of every explorer, and no dead control beside it."""
    faults = []
    for box in tab.locator("div.explore").all():
        kind, figure = box.get_attribute("data-kind"), box.get_attribute("data-figure")
        if not tab.locator(f"figure#{figure} img:visible").count():
            faults.append(f"without scripts the static figure {figure} is not there")
        if box.is_visible():
            faults.append(f"without scripts the {kind} explorer is visible but dead")
    return faults


def look_at_views(tab: Page, file: Path, sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[str, list[str]]]:
    """View and faults, at every size in both modes; the page is opened once, and recoloured as seldom as can be."""
    modes = list(MODES)
    open_page(tab, file, sizes[0], modes[0])
    yield "", measure(tab, "raw_tex") + measure(tab, "drawings")
    for size in sizes:
        resize(tab, size)
        for mode in modes:
            view = f"{size[0]} px, {mode}"
            yield view, wrong_mode(tab, mode) + measure(tab, "overflow") + measure(tab, "contrast")
            if size != PHONE:  # where wide formulas and tables scroll
                yield view, measure(tab, "out_of_sight")
            if size == LAPTOP:
                yield view, wrong_brightness(tab, mode)
        modes.reverse()


def merged(found: Iterable[tuple[str, list[str]]], page: str) -> Iterator[Fault]:
    """Faults of one page, those alike in several views as one: "390 px" is both modes at that width."""
    views: dict[str, list[str]] = defaultdict(list)
    for view, texts in found:
        for text in dict.fromkeys(texts):
            views[text].append(view)
    for text, seen in views.items():
        widths: dict[str, list[str]] = defaultdict(list)
        for view in filter(None, seen):
            width, mode = view.split(", ")
            widths[width].append(mode)
        parts = [
            width if len(modes) == len(MODES) else f"{width}, {modes[0]}" for width, modes in widths.items()
        ]
        yield Fault(page, text, "; ".join(parts))


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium()) as started:
        yield started


def look(site: Path, tree: Path, pages: Iterable[Path]) -> list[Fault]:
    """Every fault of these pages of the site that was built from the sources in ``tree``."""
    faults: list[Fault] = []
    with browser() as started:
        context = started.new_context(offline=True)
        heard, tab = listen(context), context.new_page()
        still = started.new_context(offline=True, java_script_enabled=False).new_page()
        for shown in (tab, still):
            shown.set_default_timeout(120_000)  # for a machine with other things to do
        for file in pages:
            page = file.relative_to(site).as_posix()
            if not file.is_file():
                faults.append(Fault(page, "the table of contents names it, and it is not there"))
                continue
            heard.clear()
            texts = [*look_at_files(file, site, tree)]
            sizes = (PHONE, LAPTOP, DESKTOP) if file.is_relative_to(site / "book") else (PHONE,)
            try:
                faults += merged(look_at_views(tab, file, sizes), page)
                if tab.locator("div.explore").count():
                    still.goto(file.as_uri())
                    texts += dead_explorers(tab) + wrong_without_scripts(still)
            except Error as error:
                texts.append(f"could not be looked at: {error.message.splitlines()[0]}")
            faults += [Fault(page, text) for text in dict.fromkeys([*texts, *heard])]
    return faults


def look_at_all(site: Path, tree: Path, pages: Sequence[Path]) -> list[Fault]:
    """The same in two processes, each with a browser of its own; in the order of the pages."""
    shares = [share for share in (pages[::2], pages[1::2]) if share]
    with ProcessPoolExecutor(len(shares)) as pool:
        found = [
            fault for faults in pool.map(functools.partial(look, site, tree), shares) for fault in faults
        ]
    order = [page.relative_to(site).as_posix() for page in pages]
    return sorted(found, key=lambda fault: order.index(fault.page))


def known_faults(tree: Path) -> list[str]:
    """The lines of the tree's file of known faults, without its comments."""
    file = tree / KNOWN
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [line for line in lines if line and not line.startswith("#")]


def sieve(faults: Iterable[Fault], known: Iterable[str]) -> Iterator[Fault]:
    """The faults that are not known, and those of the known ones that are mended by now."""
    mended = dict.fromkeys(known)
    expected = frozenset(mended)
    for fault in faults:
        mended.pop(str(fault), None)
        if str(fault) not in expected:
            yield fault
    for line in mended:
        page, _, text = line.partition(": ")
        yield Fault(page, f"mended, so take it out of {KNOWN}: {text}")


def page_of(name: str) -> str:
    """The page of a source, of `notebooks/04_phase_two.md` say; what names no source names pages."""
    if name.startswith("notebooks/"):
        name = name.replace("notebooks", "book/_executed", 1)
    return re.sub(r"(\.md|\.html)?$", ".html", name, count=1)


def audit(site: Path, patterns: Sequence[str] = (), known: bool = True) -> Iterator[Fault]:
    """The faults of the site's pages, or only of those that match a pattern: `book/choices.md`, `notebooks/0*`.

    Those that the sources list as ``known`` are left out, unless they are asked for.
    """
    tree = site.parents[1]
    pages = {p.relative_to(site).as_posix(): p for p in [*toc_pages(site, tree), *other_pages(site)]}
    wanted = [page_of(pattern) for pattern in patterns]
    if unknown := [pattern for pattern in wanted if not any(fnmatch(page, pattern) for page in pages)]:
        raise LookupError(f"no page of the site is called {' or '.join(unknown)}")
    chosen = {p: f for p, f in pages.items() if not wanted or any(fnmatch(p, pattern) for pattern in wanted)}
    listed = known_faults(tree) if known else []
    expected = [line for line in listed if not wanted or line.partition(": ")[0] in chosen]
    yield from sieve(look_at_all(site, tree, list(chosen.values())), expected)


def built_site() -> Path:
    """`_build/html`, or the folder that FEDGO_SITE names."""
    return Path(os.environ.get("FEDGO_SITE", ROOT / "_build/html")).resolve()


def main(arguments: list[str] | None = None) -> None:
    """Print the faults; exit with 1 if there are any, with 2 if nothing can be looked at."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="only these: book/choices.md, notebooks/04*")
    parser.add_argument("--all", action="store_true", help="print the known faults too")
    options = parser.parse_args(arguments)
    site = built_site()
    if not (site / "index.html").is_file():
        parser.error(f"there is no built site in {site}: run `make book` first")
    try:
        faults = [str(fault) for fault in audit(site, options.pages, known=not options.all)]
    except (LookupError, PdfError) as error:
        parser.error(str(error))
    print("\n".join(faults), end="\n" * bool(faults))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
