"""The cells of a laboratory's table, of a file or a frame, as texts below one header.

A file has semicolons, tabs, bars, commas or blanks between its columns, or is one of Excel. What stands above the
header, a second header and decimal commas are dealt with here; `fedgo.beyond.study.table` says what the columns mean.
"""

import re
import unicodedata
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from fedgo._checks import extra, require, require_kind
from fedgo.beyond.federation.wire import HUGE

with extra("study"):
    import pandas as pd

FAILED = "failed"
_NO_RESULT = {"", "na", "n/a", "nan", "none", "null", "pending", ".", "•", "-", "–", FAILED}
_COMMA = re.compile(r"[+-]?\d*(,\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)  # a number with a decimal comma
_EXCEL = {".xlsx", ".xlsm", ".xls"}
_THOUSAND = r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}"
# a unit below a header, and a result in words
_UNIT, _WORDS = r"[(\[].*[)\]]|\W*|.*[%°].*", r"[<>≤≥~≈±].*|n\.?[da]\.?|traces?|r\.?t\.?"
_LONG, _LONGEST_NAME = 60, 200  # the most characters of a cell in an error, and of a name


def composed(received: Any) -> Any:
    """Return the text ``received`` in one line, with single blanks between its words and composed accents (NFC).

    Anything that is not a ``str`` is returned as it is.
    """
    return " ".join(unicodedata.normalize("NFC", received).split()) if isinstance(received, str) else received


def floats(cells: Any) -> Any:
    """Return the numbers in a column of texts, and NaN where there is none within ±1e100.

    A number has ASCII digits and a decimal point. The limit keeps the square of every number finite.
    """
    values = pd.to_numeric(cells, errors="coerce").astype(float)
    return values.where(values.abs() <= HUGE)


def missing(cells: Any) -> Any:
    """Return which texts of a column say that there is no number, because it is missing or the experiment failed."""
    return cells.str.lower().isin(_NO_RESULT)


def short(received: Any) -> Any:
    """Return a text in at most 60 characters, and anything else as it is."""
    return received[: _LONG - 4] + " ..." if isinstance(received, str) and len(received) > _LONG else received


def may_name(text: str) -> bool:
    """Return whether a text is short enough for a name, and does not look like an option of a command."""
    return len(text) <= _LONGEST_NAME and not text.startswith("--")


def checked_names(what: str, received: Any) -> tuple[str, ...]:
    """Return the names ``received`` of each ``what`` (an option, a site) in one line, each of which must be unique."""
    remedy = f"give a list of names: {what}s=['north', 'south']"
    require_kind(isinstance(received, list | tuple), f"{what}s", received, remedy)
    names = tuple(map(composed, received))
    remedy = f"give a text of up to {_LONGEST_NAME} printable characters that does not begin with --"
    for place, name in enumerate(names, 1):
        fits = isinstance(name, str) and name != "" and name.isprintable() and may_name(name)
        require(fits, f"the name of {what} {place}", short(name), remedy)
    twice = [name for name, times in Counter(names).items() if times > 1]
    require(not twice, f"the name that two {what}s have", twice[:1], "give each its own name")
    return names


