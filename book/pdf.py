"""Print the built book to one PDF, `_build/fedgo.pdf`: Chromium prints every page of `_toc.yml`, pypdf binds them."""

import html
import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

import yaml
from playwright.sync_api import Browser, Error, PdfMargins, sync_playwright
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Destination, Fit, NameObject, NullObject
from website import why_not_good

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MARGINS: PdfMargins = {"top": "17mm", "bottom": "19mm", "left": "18mm", "right": "18mm"}
PRINTED = round((210 - 2 * 18) / 25.4 * 96)  # what the margins leave of an A4 page's width, in CSS pixels

# Before the page's own scripts run: sphinx-togglebutton would open all the hidden code when printing begins.
KEEP_CLOSED = "addEventListener('beforeprint', event => event.stopImmediatePropagation())"

# Chromium records where on paper an element lies only if a link of the same document leads to it: link to all.
# What is wider than the page (formulas, tables) is shrunk until it fits; what is not higher than half of it stays in
# one piece. Returns the title and the sections.
PREPARE = """async (imprint) => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  const article = document.querySelector("article");
  article.querySelectorAll("details.fold").forEach((node) => { node.open = true; });
  const label = (node) => {
    const copy = node.cloneNode(true);
    copy.querySelectorAll(".headerlink, mjx-container > :not(mjx-assistive-mml)").forEach((part) => part.remove());
    return copy.textContent.replace(/\\s+/g, " ").trim();
  };
  const sections = [...article.querySelectorAll("h2")].map((node) => [label(node), node.closest("[id]")?.id ?? ""]);
  const links = document.createElement("div");
  for (const node of article.querySelectorAll("[id]")) {
    links.append(Object.assign(document.createElement("a"), { href: "#" + encodeURIComponent(node.id) }));
  }
  links.hidden = true;
  article.append(links);
  for (const node of article.querySelectorAll("table, div.math")) {
    const share = node.parentElement.clientWidth / node.scrollWidth;
    if (share < 1) node.style.zoom = 0.99 * share;
  }
  for (const node of article.querySelectorAll("table, .cell_input, .admonition, .highlight, [class*='highlight-']")) {
    node.style.breakInside = node.offsetHeight < 500 ? "avoid" : "auto";
  }
  const heading = article.querySelector("h1");
  const title = label(heading);
  if (imprint) {
    const line = Object.assign(document.createElement("p"), { className: "imprint", textContent: imprint });
    heading.classList.add("title-page");
    heading.after(line);
  }
  return { title, sections };
}"""

Places = Mapping[tuple[Path, str], tuple[int, Fit]]


class PdfError(Exception):
    """Why there is no PDF; its text is all that the user sees."""


class Page(NamedTuple):
    """A page of the book, printed."""

    file: Path
    part: str | None
    title: str
    sections: list[tuple[str, str]]  # heading and id
    paper: PdfReader


