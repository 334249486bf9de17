"""The reader of a laboratory's table: what each column is taken for, the options in it, and the results in it.

An option is one of the K choices among which a study looks for the best. Each column of the table has a role. Columns
with the role "number" or "category" are features, which the model uses. The roles "name" and "result" say what else a
column holds. Any other role is the reason why the column is left out, in words.
"""

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import extra, on_cpu, require, require_kind
from fedgo.beyond.federation.wire import HUGE

with extra("study"):
    import pandas as pd

NUMBER, CATEGORY, NAME, RESULT = "number", "category", "name", "result"
OTHER = "it looks like another result"
FAILED = "failed"
_PENDING = {"", "na", "n/a", "nan", "none", "null", "pending"}
_NO_RESULT = {*_PENDING, FAILED}
_COMMA = re.compile(r"[+-]?\d*(,\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)  # a number with a decimal comma
_THOUSAND = r"[+-]?[1-9][0-9]{0,2},[0-9]{3}"
_RESULTS = re.compile(
    r"(?<![a-z])(yield|ee|result|reward|score|response|objective|target|conversion|selectivity|measured)s?(?![a-z])",
    re.IGNORECASE,
)
_COUNTERS = re.compile(
    r"(?<![a-z])(no|nr|num|number|id|index|idx|entry|run|row|sample|exp|experiment|trial|unnamed)(?![a-z])|#",
    re.I,
)
_FEW = 10  # in a table with more rows, a column of texts that says the same as the name is left out
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


def checked_names(what: str, received: Any) -> tuple[str, ...]:
    """Return the names ``received`` of each ``what`` (an option, a site) in one line, each of which must be unique."""
    remedy = f"give a list of names: {what}s=['north', 'south']"
    require_kind(isinstance(received, list | tuple), f"{what}s", received, remedy)
    names = tuple(map(composed, received))
    # a table may be long, so the words of an error are made only if there is one
    for place, name in enumerate(names, 1):
        fits = isinstance(name, str) and name.isprintable() and 0 < len(name) <= _NAME
        if not (fits and not name.startswith("--")):
            remedy = f"give a text of up to {_NAME} printable characters that does not begin with --"
            require(
                False, f"the name of {what} {place}", name[:_LONG] if isinstance(name, str) else name, remedy
            )
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
                require(False, f"the row of {name!r}", str(row)[:_LONG], remedy)
        rows = tuple(tuple(map(str, row)) for row in self.rows)
        for j in (j for j, role in enumerate(roles) if role == NUMBER):
            cells = pd.Series([row[j] for row in rows], names, dtype=object)
            wrong = cells[floats(cells).isna()]
            remedy = f"give a number within ±{HUGE:g}, with a decimal point"
            for name, cell in wrong.head(1).items():
                require(False, f"{columns[j]!r} of {name!r}", _short(cell), remedy)
        vars(self).update(names=names, columns=columns, rows=rows, roles=roles)

    @classmethod
    def of(cls, source: Any, **given: Any) -> "Options":
        """Return the options in a table (`read`)."""
        return read(source, **given).options

    @property
    def features(self) -> list[int]:
        """The places of the columns that the model uses."""
        return [place for place, role in enumerate(self.roles) if role in (NUMBER, CATEGORY)]

    def words(self, name: str) -> str:
        """Return the features of the option ``name`` in one line of at most 160 characters, as its owner wrote them."""
        row = self.rows[self.names.index(name)]
        return shorten(
            ", ".join(f"{self.columns[j]} {row[j]}" for j in self.features), 160, placeholder=" ..."
        )

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
        for j in self.features:
            cells = [row[j] for row in self.rows]
            if self.roles[j] == NUMBER:
                values = torch.tensor(list(map(float, cells)), dtype=torch.float64)
                low, high = values[:first].aminmax()
                part = ((values - low) / (high - low)).unsqueeze(1)
                varies = bool(high > low)
            else:
                number = {level: place for place, level in enumerate(dict.fromkeys(cells))}
                places = torch.tensor([number[cell] for cell in cells])
                part = torch.nn.functional.one_hot(places, len(number)).double() / math.sqrt(2)
                varies = len(set(cells[:first])) > 1
            if varies:
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
        source: The path of a file with commas, semicolons, tabs or bars, or of an Excel file; or a pandas frame.

    Raises:
        TypeError: ``source`` is neither a path nor a frame.
        ValueError: The file cannot be read as a table, or two columns have the same header.
    """
    said: list[str] = []
    if isinstance(source, str | Path):
        cells = _file(Path(source), said)
    else:
        require_kind(
            isinstance(source, pd.DataFrame), "options", source, "give a table's path, or a pandas frame"
        )
        frame = source if isinstance(source.index, pd.RangeIndex) else source.reset_index()
        cells = pd.concat([frame.columns.to_frame().T, frame.astype(object)])
    cells = cells.astype(object).where(cells.notna(), "").map(lambda cell: composed(str(cell)))
    cells = cells.loc[cells.ne("").any(axis=1).to_numpy(), cells.ne("").any().to_numpy()].reset_index(
        drop=True
    )
    numbers = cells.apply(floats).notna()
    if len(cells) and (numbers.iloc[0] & numbers.all()).any():
        said.append("there is no header: the columns are called 'column 1', 'column 2', ...")
        header = [""] * cells.shape[1]
    else:
        header, cells, numbers = list(cells.iloc[0]) if len(cells) else [], cells.iloc[1:], numbers.iloc[1:]
    require(len(cells) > 0, "the table", header, "give a header, and a row for each option below it")
    columns = numbers.iloc[1:].all() & (len(cells) > 2)
    if columns.any() and not (numbers.iloc[0] | cells.iloc[0].str.lower().isin(_NO_RESULT))[columns].any():
        said.append(f"left out: a second header, {_short(', '.join(cells.iloc[0]))}")
        cells = cells.iloc[1:]
    names = checked_names("column", [name or f"column {place}" for place, name in enumerate(header, 1)])
    return cells.set_axis(list(names), axis=1).reset_index(drop=True).apply(_points), said


def _file(path: Path, said: list[str]) -> pd.DataFrame:
    """Return the cells in the file at ``path``, its header in the first row; ``said`` gets what was left out."""
    require(path.is_file() or not path.exists(), "the table", str(path), "give the path of a file")
    how: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False}
    if path.suffix.lower() == ".xlsx":
        return pd.read_excel(path, **how)
    with open(path, "rb") as binary:
        encoding = "utf-16" if binary.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        with open(path, encoding=encoding) as file:
            above = list(itertools.takewhile(lambda line: line.startswith(("# ", "sep=")), file))
            file.seek(0)
            line = next(itertools.islice(file, len(above), None), "")
        said += [f"left out: {len(above)} lines of comments above the table"] * bool(above)
        separator = max(",;\t|", key=re.sub('"[^"]*"', "", line).count)
        return pd.read_csv(path, sep=separator, encoding=encoding, skiprows=len(above), **how)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except UnicodeError as error:
        raise ValueError(
            f"{str(path)!r} is no table in UTF-8: save it as 'CSV UTF-8' ({error})"[:300]
        ) from error
    except pd.errors.ParserError as error:
        reason = re.sub(r".*C error: (Expected \d+ fields)?", r"\1", str(error).strip())
        remedy = "separate by semicolons if it has decimal commas, or write decimal points; close each quote"
        raise ValueError(f"{str(path)!r} cannot be read as a table: {reason[:200]}; {remedy}") from error


def _points(cells: pd.Series) -> pd.Series:
    """Return a column with decimal points if all its numbers have decimal commas."""
    commas = cells[cells.str.contains(",", regex=False)]
    if commas.empty or not cells.str.fullmatch(_COMMA).all():
        return cells
    remedy = "is this a decimal comma? Write a decimal point, or no comma"
    unclear = commas.str.fullmatch(_THOUSAND).all()
    require(not unclear, f"column {cells.name!r} in row {commas.index[0] + 1}", commas.iloc[0], remedy)
    return cells.str.replace(",", ".", regex=False)


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
        source: The path of a file with commas, semicolons, tabs or bars, or of an Excel file; or a pandas frame.
        name: The column with the names of the options. Without it, a first column without repetitions has them, or
            another one with texts; otherwise the names are made of the features, or they are ``row 1``, ``row 2``, …
        result: The column with the results of experiments that were made.
        ignore: Columns to leave out.
        category: Columns whose numbers are names of categories.
        number: Columns to use as features although their headers look like those of results.
        known: The options of a study. Its columns keep their roles, and the table may have further options.

    Returns:
        The table. Rows with equal features are one option, unless their names differ.

    Raises:
        TypeError: ``source`` is neither a path nor a frame.
        ValueError: A column or a cell cannot be understood; the message names it, all such rows, and the remedy.
    """
    cells, said = cells_of(source)
    given = {header: role for header, role in ((name, NAME), (result, RESULT)) if header is not None}
    for role, headers in (("ignored", ignore), (CATEGORY, category), (NUMBER, number)):
        given |= dict.fromkeys(headers, role)
    for header in given:
        near = get_close_matches(header, cells.columns, 2) or list(cells.columns)[:3]
        require(header in cells, "the column", header, f"did you mean {' or '.join(map(repr, near))}?")
    size, offset, wrong = len(cells), 0, dict[int, str]()
    called = [""] * (size if known is None else size + len(known.names))
    if known is None:
        roles = _roles(cells, given)
    else:
        offset = len(known.names)
        before = pd.DataFrame(known.rows, known.names, known.columns)
        roles = dict(zip(known.columns, known.roles, strict=True)) | {
            h: r for h, r in given.items() if r in (NAME, RESULT)
        }
        said += [
            f"left out: {header!r}, a column that the study does not have"
            for header in cells
            if header not in roles
        ]
        named = _with(roles, NAME)
        for header in (header for header in roles if header not in cells):
            lacks = not named and roles[header] in (NUMBER, CATEGORY)
            require(
                not lacks,
                "the list of columns",
                list(cells)[:20],
                f"it lacks {header!r}: give it, or the options' names",
            )
            cells[header] = (
                cells[named[0]].map(before[header]).fillna("") if named and header in before else ""
            )
        cells = pd.concat([before, cells[list(roles)]], ignore_index=True).fillna("")
    if named := _with(roles, NAME):
        called = list(cells[named[0]])
    if known is not None:
        called = [*known.names, *called[offset:]]
    keys = _keys(cells, roles, wrong)
    made = _made_names(cells, roles, keys, set(called))
    first: dict[str, int] = {}
    by_key: dict[Any, str] = {}
    told: list[tuple[int, str, float | str]] = []
    results = next((cells[header] for header in _with(roles, RESULT)), pd.Series("", cells.index))
    for place, (key, cell, value) in enumerate(zip(keys, results, floats(results), strict=True)):
        option = called[place] or by_key.get(key, made[place])
        by_key.setdefault(key, option)
        if keys[first.setdefault(option, place)] != key:
            wrong[place] = (
                f"{option!r} has other features in row {first[option] + 1 - offset} or in the study"
            )
        if not math.isnan(value) or cell.lower() == FAILED:
            told.append((place + 1 - offset, option, FAILED if math.isnan(value) else float(value)))
        elif cell.lower() not in _NO_RESULT:
            wrong[place] = f"the result is {_short(cell)!r}: give a number, {FAILED}, or nothing"
    refuse({place + 1 - offset: reason for place, reason in wrong.items()})
    columns = list(cells) if known is None else list(known.columns)
    rows = (
        cells[columns]
        .assign(**{header: "" for header in _with(roles, RESULT) if header in columns})
        .loc[first.values()]
    )
    roles_of = tuple(roles[header] for header in columns)
    options = Options(tuple(first), tuple(columns), tuple(rows.itertuples(index=False, name=None)), roles_of)
    if known is None:
        said += _report(cells, roles, options, told)
    else:
        said.append(f"{size} rows: {len(options.names) - offset} new options, {len(options.names)} in all")
    return Table(options, tuple(told), tuple(said))


def refuse(wrong: Mapping[int, str]) -> None:
    """Raise a ``ValueError`` with the reasons for which rows are ``wrong``, unless none is."""
    few = "; ".join(f"row {row}: {wrong[row]}" for row in sorted(wrong)[:10])
    if wrong:
        raise ValueError(
            f"nothing is changed: {few}{f'; and {len(wrong) - 10} rows more' * (len(wrong) > 10)}"
        )


def _short(text: str) -> str:
    """Return the ``text`` in at most 60 characters."""
    return text if len(text) <= _LONG else text[: _LONG - 4] + " ..."


def _with(roles: Mapping[str, str], *wanted: str) -> list[str]:
    """Return the headers of the columns whose role is one of those ``wanted``."""
    return [header for header, role in roles.items() if role in wanted]


def _roles(cells: pd.DataFrame, given: Mapping[str, str]) -> dict[str, str]:
    """Return the role of each column of a table with which a study begins."""
    roles = {header: _kind(cells[header], given.get(header)) for header in cells}
    likely = [
        h
        for h in cells
        if h not in given and (roles[h] == RESULT or (roles[h] == NUMBER and _RESULTS.search(h)))
    ]
    if likely and RESULT not in given.values():
        remedy = f"is it the result? Then give --result {likely[0]!r}, otherwise --number or --ignore"
        require(False, "the column", likely[0], remedy)
    roles |= dict.fromkeys(likely, OTHER)
    unique = [h for h in cells if h not in given and roles[h] in (NUMBER, CATEGORY) and cells[h].is_unique]
    counted = [h for h in unique if roles[h] == NUMBER and _counts(cells[h])]
    roles |= {h: "it counts the rows" for h in counted if _COUNTERS.search(h)}
    names = [h for h in unique if h == cells.columns[0] and h in counted] + [
        h for h in unique if roles[h] == CATEGORY
    ]
    names.sort(key=list(cells).index)
    if names and NAME not in given.values():
        roles[names[0]] = NAME
    seen: dict[Any, str] = {}
    # of columns that say the same thing, the one asked for stays, or the name, or the shortest
    for header in sorted(cells, key=lambda h: (h not in given, roles[h] != NAME, cells[h].str.len().sum())):
        text = roles[header] == CATEGORY or (
            roles[header] == NAME and header not in counted and len(cells) > _FEW
        )
        if text or roles[header] == NUMBER:
            pattern = tuple(pd.factorize(cells[header])[0]) if text else _scaled(cells[header])
            if len(set(pattern)) == 1:
                roles[header] = f"it is always {_short(cells[header][0])!r}"
            elif (text, pattern) in seen and header not in given and (text or len(set(pattern)) > 2):
                roles[header] = f"it says the same as {seen[text, pattern]!r}"
            elif roles[header] == CATEGORY and len(set(pattern)) > _LEVELS:
                roles[header] = f"it has more than {_LEVELS:,} different texts"
            seen.setdefault((text, pattern), header)
    if (
        names
        and names[0] in counted
        and roles[names[0]] == NAME
        and len({*(keys := _keys(cells, roles, {}))}) < len(keys)
    ):
        roles[names[0]] = "it counts the rows"  # which are of options that were tried several times
    return roles


def _kind(cells: pd.Series, asked: str | None) -> str:
    """Return ``asked``, or what a column is taken for: "number", "category" or "result"."""
    odd = cells[floats(cells).isna()]
    texts = set(odd.str.lower())
    if asked not in (None, NUMBER):
        return str(asked)
    if odd.empty or (asked is None and len(odd) == len(cells)):
        return NUMBER if odd.empty else CATEGORY
    if asked is None and texts <= _NO_RESULT and texts != {""}:
        return RESULT
    rows = ", ".join(str(place + 1) for place in odd.index[:3]) + " and others" * (len(odd) > 3)
    remedy = (
        "other rows have numbers: mend these, or give the column by --name, --category, --ignore or --result"
    )
    require(False, f"the column {cells.name!r} in row {rows}", _short(odd.iloc[0]), remedy)
    return NUMBER


def _counts(cells: pd.Series) -> bool:
    """Return whether the cells are whole numbers, each larger by 1 than the one before."""
    start = int(cells[0]) if cells[0].isdecimal() else None
    return start is not None and list(cells) == [str(start + place) for place in range(len(cells))]


def _scaled(cells: pd.Series) -> tuple[float, ...]:
    """Return the numbers in a column scaled to [0, 1], the same for another unit and another direction."""
    values = floats(cells)
    if values.min() == values.max():
        return (0.0,)
    scaled = (values / (values.max() - values.min()) - values.min() / (values.max() - values.min())).round(9)
    return min(tuple(scaled), tuple((1 - scaled).round(9)))


def _keys(cells: pd.DataFrame, roles: Mapping[str, str], wrong: dict[int, str]) -> list[Any]:
    """Return the features of each row, such that equal features give equal keys; ``wrong`` gets what is no number."""
    parts: list[Any] = []
    for header in _with(roles, NUMBER, CATEGORY):
        values = cells[header] if roles[header] == CATEGORY else floats(cells[header])
        odd = cells[header][values.isna()]
        wrong |= {place: f"{header!r} is {_short(cell)!r}: give a number" for place, cell in odd.items()}
        parts.append(values.fillna(0.0))
    return list(zip(*parts, strict=True)) if parts else list(cells.index)


def _made_names(cells: pd.DataFrame, roles: Mapping[str, str], keys: list[Any], taken: set[str]) -> list[str]:
    """Return a name for each row: its features as far as they tell options apart, if that is short, or ``row 3``."""
    names = pd.Series("", cells.index)
    for header in (*_with(roles, CATEGORY), *_with(roles, NUMBER)):
        longer = names.str.cat(cells[header].str[:20].str.strip(), ", ")
        names = longer if longer.nunique() > names.nunique() else names
    names = names.str.removeprefix(", ")
    fits = (
        names.str.len().between(1, _LONG)
        & ~names.isin(taken)
        & ~names.str.startswith("--")
        & names.map(str.isprintable)
    )
    rows = ("added " * (len(taken) > 1) + f"row {place + 1}" for place in cells.index)
    return list(names if names.nunique() == len(set(keys)) and fits.all() else rows)


def _report(cells: pd.DataFrame, roles: Mapping[str, str], options: Options, told: list[Any]) -> list[str]:
    """Return what was read and what was left out, in lines."""
    lines, failed = [], sum(value == FAILED for *_, value in told)
    for header, role in roles.items():
        what = "name of the option" if role == NAME else f"left out: {role}"
        if role == NUMBER:
            numbers = floats(cells[header])
            what = f"number, {numbers.min():g} to {numbers.max():g}"
        elif role == CATEGORY:
            values = cells[header].unique()
            what = f"category, {len(values)} values: {_short(', '.join(value[:20] for value in values))}"
        elif role == RESULT:
            what = f"result: {len(told) - failed} numbers, {failed} failed, {len(cells) - len(told)} without"
        lines.append(f"  {header}: {what}")
    again = sum(times > 1 for times in Counter(option for _, option, _ in told).values())
    words = f"{len(cells)} rows: {len(options.names)} options, {len(options.features)} features, {len(told)} results"
    return [f"{words}, {again} options with several", *lines]
