"""The reader of a laboratory's table: what each column is taken for, the options in it, and the results in it.

An option is one of the K choices among which a study looks for the best. Each column of the table has a role. Columns
with the role "number" or "category" are features, which the model uses. The roles "name" and "result" say what else a
column holds. Any other role is the reason why the column is left out, in words.
"""

import itertools
import math
import re
import unicodedata
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedgo._checks import extra, on_cpu, require, require_kind
from fedgo.beyond.federation.wire import HUGE

with extra("study"):
    import pandas as pd

NUMBER, CATEGORY, NAME, RESULT = "number", "category", "name", "result"
OTHER = "it looks like another result"
FAILED = "failed"
COUNTS = "it numbers the rows; if it is a setting, give --number"
_ALWAYS = "it is always "
_PENDING = {"", "na", "n/a", "nan", "none", "null", "pending", ".", "•", "-", "–"}
_NO_RESULT = {*_PENDING, FAILED}
_COMMA = re.compile(r"[+-]?\d*(,\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)  # a number with a decimal comma
_EXCEL = {".xlsx", ".xlsm", ".xls"}
_THOUSAND = r"[+-]?[1-9][0-9]{0,2},[0-9]{3}"
_RESULTS = re.compile(
    r"(?<![a-z])(yield|ee|result|reward|strength|score|response|objective|target|conversion|selectivity|measured"
    r"|(rep|replicate)[ _]?(?=\d))s?(?![a-z])",
    re.IGNORECASE,
)
# the words in the header of a column that numbers the rows, one after the other or in any order
_COUNTERS = re.compile(
    "((expt?|experiment|entry|run|row|sample|trial|test|rxn|reaction|versuch) ?)+|((std|standard|run|random) ?)?order"
    "|(?!number of).*(number|num|index)|no"
)
_LABELS = re.compile(r"(?!no of|no$)(.*(\b|run|sample|test)(no|nr|id|idx|name)|.*nummer|.*unnamed)")
# the first cell of a row that sums up the others, and of a footnote
_SUMS = {"total", "sum", "average", "avg", "mean", "median", "summe", "mittelwert"}
_NOTE = r"[*#†‡§].*"
# a unit below a header, a result in words, and what may be a number but is not written as one, with its unit
_UNIT, _WORDS = r"[(\[].*[)\]]|\W*|.*[%°].*", r"[<>≤≥~≈±].*|n\.?[da]\.?|traces?|r\.?t\.?"
_ODD = r"[<>≤≥~≈]?\s*[-−+]?(?:\d+|\d{1,3}(?:[, '’]\d{3})+)(?:[.,]\d+)?\s*(%|°?[A-Za-zµ/%]{1,6}|)"
# what `fedgo export` adds to the owner's columns
_EXPORTED = ("results", "pulls", "mean", "estimate", "low", "high", "certificate", "retired")
_FEW = 10  # in a table with more rows, a column of texts that says the same as the name is left out
_MOST = 10  # an error gives this many rows
_LEVELS = 1000  # a text column with more values than this is no category
_LONG, _NAME = 60, 200  # the most characters of a cell in an error, and of a name


def composed(received: Any) -> Any:
    """Return the text ``received`` in one line, with single blanks between its words and composed accents (NFC).

    Anything that is not a ``str`` is returned as it is.
    """
    return " ".join(unicodedata.normalize("NFC", received).split()) if isinstance(received, str) else received


def floats(cells: Any) -> Any:
    """Return the numbers in a column of texts, and NaN where there is none within ±1e100.

    A number has ASCII digits and a decimal point. The limit keeps the square of every number finite.
    """
    values = pd.to_numeric(cells, errors="coerce")
    return values.where(values.abs() <= HUGE)


def _lacks_result(cells: Any) -> Any:
    """Return which texts of a column say that there is no number, because it is missing or the experiment failed."""
    return cells.str.lower().isin(_NO_RESULT)


def short(received: Any) -> Any:
    """Return a text in at most 60 characters, and anything else as it is."""
    return received[: _LONG - 4] + " ..." if isinstance(received, str) and len(received) > _LONG else received


def checked_names(what: str, received: Any) -> tuple[str, ...]:
    """Return the names ``received`` of each ``what`` (an option, a site) in one line, each of which must be unique."""
    remedy = f"give a list of names: {what}s=['north', 'south']"
    require_kind(isinstance(received, list | tuple), f"{what}s", received, remedy)
    names = tuple(map(composed, received))
    remedy = f"give a text of up to {_NAME} printable characters that does not begin with --"
    for place, name in enumerate(names, 1):
        fits = isinstance(name, str) and name.isprintable() and 0 < len(name) <= _NAME
        require(fits and not name.startswith("--"), f"the name of {what} {place}", short(name), remedy)
    twice = [name for name, times in Counter(names).items() if times > 1]
    require(not twice, f"the name that two {what}s have", twice[:1], "give each its own name")
    return names


@dataclass(frozen=True)
class Options:
    """The K options of a study, each with a row of cells in its owner's words.

    Args:
        names: The names of the K options, each once.
        columns: The headers of the columns, each once.
        rows: For each option its cells, a text or a number for each column.
        roles: What each column is taken for, as the head of this file says; by default all are numbers.

    Raises:
        TypeError: The names, the columns or the roles are not a list or a tuple.
        ValueError: A name is not allowed or occurs twice, or a row does not fit the columns and their roles.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names, columns = checked_names("option", self.names), checked_names("column", self.columns)
        roles = tuple(self.roles) or (NUMBER,) * len(columns)
        fits = len(roles) == len(columns) and all(isinstance(role, str) for role in roles)
        require(fits, "the list of roles", roles, "give a text for each column")
        for name, row in zip(names, self.rows, strict=True):
            fits = isinstance(row, list | tuple) and len(row) == len(columns)
            if not (fits and all(isinstance(cell, str | float | int) for cell in row)):
                remedy = f"give a text or a number for each of {len(columns)} columns"
                require(False, f"the row of {name!r}", short(str(row)), remedy)
        rows = tuple(tuple(map(str, row)) for row in self.rows)
        vars(self).update(names=names, columns=columns, rows=rows, roles=roles)

    @classmethod
    def of(cls, source: Any, **given: Any) -> "Options":
        """Return the options in a table (`read`)."""
        return read(source, **given).options

    @property
    def role_of(self) -> dict[str, str]:
        """What each column is taken for, by its header."""
        return dict(zip(self.columns, self.roles, strict=True))

    def having(self, *roles: str) -> list[str]:
        """Return the headers of the columns whose role is one of ``roles``."""
        return _having(self.role_of, *roles)

    @property
    def result(self) -> str:
        """The header of the column with the results, or "result" if the table has none."""
        return next(iter(self.having(RESULT)), "result")

    @property
    def label(self) -> str:
        """The header of the column with the options' names in a plate, "option" unless the table has such a column."""
        return next(iter(self.having(NAME)), "option" + " of the study" * ("option" in self.columns))

    @property
    def frame(self) -> pd.DataFrame:
        """The cells as a frame with the names of the options as its index."""
        return pd.DataFrame(self.rows, index=list(self.names), columns=list(self.columns))

    def plate(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the rows of the options with these ``names``, with an empty column for results."""
        frame = self.frame.loc[list(names)]
        if self.label not in frame:
            frame.insert(0, self.label, list(names))
        return frame.assign(**dict.fromkeys([self.result, *self.having(OTHER)], "")).reset_index(drop=True)

    def words(self, names: Sequence[str]) -> list[str]:
        """Return for each of the ``names`` the features of this option, as its owner wrote them, in one short line."""
        rows = self.frame.loc[list(names), self.having(NUMBER, CATEGORY)].to_dict("records")
        lines = [", ".join(f"{header} {cell}" for header, cell in row.items()) for row in rows]
        return [shorten(line, 160, placeholder=" ...") for line in lines]

    @on_cpu
    def encoded(self, first: int) -> tuple[Tensor, tuple[int, ...]]:
        """Return the features as a model receives them, and which of them belong to one column.

        A number v becomes (v − low)/(high − low). A category becomes one feature for each of its values, 1/√2 if the
        option has this value and 0 if not, so that two options with different values have the distance 1.

        Args:
            first: The number of options, counted from the first row, in which low and high are the smallest and the
                largest number of a column. Columns in which these options do not differ are left out.

        Returns:
            The features of the K options, (K, d_x) float64, and a number for each of them, which is the same for the
            features of one column.
        """
        parts, groups = [torch.zeros(len(self.rows), 0, dtype=torch.float64)], tuple[int, ...]()
        for header, cells in self.frame[self.having(NUMBER, CATEGORY)].items():
            if header in self.having(NUMBER):
                odd = cells[floats(cells).isna()]
                remedy = f"give a number within ±{HUGE:g}, with a decimal point"
                require(odd.empty, f"{header!r} of {odd.index[:1].tolist()}", odd.head(1).tolist(), remedy)
                values = torch.tensor(list(map(float, cells)), dtype=torch.float64).unsqueeze(1)
                low, high = values[:first].aminmax()
                part = (values - low) / (high - low)
            else:
                part = one_hot(torch.tensor(pd.factorize(cells)[0])).double() / math.sqrt(2)
            if (part[:first] != part[0]).any() and part.isfinite().all():
                parts.append(part)
                groups += (max(groups, default=-1) + 1,) * part.shape[1]
        return torch.cat(parts, 1), groups

    def scaled(self, first: int) -> Tensor:
        """Return the features of the K options as a model receives them, (K, d_x) float64 (`encoded`)."""
        return self.encoded(first)[0]


class Table(NamedTuple):
    """What a table holds.

    Args:
        options: Its options; with ``known`` options these come first.
        results: For each row with a result its number, from 1, the option, and the result or "failed".
        report: What was read and what was left out, in lines.
    """

    options: Options
    results: tuple[tuple[int, str, float | str], ...] = ()
    report: tuple[str, ...] = ()


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
    filled = cells.iloc[:2].ne("").sum(axis=1).tolist()
    if len(cells) > 2 and cells.shape[1] > 2 and cells.iloc[0, 0] and filled == [1, cells.shape[1]]:
        said.append(f"left out: a title, {short(cells.iloc[0, 0])!r}")
        cells = cells.iloc[1:].reset_index(drop=True)
    numbers = cells.apply(floats).notna()
    may_be = numbers | cells.apply(_lacks_result)
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
            sheets = pd.read_excel(path, sheet_name=None, **how)
            title, cells = next(iter(sheets.items()))
            said += [f"read: the first of {len(sheets)} sheets, {title!r}"] * (len(sheets) > 1)
            return cells
        with open(path, "rb") as file:
            encoding = "utf-16" if file.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"
        with open(path, encoding=encoding) as file:
            above = list(itertools.takewhile(lambda line: line.startswith(("# ", "sep=")), file))
            file.seek(0)
            top = "".join(itertools.islice(file, len(above), len(above) + 6))
        require(not re.match(r'\s*(\[\s*)?\{\s*"', top), "the table", short(top.strip()), "give JSON as CSV")
        said += [f"left out: {len(above)} lines of comments above the table"] * bool(above)
        return pd.read_csv(path, sep=_separator(top), encoding=encoding, skiprows=len(above), **how)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except UnicodeError as error:
        reason = f"it is not in UTF-8 ({error}): save it as 'CSV UTF-8'"
    except pd.errors.ParserError as error:
        reason = re.sub(r".*C error: (Expected \d+ fields)?", r"\1", str(error).strip())
        reason += (
            "; delete lines above the header; separate by semicolons if it has decimal commas, or write decimal "
            "points; close each quote"
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


def _points(cells: pd.DataFrame, only_decimal: bool) -> pd.DataFrame:
    """Return the columns with decimal points for commas; unless points are ``only_decimal``, refuse thousands."""
    numbers = {header: column[~_lacks_result(column)] for header, column in cells.items()}
    with_comma = {
        header: column[column.str.contains(",")]
        for header, column in numbers.items()
        if column.str.contains(",").any() and column.str.fullmatch(_COMMA).all()
    }
    unclear = [header for header, column in with_comma.items() if column.str.fullmatch(_THOUSAND).all()]
    if unclear and len(unclear) == len(with_comma):
        first = with_comma[unclear[0]]
        remedy = "is this a decimal comma? Write a decimal point, or no comma"
        require(False, f"column {unclear[0]!r} in row {first.index[0] + 1}", first.iloc[0], remedy)
    for header, column in numbers.items() if with_comma and not only_decimal else ():
        points = column[column.str.contains(".", regex=False)]
        if len(points) and points.str.replace(".", ",").str.fullmatch(_THOUSAND).all():
            one = points.iloc[0]
            remedy = (
                f"other columns have decimal commas: write {one.replace('.', '')} or {one.replace('.', ',')}"
            )
            require(False, f"column {header!r} in row {points.index[0] + 1}", one, remedy)
    return cells.assign(**{header: cells[header].str.replace(",", ".") for header in with_comma})


def read(
    source: Any,
    *,
    name: str | None = None,
    result: str | None = None,
    ignore: Iterable[str] = (),
    category: Iterable[str] = (),
    number: Iterable[str] = (),
    known: Options | None = None,
) -> Table:
    """Return what a laboratory's table holds.

    Args:
        source: The path of a file with semicolons, tabs, bars, commas or blanks, or of Excel; or a pandas frame.
        name: The column with the names of the options. Without it, a first column that numbers the rows has them, or a
            column of texts without repetitions; otherwise the names are made of the features, or they are ``row 1``,
            ``row 2``, …
        result: The column with the results of experiments that were made.
        ignore: Columns to leave out.
        category: Columns whose numbers are names of categories.
        number: Columns to use as features although their headers look like those of results or of numbers of rows.
        known: The options of a study. Its columns keep their roles, and the table may have further options.

    Returns:
        The table. Rows with equal features are one option, unless their names differ.

    Raises:
        TypeError: ``source`` is neither a path nor a frame.
        ValueError: A column or a cell cannot be understood; the message names it, all such rows, and the remedy.
    """
    cells, said = cells_of(source)
    exported, given = {"results", "pulls", "estimate"} <= set(cells), dict[str, str]()
    if exported and known is None:
        name, result = name or cells.columns[0], result or "results"
        given = {header: "fedgo export computed it" for header in _EXPORTED if header in cells}
    elif "priority" in cells and cells.eq("PENDING").any(axis=None):
        given["priority"] = "EDBO+ computed it"
    given |= {header: role for header, role in ((name, NAME), (result, RESULT)) if header is not None}
    for role, headers in (("ignored", ignore), (CATEGORY, category), (NUMBER, number)):
        given |= dict.fromkeys(headers, role)
    for header in given:
        near = [each for each in cells if header.lower() in each.lower()]
        near = near[:3] or get_close_matches(header, cells.columns, 2) or list(cells.columns)[:3]
        none = " If there are no results yet, give none; plates have a column for them" * (header == result)
        require(header in cells, "the column", header, f"did you mean {_either(near)}?{none}")
    asked = given | (known.role_of if known else {})
    read_as = [header for header in cells if asked.get(header) not in ("ignored", CATEGORY, NAME)]
    cells = cells.assign(**_points(cells[read_as], bool(known) or NUMBER in given.values()))
    size, before, wrong = len(cells), list[str](), dict[int, str]()
    if known is None:
        refuse([] if cells.columns[0] in given else _no_options(cells))
        roles = _roles(cells, given)
    else:
        before = list(known.names)
        given |= {known.label: NAME, known.result: RESULT}
        roles = known.role_of | {
            header: given[header] for header in cells if given.get(header) in (NAME, RESULT)
        }
        cells = _below(known, cells, roles, wrong)
    features = _features(cells, roles)
    for header in features:
        odd = cells[header][features[header].isna()]
        wrong |= {row: f"{header!r} is {short(cell)!r}: give a number" for row, cell in odd.items()}
    blank = pd.Series("", cells.index)
    called = next((cells[header] for header in _having(roles, NAME)), blank)
    called = pd.Series([*before, *called[len(before) :]], cells.index, dtype=object)
    # rows with equal features have equal numbers, and without features those with equal names
    same = pd.Series(pd.factorize(called.where(called != "", cells.index.to_series()))[0], cells.index)
    if features.size:
        same = features.groupby(list(features), sort=False, dropna=False).ngroup()
    made = called.where(called != "", _made_names(cells, roles, same.nunique(), called))
    option = called.where(called != "", made.groupby(same).transform("first"))
    first = cells.index.to_series().groupby(option).transform("first")
    for row in cells.index[same != first.map(same)]:
        where = "the study" if before else f"row {first[row] + 1}"
        wrong[row] = f"{option[row]!r} has other features in {where}"
        if len(wrong) <= _MOST:
            header = features.loc[row].ne(features.loc[first[row]]).idxmax()
            wrong[row] += f": there {header!r} is {short(cells[header][first[row]])!r}"
    results = next((cells[header].copy() for header in _having(roles, RESULT)), blank)
    told = list[tuple[int, str, float | str]]()
    if exported:  # a cell has all results of its option; one that is retired has failed
        gone = cells.get("retired", blank).eq("True")
        results = results.where(~gone, results + f" {FAILED}").str.split().explode().dropna()
    for (row, cell), value in zip(results.items(), floats(results), strict=True):
        if not math.isnan(value) or cell.lower() == FAILED:
            told.append((row + 1 - len(before), option[row], FAILED if math.isnan(value) else float(value)))
        elif cell.lower() not in _NO_RESULT:
            remedy = f"give a number with a decimal point, {FAILED}, or nothing"
            wrong[row] = f"the result of {option[row]!r} is {short(cell)!r}: {remedy}"
    refuse([f"row {row + 1 - len(before)}: {wrong[row]}" for row in sorted(wrong)])
    columns = list(cells) if known is None else list(known.columns)
    cells[_having(roles, RESULT)] = ""
    rows = cells.loc[option.drop_duplicates().index, columns]
    names, roles_of = tuple(option.unique()), tuple(roles[header] for header in columns)
    options = Options(names, tuple(columns), tuple(rows.itertuples(index=False, name=None)), roles_of)
    if known is None:
        said += _report(cells, roles, options, told)
        alike, named = option.groupby(same).unique(), _having(roles, NAME)
        several = [" and ".join(map(repr, names[:2])) for names in alike if len(names) > 1]
        if several and named:
            words = "have equal features: if they are one option, give --ignore"
            said.append(f"{several[0]} {words} {named[0]!r}")
    else:
        said.append(f"{size} rows: {len(names) - len(before)} new options, {len(names)} in all")
        said += [f"{len(told)} results in it are not read; fedgo tell TABLE enters new ones"] * bool(told)
        lost = [header for header in known.having(OTHER) if (cells[header][len(before) :] != "").any()]
        if lost:
            warnings.warn(
                f"left out: the numbers in {', '.join(lost)}, as they are no features", stacklevel=4
            )
    return Table(options, tuple(told), tuple(said))


def refuse(wrong: Sequence[str]) -> None:
    """Raise a ``ValueError`` with the reasons for which rows are ``wrong``, unless there is none."""
    more = f"; and {len(wrong) - _MOST} rows more" * (len(wrong) > _MOST)
    if wrong:
        raise ValueError(f"nothing is changed: {'; '.join(wrong[:_MOST])}{more}")


def _either(names: Iterable[str]) -> str:
    """Return the ``names`` in quotes, as a shell takes them, with "or" between them."""
    return " or ".join(f"'{name}'" for name in names)


def _no_options(cells: pd.DataFrame) -> list[str]:
    """Return the rows of a table that are no options, footnotes and sums of the other rows, with the reason."""
    first = cells.iloc[:, 0]
    notes = cells.ne("").sum(axis=1).eq(1) & first.str.fullmatch(_NOTE) & (cells.shape[1] > 2)
    words = first.str.lower().str.rstrip(":")
    sums = words.isin(_SUMS)[::-1].cummin() & ~words.duplicated(keep=False)
    return [
        f"row {row + 1}: {short(first[row])!r} {'sums up the others' if sums[row] else 'is a footnote'}: remove it"
        for row in cells.index[notes | sums]
    ]


def _having(roles: Mapping[str, str], *wanted: str) -> list[str]:
    """Return the headers of the columns whose role is one of those ``wanted``."""
    return [header for header, role in roles.items() if role in wanted]


def _below(
    known: Options, cells: pd.DataFrame, roles: Mapping[str, str], wrong: dict[int, str]
) -> pd.DataFrame:
    """Return the cells of a study's ``known`` options and below them those of a table, which may lack columns."""
    more = ", ".join(repr(header) for header in cells if header not in roles)
    if more:
        warnings.warn(f"left out, as the study does not have them: {more}", stacklevel=5)
    before, named = known.frame, next((header for header in _having(roles, NAME) if header in cells), None)
    for header in (header for header in known.columns if header not in cells):
        lacks = named is None and roles[header] in (NUMBER, CATEGORY)
        remedy = f"it lacks {header!r}: give it, or the options' names"
        require(not lacks, "the list of columns", list(cells)[:20], remedy)
        cells[header] = "" if named is None else cells[named].map(before[header]).fillna("")
    for header in (header for header, role in roles.items() if role.startswith(_ALWAYS)):
        always = before[header].iloc[:1]
        fits = cells[header].isin(["", *always]) | floats(cells[header]).isin(floats(always).dropna())
        for row, cell in cells[header][~fits].items():
            wrong[row + len(before)] = f"{header!r} is {short(cell)!r}, and in this study {roles[header]}"
    return pd.concat([before, cells[list(roles)]], ignore_index=True).fillna("")


def _roles(cells: pd.DataFrame, given: Mapping[str, str]) -> dict[str, str]:
    """Return the role of each column of a table with which a study begins."""
    result = next((header for header, role in given.items() if role == RESULT), None)
    without = None if result is None else cells[result].str.lower().isin(_PENDING)
    roles = {header: _kind(cells[header], given.get(header), without) for header in cells}
    free = [header for header in cells if header not in given]
    likely = [h for h in free if roles[h] == RESULT or (roles[h] == NUMBER and _RESULTS.search(h))]
    if likely and result is None:
        likely.sort(key=lambda header: not _RESULTS.search(header))
        rows = _rows(cells.index[cells[likely[0]] == ""])
        otherwise = f"fill in row {rows}, or give --ignore" if rows else "--number or --ignore"
        remedy = f"is it the result? Then give --result {_either(likely[:1])}, otherwise {otherwise}"
        raise ValueError(f"the column is {_either(likely[:4])}: {remedy}")
    roles |= dict.fromkeys(likely, OTHER)
    counts = [h for h in free if roles[h] == NUMBER and _counts(cells, h)]
    roles |= dict.fromkeys(counts, COUNTS)
    numbered = [h for h in counts if h == cells.columns[0]]
    texts = [h for h in free if roles[h] == CATEGORY and cells[h].is_unique]
    names = numbered or [
        h for h in texts if not (cells[h].str.startswith("--") | (cells[h].str.len() > _NAME)).any()
    ]
    if names and NAME not in given.values():
        roles[names[0]] = NAME
    seen = dict[Any, str]()
    # of columns that say the same thing, the one asked for stays, or the name, or the shortest
    for header in sorted(cells, key=lambda h: (h not in given, roles[h] != NAME, cells[h].str.len().sum())):
        role = roles[header]
        text = role == CATEGORY or (role == NAME and header not in counts and len(cells) > _FEW)
        if not (text or role == NUMBER):
            continue
        pattern = (text, *(pd.factorize(cells[header])[0] if text else floats(cells[header])))
        if len(set(pattern[1:])) == 1:
            roles[header] = f"{_ALWAYS}{short(cells[header][0])!r}"
        elif pattern in seen and header in free:
            roles[header] = f"it says the same as {seen[pattern]!r}"
        elif role == CATEGORY and header in free and _is_merged(cells[header]):
            remedy = "fill in the cells below each, or give --category or --ignore"
            require(False, f"the column {header!r} above empty cells", short(cells[header][0]), remedy)
        elif role == CATEGORY and header in free and cells[header].eq("").mean() > 0.5:
            roles[header] = "most of its cells are empty"
        elif role == CATEGORY and cells[header].nunique() > _LEVELS:
            roles[header] = f"it has more than {_LEVELS:,} different texts"
        seen.setdefault(pattern, header)
    # a number of the experiment is no name if an option was tried several times
    if numbered and _features(cells, roles).duplicated().any():
        roles[numbered[0]] = COUNTS
    return roles


def _rows(places: Iterable[int]) -> str:
    """Return the numbers of the rows at ``places``, at most three of them."""
    numbers = [str(place + 1) for place in places]
    return ", ".join(numbers[:3]) + " and others" * (len(numbers) > 3)


def _kind(cells: pd.Series, asked: str | None, without: pd.Series | None) -> str:
    """Return ``asked``, or what a column is taken for: "number", "category" or "result"."""
    if asked not in (None, NUMBER):
        return str(asked)
    odd = cells[floats(cells).isna()]
    full = odd[odd != ""]
    units = full.str.extract(_ODD + "$", expand=False)
    is_odd = full.str.fullmatch(_ODD).all() and 1 == units.nunique() < full.nunique()
    if asked is None and len(odd) == len(cells) and is_odd:
        remedy = "is it a number? Write digits and a decimal point only; otherwise give --category or --name"
        require(False, f"the column {cells.name!r} in row {full.index[0] + 1}", full.iloc[0], remedy)
    if odd.empty or (asked is None and len(odd) == len(cells)):
        return NUMBER if odd.empty else CATEGORY
    texts = set(odd.str.lower())
    # another result lacks a number in all rows ``without`` a result, if these are known; a setting may lack it anywhere
    fits = without is None or (without.any() and _lacks_result(cells[without]).all())
    if asked is None and texts <= _NO_RESULT and fits:
        return RESULT
    rows = _rows(odd.index)
    way = "give it by --ignore" if texts == {""} else "give it by --name, --category, --ignore or --result"
    remedy = f"other rows have numbers: mend these, or {way}"
    raise ValueError(f"the column {cells.name!r} in row {rows} is {short(odd.iloc[0])!r}: {remedy}")


def _is_merged(cells: pd.Series) -> bool:
    """Return whether each text occurs once, and the same number of empty cells follows each, as after a merge."""
    at = cells.index[cells != ""]
    regular = len(at) > 1 and list(at) == list(range(0, len(cells), at[1]))
    return regular and len(cells) % at[1] == 0 < at[1] - 1 and cells[at].is_unique


def _counts(cells: pd.DataFrame, header: str) -> bool:
    """Return whether a column numbers the rows, by its header, or as the first one that counts from 0 or 1."""
    numbers, words = floats(cells[header]), " ".join(re.findall(r"[^\W\d_]+", header.lower()))
    if not cells[header].str.isdecimal().all() or not numbers.is_unique:
        return False
    rising = numbers.diff()[1:].gt(0).all() or numbers.max() - numbers.min() < len(cells)
    if words in ("", "column") and "#" not in header:  # a header that says nothing
        in_order = list(numbers) in (list(range(len(cells))), list(range(1, len(cells) + 1)))
        return in_order and header == cells.columns[0] and cells.shape[1] > 1
    is_label = _LABELS.fullmatch(words) or "#" in header
    return bool(is_label or (rising and _COUNTERS.fullmatch(words)))


def _features(cells: pd.DataFrame, roles: Mapping[str, str]) -> pd.DataFrame:
    """Return the columns that are features: categories, and numbers, NaN where there is none."""
    features, number = cells[_having(roles, NUMBER, CATEGORY)], _having(roles, NUMBER)
    return features.apply(lambda column: floats(column) if column.name in number else column)


def _made_names(cells: pd.DataFrame, roles: Mapping[str, str], options: int, taken: pd.Series) -> pd.Series:
    """Return a name for each row: its features as far as they tell options apart, if that is short, or ``row 3``."""
    names = pd.Series("", cells.index)
    for header in (*_having(roles, CATEGORY), *_having(roles, NUMBER)):
        longer = names.str.cat(cells[header].str[:20].str.strip(), ", ")
        names = longer if longer.nunique() > names.nunique() else names
    names = names.str.removeprefix(", ")
    fits = names.str.len().between(1, _LONG) & ~names.isin(taken) & ~names.str.startswith("--")
    if names.nunique() == options and (fits & names.map(str.isprintable)).all():
        return names
    return ("added " * bool((taken != "").any()) + "row ") + (cells.index.to_series() + 1).astype(str)


def _report(
    cells: pd.DataFrame, roles: Mapping[str, str], options: Options, told: Sequence[Any]
) -> list[str]:
    """Return what was read and what was left out, in lines."""
    lines, failed = [], sum(value == FAILED for *_, value in told)
    for header, role in roles.items():
        what = "name of the option" if role == NAME else f"left out: {role}"
        if role == NUMBER:
            numbers = floats(cells[header])
            what = f"number, {numbers.min():g} to {numbers.max():g}"
        elif role == CATEGORY:
            values = cells[header].unique()
            what = f"category, {len(values)} values: {short(', '.join(value[:20] or '(empty)' for value in values))}"
        elif role == RESULT:
            without = len(cells) - len({row for row, *_ in told})
            what = f"result: {len(told) - failed} numbers, {failed} failed, {without} without"
        lines.append(f"  {header}: {what}")
    again = sum(times > 1 for times in Counter(option for _, option, _ in told).values())
    features = len(_having(roles, NUMBER, CATEGORY))
    words = f"{len(cells)} rows: {len(options.names)} options, {features} features, {len(told)} results"
    if not features:
        lines.append(
            "no column tells options apart, so that only --method ucb1 or a model of your own can play"
        )
    if RESULT not in roles.values():
        lines.append("no column is taken for results; if one holds them, give it by --result")
    return [f"{words}, {again} options with several", *lines]