def contents(root: Path) -> Iterator[tuple[str | None, Path]]:
    """The part and the HTML file of every page, in the order of `_toc.yml`."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    site = root / "_build/html"
    yield None, site / f"{toc['root']}.html"
    for part in toc["parts"]:
        for chapter in part["chapters"]:
            yield part["caption"], site / f"{chapter['file']}.html"


def chromium() -> str:
    """The browser that prints: $CHROMIUM, else the first that is installed."""
    named = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, (named,) if named else BROWSERS)), None)
    if not found:
        raise PdfError(
            f"{named or 'Chromium'} is not there, and printing needs Chromium; "
            "install it (on Debian `make chromium` does), or name one: CHROMIUM=/path/to/chrome make pdf"
        )
    return found


def print_page(browser: Browser, part: str | None, file: Path, imprint: str = "") -> Page:
    """Print one page of the site, with a line below its title if there is one to print."""
    tab = browser.new_page(color_scheme="light", viewport={"width": PRINTED, "height": 1000})
    tab.set_default_timeout(120_000)  # for a machine with other things to do
    tab.add_init_script(KEEP_CLOSED)
    tab.emulate_media(media="print")
    tab.goto(file.as_uri())
    seen: Any = tab.evaluate(PREPARE, imprint)
    paper = tab.pdf(format="A4", margin=MARGINS, print_background=True)
    tab.close()
    return Page(file, part, seen["title"], seen["sections"], PdfReader(io.BytesIO(paper)))


def running_lines(browser: Browser, pages: list[Page]) -> PdfReader:
    """As many sheets as the book has, each with nothing but its running line: chapter and page number."""
    titles = [html.escape(page.title) for page in pages for _ in page.paper.pages]
    sheets = "".join(
        f"<p><span>{title}</span><span>{number}</span></p>" if number > 1 else "<p></p>"
        for number, title in enumerate(titles, 1)
    )
    tab = browser.new_page()
    tab.set_content(
        "<style>@page { size: A4; margin: 0 } body { margin: 0; font: 8pt sans-serif; color: #555 }"
        "p { box-sizing: border-box; height: 297mm; margin: 0; padding: 284mm 18mm 0; break-after: page;"
        "display: flex; justify-content: space-between } p:last-child { break-after: auto }</style>" + sheets
    )
    return PdfReader(io.BytesIO(tab.pdf(prefer_css_page_size=True)))


def bind(pages: list[Page], lines: PdfReader, title: str, author: str) -> PdfWriter:
    """One document of all pages, with an outline, and with links that lead to places in it."""
    writer = PdfWriter()
    places: dict[tuple[Path, str], tuple[int, Fit]] = {}  # (file, id): the sheet, and where on it
    owners: list[Path] = []  # of every sheet
    for page in pages:
        start = len(owners)
        places[page.file, ""] = start, Fit.xyz()
        for name, place in page.paper.named_destinations.items():
            number = page.paper.get_destination_page_number(place)
            if number is not None and place.top is not None:
                fit = Fit.xyz(top=float(place.top) + 6)  # a little above, so that the line itself is seen
                places[page.file, unquote(name.lstrip("/"))] = start + number, fit
        for sheet in page.paper.pages:
            writer.add_page(sheet)
            owners.append(page.file)
    for sheet, line, owner in zip(writer.pages, lines.pages, owners, strict=True):
        sheet.merge_page(line)
        sheet.compress_content_streams()
        redirect(writer, sheet, owner, places)

    parts: dict[str, Any] = {}
    for page in pages:
        number, _ = places[page.file, ""]
        if page.part and page.part not in parts:
            parts[page.part] = writer.add_outline_item(title=page.part, page_number=number, bold=True)
        chapter = writer.add_outline_item(
            title=page.title, page_number=number, parent=parts.get(page.part or ""), is_open=False
        )
        for heading, anchor in page.sections:
            number, fit = places.get((page.file, anchor)) or places[page.file, ""]
            writer.add_outline_item(title=heading, page_number=number, parent=chapter, fit=fit)
    writer.add_metadata({"/Title": title, "/Author": author})
    writer.page_mode = "/UseOutlines"
    writer.compress_identical_objects()  # the fonts, once for every page of the site
    return writer


def redirect(writer: PdfWriter, sheet: PageObject, owner: Path, places: Places) -> None:
    """Make the links of a sheet lead to places in the document; drop those to pages that are not printed."""
    kept = ArrayObject()
    for reference in sheet.get("/Annots", ArrayObject()):
        link = reference.get_object()
        address = link.get("/A", {}).get(
            "/URI", owner.as_uri() + "#" + str(link.get("/Dest", "")).lstrip("/")
        )
        url, anchor = urldefrag(address)
        if url.startswith("file:"):
            file = Path(unquote(urlsplit(url).path))
            place = places.get((file, unquote(anchor))) or places.get((file, ""))
            if not place:
                continue
            number, fit = place
            target = writer.pages[number].indirect_reference or NullObject()  # every sheet has one
            link.pop("/A", None)
            link[NameObject("/Dest")] = Destination("", target, fit).dest_array
        kept.append(reference)
    sheet[NameObject("/Annots")] = kept


def make(root: Path) -> Path:
    """Print the built book below `root`; return the PDF. A site that is not of today's sources is refused."""
    if reason := why_not_good(root):
        raise PdfError(reason)
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    book = list(contents(root))
    if missing := [str(file.relative_to(root)) for _, file in book if not file.is_file()]:
        raise PdfError(f"the book is not built ({missing[0]} is missing); run `make book` first")
    program = chromium()
    try:
        with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program) as browser:
            front, *others = book
            pages = [print_page(browser, *front, imprint=settings["author"])]
            pages += [print_page(browser, part, file) for part, file in others]
            lines = running_lines(browser, pages)
    except Error as error:
        raise PdfError(f"{program} could not print: {error.message.splitlines()[0]}") from None
    output = root / "_build/fedgo.pdf"
    writer = bind(pages, lines, settings["title"], settings["author"])
    with output.open("wb") as stream:
        writer.write(stream)
    print(f"{len(writer.pages)} pages, {output.stat().st_size / 1e6:.1f} MB")
    return output


def main() -> None:
    """Print the book, or say why not."""
    try:
        print(f"Open {make(ROOT)}")
    except PdfError as fault:
        sys.exit(f"The PDF was not made: {fault}")


if __name__ == "__main__":
    main()