def cells_of(source: Any) -> tuple[pd.DataFrame, list[str]]:
    """Return the cells of a table as a frame of texts, and in lines what was done to read them.

    Args:
        source: The path of a file with semicolons, tabs, bars, commas or blanks, or of Excel; or a pandas frame.

    Raises:
        TypeError: ``source`` is neither a path nor a frame.
        ValueError: The file cannot be read as a table, or two columns have the same header.
    """
    said: list[str] = []
    if isinstance(source, str | Path):
        cells = _file(Path(source), said)
    else:
        remedy = "give a table's path, or a pandas frame"
        require_kind(isinstance(source, pd.DataFrame), "options", source, remedy)
        frame = source if isinstance(source.index, pd.RangeIndex) else source.reset_index()
        cells = pd.concat([frame.columns.to_frame().T, frame.astype(object)])
    cells = cells.astype(object).where(cells.notna(), "").map(lambda cell: composed(str(cell)))
    full = cells.ne("").to_numpy()
    cells = cells.loc[full.any(axis=1), full.any(axis=0)].reset_index(drop=True)
    filled = cells.ne("").sum(axis=1)
    titles = int((filled.eq(1) & cells.iloc[:, :1].ne("").any(axis=1)).cummin().sum())
    if cells.shape[1] > 2 and 0 < titles < len(cells) - 1 and filled[titles] == cells.shape[1]:
        said += [f"left out: a title, {short(cell)!r}" for cell in cells.iloc[:titles, 0]]
        cells = cells.iloc[titles:].reset_index(drop=True)
    if len(cells) > 2 and cells.iloc[0].eq("").sum() > 1 and _may_head(cells.iloc[1:]):
        said.append(f"left out: a line above the header, {short(', '.join(filter(None, cells.iloc[0])))}")
        cells = cells.iloc[1:].reset_index(drop=True)
    numbers = cells.apply(floats).notna()
    may_be = numbers | cells.apply(missing)
    header = list(cells.iloc[0]) if len(cells) else []
    columns, without_gaps = may_be.iloc[1:].all() & numbers.iloc[1:].any(), numbers.iloc[1:].all()
    counted = header == list(map(str, range(len(header))))  # pandas writes these for columns without names
    counted = counted and (len(header) > 2 or isinstance(source, pd.DataFrame))
    numbered = without_gaps.any() and numbers.iloc[0][without_gaps].all() and may_be.iloc[0][columns].all()
    if numbered and not counted:
        said.append("there is no header: the columns are called 'column 1', 'column 2', ...")
        header = [""] * cells.shape[1]
    else:
        cells, numbers, may_be = cells.iloc[1:], numbers.iloc[1:], may_be.iloc[1:]
    require(len(cells) > 0, "the table", header, "give a header, and a row for each option below it")
    if _is_header(cells, numbers, may_be):
        said.append(f"left out: a second header, {short(', '.join(cells.iloc[0]))}")
        cells = cells.iloc[1:]
    blank = "unnamed" if any(header) else "column"
    names = checked_names("column", [name or f"{blank} {place}" for place, name in enumerate(header, 1)])
    return cells.set_axis(list(names), axis=1).reset_index(drop=True), said


def _may_head(cells: pd.DataFrame) -> bool:
    """Return whether the first row has another text in each cell, none of them a number or again below it."""
    row, again = cells.iloc[0], (cells.iloc[1:] == cells.iloc[0]).any(axis=None)
    return bool(row.ne("").all() and row.is_unique and floats(row).isna().all() and not again)


def _is_header(cells: pd.DataFrame, numbers: pd.DataFrame, may_be: pd.DataFrame) -> bool:
    """Return whether the first row is a second header, of units for instance: texts above numbers, but no results."""
    # ``numbers`` says which cells are numbers, and ``may_be`` also which have a word for no result
    columns, top = may_be.iloc[1:].all() & numbers.iloc[1:].any() & (len(cells) > 2), cells.iloc[0]
    texts = columns & ~may_be.iloc[0]
    repeated = (cells.iloc[1:] == top).loc[:, ~columns & ~top.isin(["", "-", "–"])].any(axis=None)
    units = texts.sum() > 1 or (texts.any() and top[~texts].str.fullmatch(_UNIT).all())
    results = numbers.iloc[0][columns].any() or top[texts].str.fullmatch(_WORDS, case=False).any()
    return bool(units and not repeated and not results)


