"""The gates of the book: each returns the faults it finds, as sentences that name the place and the remedy."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from chapters import parameters as declared_parameters
from chapters import where

MOST_TEXT = 200_000  # characters that the outputs of a cell may have beside its pictures
MOST = 8_000_000  # characters with the pictures

NOT_A_NUMBER = re.compile(r"(?<![a-z])(nan|inf(inity)?)(?![a-z])", re.IGNORECASE)
GLUED = "application/papermill.record/"


def unfit_parameters(source: Any, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """A parameter that the notebook does not declare (papermill only logs it), or a value of another type."""
    declared = declared_parameters(source)
    faults = [
        f"notebook {name} has no parameter '{key}'; it has: {', '.join(declared) or 'none'}"
        for key in parameters
        if key not in declared
    ]
    for key, value in parameters.items():
        try:
            usual = ast.literal_eval(declared[key])
        except (KeyError, ValueError, SyntaxError):
            continue
        if type(value) is not type(usual) and not (type(value) is int and type(usual) is float):
            faults.append(
                f"notebook {name}: parameter '{key}' is {value!r} ({type(value).__name__}); "
                f"the notebook has {usual!r}, give {type(usual).__name__} too"
            )
    return faults


def outputs(executed: Any, name: str) -> Iterator[tuple[str, list[Any]]]:
    """Every cell of ``executed`` as messages name it, with its outputs."""
    for index, cell in enumerate(executed.cells):
        yield f"notebook {name}, {where(index, cell.source)}", cell.get("outputs", [])


def error_outputs(executed: Any, name: str) -> list[str]:
    """A notebook with an error among its outputs renders without complaint."""
    return [
        f"{cell}: error output {output.ename}: {output.evalue}"
        for cell, found in outputs(executed, name)
        for output in found
        if output.output_type == "error"
    ]


def noise(executed: Any, name: str) -> list[str]:
    """Warnings, which go to stderr, and floods do not belong on a page."""
    faults = []
    for cell, found in outputs(executed, name):
        said = "".join(part.text for part in found if part.output_type == "stream" and part.name == "stderr")
        if said:
            faults.append(f"{cell}: writes to stderr: {said.strip().splitlines()[0][:200]}")
        sizes = {"image": 0, "text": 0}
        for part in found:
            for mime, content in ({"text": part.text} if "text" in part else part.get("data", {})).items():
                sizes["image" if mime.startswith("image/") else "text"] += len(str(content))
        if sizes["text"] > MOST_TEXT or sum(sizes.values()) > MOST:
            faults.append(
                f"{cell}: its outputs are {sum(sizes.values()) / 1e6:.1f} million characters, "
                f"{sizes['text'] / 1e6:.1f} of them text; show less"
            )
    return faults


def glued_gaps(executed: Any, name: str) -> list[str]:
    """A number that prose would show as "nan" or "inf"."""
    return [
        f"{cell}: glues '{part.metadata.get('scrapbook', {}).get('name')}', which is {content}"
        for cell, found in outputs(executed, name)
        for part in found
        for mime, content in part.get("data", {}).items()
        if mime.startswith(GLUED) and isinstance(content, str) and NOT_A_NUMBER.search(content)
    ]


def missing_figures(executed: Any, name: str) -> list[str]:
    """A figure whose formatter failed leaves no image; a figure needs a text that says what is seen."""
    faults = []
    for (cell_name, found), cell in zip(outputs(executed, name), executed.cells, strict=True):
        options = cell.metadata.get("mystnb", {})
        if "figure" not in options:
            continue
        shown = [" ".join(out["data"]) for out in found if out.get("data")]
        if not any("image/" in mimes for mimes in shown):
            faults.append(f"{cell_name}: declares a figure but has no image among its outputs")
        elif sum("papermill.record" not in mimes for mimes in shown) > 1:
            faults.append(f"{cell_name}: shows more than its figure; end the last line with ';'")
        if not options.get("image", {}).get("alt"):
            faults.append(f"{cell_name}: its figure has no mystnb.image.alt")
    return faults


def faults(executed: Any, name: str) -> list[str]:
    """Everything that is wrong with an executed notebook, whatever its parameters."""
    return error_outputs(executed, name) + noise(executed, name) + missing_figures(executed, name)


BOXES = re.compile(r"\{(prf:|admonition|card|dropdown|exercise|grid|note|solution|tip)")


def prose(text: str) -> list[str]:
    """The lines of a page, those of its header and of fenced blocks empty; what the boxes of `BOXES` say is prose."""
    lines, fences = [], ["---"] if text.startswith("---") else []
    for number, line in enumerate(text.splitlines()):
        fence = re.match(r"(`{3,}|:{3,}|---)(.*)", line)
        closing = bool(fence and fences and fence[1] == fences[-1].lstrip("+") and not fence[2] and number)
        visible = not closing and all(kept.startswith("+") for kept in fences)
        if closing:
            fences.pop()
        elif fence and visible and fence[1] != "---":
            fences.append(("+" if BOXES.match(fence[2]) else "") + fence[1])
        lines.append(line if visible and not fence else "")
    return lines


MARKED = re.compile(r"\$\$.*?\$\$|\$[^$]+\$|\{[\w:-]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)", re.DOTALL)
# "95 %" is the level of every interval in the book and "Section 5.1" a place in the paper: no measurements
KEPT = re.compile(r"95\s*%|Sections? \d\.\d")
COUNTED = (
    "percent|per cent|times|seconds|minutes|hours|million|billion|scalars|runs|bits|bytes|synchronisations"
)
WORDS = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|"
    "nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred"
)
NUMBER = re.compile(
    rf"±\s*\d|\b\d+\.\d+\b|\b\d[\d,.]*e[+-]?\d+\b|\b\d[\d,]*\s*(?:%|(?:{COUNTED})\b)|\b\d+/\d+\b|\b\d+[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+|"
    rf"\b(?:{WORDS})[\s-]+(?:%|percent\b|per\s+cent\b)",
    re.IGNORECASE,
)


def typed_measurements(text: str, name: str) -> list[str]:
    """A number in prose is glued, or stands in a formula ($…$) because it is a constant, not a measurement."""
    whole = KEPT.sub("", "\n".join(prose(text)))
    kept = MARKED.sub(lambda found: "\n" * found.group().count("\n"), whole)
    return [
        f"{name}, line {kept.count(chr(10), 0, found.start()) + 1}: the number '{found.group()}' is typed into prose; "
        "glue what was measured, and write a constant as a formula, $…$"
        for found in NUMBER.finditer(kept)
    ]


TITLES = re.compile(r"\s*(caption|alt): ")
BY_NUMBER = re.compile(r"\bchapters?\s+\[?\d+", re.IGNORECASE)


def typed_chapters(text: str, name: str) -> list[str]:
    """A chapter in prose, in a caption or in an alternative text is named: its number is that of the contents."""
    shown = [
        line if line or not TITLES.match(raw) else raw
        for line, raw in zip(prose(text), text.splitlines(), strict=True)
    ]
    whole = "\n".join(shown)
    return [
        f"{name}, line {whole.count(chr(10), 0, found.start()) + 1}: '{found.group()}' is typed; "
        "numbers move with the table of contents, so name the chapter, and link to it"
        for found in BY_NUMBER.finditer(whole)
    ]