def _file(path: Path, said: list[str]) -> pd.DataFrame:
    """Return the cells in the file at ``path``, its header in the first row; ``said`` gets what was left out."""
    require(path.is_file() or not path.exists(), "the table", str(path), "give the path of a file")
    how: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False}
    try:
        if path.suffix.lower() in _EXCEL:
            with pd.ExcelFile(path) as book:
                first, *others = map(str, book.sheet_names)
                if others:
                    remedy = f"move another to the front: {short(', '.join(others))}"
                    warnings.warn(f"of {path.name} only the sheet {first!r} is read; {remedy}", stacklevel=5)
                return book.parse(first, **how)
        received = path.read_bytes()
        encoding = "utf-16" if received.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
        try:
            received.decode(encoding)
        except UnicodeDecodeError:
            if encoding == "utf-16":
                raise
            encoding = "cp1252"
            said.append("it is not in UTF-8: read as Windows-1252, which Excel writes as plain CSV")
        with open(path, encoding=encoding) as file:
            above = len(list(takewhile(lambda line: line.startswith(("# ", "sep=")), file)))
            file.seek(0)
            top = "".join(islice(file, above, above + 6))
        require(not re.match(r'\s*(\[\s*)?\{\s*"', top), "the table", short(top.strip()), "give JSON as CSV")
        said += [f"left out: {above} lines of comments above the table"] * (above > 0)
        return pd.read_csv(path, sep=_separator(top), encoding=encoding, skiprows=above, **how)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except UnicodeError as error:
        reason = f"it is in no encoding that is known ({error}): save it as 'CSV UTF-8'"
    except pd.errors.ParserError as error:
        reason = re.sub(r".*C error: (Expected \d+ fields)?", r"\1", str(error).strip())
        reason += (
            "; delete lines above the header; separate by semicolons, or write decimal points; close quotes"
        )
    raise ValueError(f"{str(path)!r} cannot be read as a table: {reason[:300]}")


def _separator(top: str) -> str:
    """Return what separates the columns of a file with the first lines ``top``: what each line has, or most of all."""
    lines = [line for line in re.sub('"[^"]*"', "", top).splitlines() if line.strip()]
    for separator in (";", "\t", *sorted(",|", key="".join(lines[:1]).count, reverse=True)):
        if len({line.count(separator) for line in lines} | {0}) == 2 and separator in lines[0]:
            return separator
    words = [line.split() for line in lines]
    cells = pd.Series([cell for line in words[1:] for cell in line[1:]], dtype=object)
    widths = {len(line) for line in words}
    if len(widths) == 1 and min(widths) > 2 and floats(cells).notna().all():
        return r"\s+"
    return max(",;\t|", key="".join(lines[:1]).count)


def points(cells: pd.DataFrame, only_decimal: bool) -> pd.DataFrame:
    """Return the columns with decimal points for commas; unless points are ``only_decimal``, refuse thousands.

    Cells without a digit say nothing about commas, and stay. If no column has decimal commas, a point is taken to stand
    before a thousand where the cell would otherwise be far below the others.
    """
    numbers = {h: column[column.str.contains(r"\d") & ~missing(column)] for h, column in cells.items()}
    with_comma = [
        header
        for header, column in numbers.items()
        if column.str.contains(",").any() and column.str.fullmatch(_COMMA).all()
    ]
    suspects = {header: _thousands(numbers[header], ",") for header in with_comma}
    remedy = "is this a decimal comma? Write a decimal point, or no comma; if it is a text, give --category"
    if not with_comma or any(suspect.empty for suspect in suspects.values()):
        suspects = {} if only_decimal else {h: _thousands(column, ".") for h, column in numbers.items()}
        remedy = "other columns have decimal commas: leave out a point before a thousand, or write a comma"
    if not with_comma:
        suspects = {h: each for h, each in suspects.items() if _far_below(each, numbers[h].drop(each.index))}
        remedy = "is this a thousand? Leave out the point; if it is a decimal point, write one more zero"
    for header, suspect in suspects.items():
        for row, cell in suspect.items():
            require(False, f"column {header!r} in row {row + 1}", cell, remedy)
    pointed = {header: numbers[header].str.replace(",", ".") for header in with_comma}
    return cells.assign(**{header: column.combine_first(cells[header]) for header, column in pointed.items()})


def _thousands(column: pd.Series, mark: str) -> pd.Series:
    """Return the cells that have the ``mark``, if all of these may have it before a thousand, and otherwise none."""
    marked = column[column.str.contains(mark, regex=False)]
    return marked if marked.str.fullmatch(_THOUSAND).all() else marked.head(0)


def _far_below(cells: pd.Series, others: pd.Series) -> bool:
    """Return whether ``others`` are whole numbers of at least 100, and more than ten times the largest of ``cells``."""
    whole = others.str.fullmatch("[0-9]{3,}").all()
    return bool(whole and 10 * floats(cells).max() < floats(others).min())
