"""The reader of a laboratory's table: what each column is taken for, the options in it, and the results in it.

An option is one of the K choices among which a study looks for the best. Each column of the table has a role. Columns
with the role "number" or "category" are features, which the model uses. The roles "name" and "result" say what else a
column holds. Any other role is the reason why the column is left out, in words.
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from textwrap import shorten
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedgo._checks import extra, on_cpu, require
from fedgo.beyond.federation.wire import HUGE
from fedgo.beyond.study.cells import FAILED, cells_of, checked_names, floats, may_name, missing, points, short

with extra("study"):
    import pandas as pd

NUMBER, CATEGORY, NAME, RESULT = "number", "category", "name", "result"
OTHER = "it looks like another result; if it is a setting, give --number"
COUNTS = "it numbers the rows; if it is a setting, give --number"
PLACE = "it says where an experiment was made; if it is a setting, give --category"
STATUS = "it says how far an experiment is; if it is a setting, give --category"
_ALWAYS, _MANY = "it is always ", "it has more"
_RESULTS = re.compile(
    r"(?i)(?<![a-z])(yield|ee|result|reward|(?<!ionic[ _])(?<!field[ _])strength|score|response|objective"
    r"|target(?![ _](temp|ph(?![a-z])))|conversion|selectivity|measured|(rep|replicate)[ _]?(?=\d))s?(?![a-z])"
)
# the end of the header of a mean or a spread of results, and the header of one of several results
_STATISTIC = re.compile(r"(?i)(?<![a-z])((mean|avg|average)|std|std\.?[ _]?dev\.?|sd|sem)\)?$")
_SINGLE = re.compile(r"(?i)(raw|value)s?[ _]?\d+")
# the words in the header of a column that numbers the rows, one after the other or in any order
_COUNTERS = re.compile(
    "((expts?|exp|experiments?|entry|runs?|row|rownames?|sample|trial|test|rxn|reaction|versuch|obs|observation|iter"
    "|iteration|round|formulation) ?)+|((std|standard|run|random) ?)?order|(?!number of).*(number|num|index)|no"
)
_STATUS = re.compile("((expt?|exp|experiment|run|sample|trial|test|cell|job) )?status")
_REPEATS = re.compile("(rep|replicate)s?( (no|nr|number|id))?")
_LABELS = re.compile(r"(?!no of|no$)(.*(\b|run|sample|test)(no|nr|id|idx|name)|.*nummer|.*unnamed)")
# the first cell of a row that sums up the others, and of a footnote
_SUMS = {"total", "sum", "average", "avg", "mean", "median", "summe", "mittelwert"}
_NOTE = r"[*#†‡§].*"
# what may be a number but is not written as one, with its unit
_ODD = r"[<>≤≥~≈]?\s*[-−+]?(?:\d+|\d{1,3}(?:[, '’]\d{3})+)(?:[.,]\d+)?\s*(%|°?[A-Za-zµ/%]{1,6}|)"
# what `fedgo export` adds to the owner's columns
_EXPORTED = ("results", "pulls", "mean", "estimate", "low", "high", "certificate", "retired")
_FEW = 10  # in a table with more rows, a column of texts that says the same as the name is left out
_MOST = 10  # an error gives this many rows
_LEVELS = 1000  # a text column with more values than this is no category


Result = tuple[int, str, float | str]
Roles = Mapping[str, str]


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
                part = one_hot(torch.tensor(pd.factorize(cells)[0])).double() / 2**0.5
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
        decimal_comma: Whether a column has decimal commas.
    """

    options: Options
    results: tuple[Result, ...] = ()
    report: tuple[str, ...] = ()
    decimal_comma: bool = False


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
            column of texts with one for each row, or for each combination of features; otherwise the names are made of
            the features, or they are ``row 1``, ``row 2``, …
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
        numbers = cells.apply(lambda column: floats(column.str.replace(",", "."))).notna().any()
        gaps = cells.columns[numbers & cells.eq("").any()]
        given = dict.fromkeys(gaps, "some of its cells are empty")
        given |= {header: "fedgo export computed it" for header in _EXPORTED if header in cells}
    elif known is None and "priority" in cells and cells.eq("PENDING").any(axis=None):
        given["priority"] = "EDBO+ computed it"
    given |= {header: role for header, role in ((name, NAME), (result, RESULT)) if header is not None}
    for role, headers in (("ignored", ignore), (CATEGORY, category), (NUMBER, number)):
        given |= dict.fromkeys(headers, role)
    for header in given:
        near = [each for each in cells if header.lower() in each.lower()]
        near = near[:3] or get_close_matches(header, cells.columns, 2) or list(cells.columns)[:3]
        unless = " If there are no results yet, give none; plates have a column for them" * (header == result)
        require(header in cells, "the column", header, f"did you mean {_either(near)}?{unless}")
    before = known.role_of if known else {}
    was = {}
    for header in before.keys() & given.keys():
        old_use, use = _use(before[header]), _use(given[header])
        # a plate may have results where the table had something else
        of_plate = known is not None and (header, use) == (known.result, RESULT)
        if old_use != use and not of_plate and not before[header].startswith((_ALWAYS, _MANY)):
            was[header] = old_use
    require(not was, "what the study takes a column for", was, "begin another file to change it")
    asked = given | before
    read_as = [header for header in cells if asked.get(header) not in ("ignored", CATEGORY, NAME)]
    with_points = points(cells[read_as], bool(known) or NUMBER in given.values())
    decimal_comma = not with_points.equals(cells[read_as])
    cells = cells.assign(**with_points)
    size, old, wrong = len(cells), list(known.names if known else ()), dict[int, str]()
    if known is None:
        refuse([] if cells.columns[0] in given else _no_options(cells))
        roles = _roles(cells, given)
    else:
        mine = {h: role for h, role in given.items() if h not in before}
        mine |= {known.label: NAME, known.result: RESULT}
        roles = known.role_of | {h: mine[h] for h in cells if mine.get(h) in (NAME, RESULT)}
        cells = _below(known, cells, roles, wrong)
    features = _features(cells, roles)
    for header in features:
        odd = cells[header][features[header].isna()]
        wrong |= {row: f"{header!r} is {short(cell)!r}: give a number" for row, cell in odd.items()}
    blank = pd.Series("", cells.index)
    called = next((cells[header] for header in _having(roles, NAME)), blank)
    called = pd.Series([*old, *called[len(old) :]], cells.index, dtype=object)
    # rows with equal features have equal numbers, and without features those with equal names
    alike = (
        features if features.size else called.where(called != "", cells.index.to_series()).to_frame("name")
    )
    same = alike.groupby(list(alike), sort=False, dropna=False).ngroup()
    made = called.where(called != "", _made_names(cells, roles, same, called))
    option = called.where(called != "", made.groupby(same).transform("first"))
    first = cells.index.to_series().groupby(option).transform("first")
    for row in cells.index[same != first.map(same)]:
        where = "the study" if first[row] < len(old) else f"row {first[row] + 1 - len(old)}"
        header = features.loc[row].ne(features.loc[first[row]]).idxmax()
        there = f"there {header!r} is {short(cells[header][first[row]])!r}"
        wrong[row] = f"{option[row]!r} has other features in {where}: {there}"
    results = next((cells[header] for header in _having(roles, RESULT)), blank)[len(old) :]
    if exported:  # a cell has all results of its option; one that is retired has failed
        gone = cells.get("retired", blank).eq("True")
        results = (
            results.where(~gone, results + f" {FAILED}").str.replace(",", ".").str.split().explode().dropna()
        )
    for row, cell in results[floats(results).isna() & ~missing(results)].items():
        remedy = f"give a number with a decimal point, {FAILED}, or nothing"
        wrong[row] = f"the result of {option[row]!r} is {short(cell)!r}: {remedy}"
    refuse([f"row {row + 1 - len(old)}: {wrong[row]}" for row in sorted(wrong)])
    columns = list(cells) if known is None else list(known.columns)
    values = floats(results).astype(object).where(results.str.lower() != FAILED, FAILED).dropna()
    told = tuple((row + 1 - len(old), option[row], value) for row, value in values.items())
    cells[_having(roles, RESULT)] = ""
    rows = cells.loc[option.drop_duplicates().index, columns]
    names, roles_of = tuple(option.unique()), tuple(roles[header] for header in columns)
    options = Options(names, tuple(columns), tuple(rows.itertuples(index=False, name=None)), roles_of)
    if known is None:
        said += _report(cells, roles, options, told)
        for row in cells.index[option.duplicated() & missing(results)][:3] if not exported else ():
            said.append(f"row {row + 1} has no result and the settings of row {first[row] + 1}: one option")
        alike = option.groupby(same).transform("first")
        for row, other in option[option != alike].head(1).items():
            remedy = f"if they are one option, give --ignore {_having(roles, NAME)[0]!r}"
            said.append(f"{alike[row]!r} and {other!r} have equal features: {remedy}")
    else:
        said.append(f"{size} rows: {len(names) - len(old)} new options, {len(names)} in all")
        said += [f"{len(told)} results in it are not read; fedgo tell TABLE enters new ones"] * bool(told)
        lost = [header for header in known.having(OTHER) if (cells[header][len(old) :] != "").any()]
        if lost:
            warnings.warn(f"not kept: what is written in {', '.join(lost)}", stacklevel=4)
    return Table(options, told, tuple(said), decimal_comma)


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
    words = first.str.lower().str.replace(r"\s*\(.*\)$|:$", "", regex=True)  # "Average (n=2)"
    sums = words.isin(_SUMS)[::-1].cummin() & ~words.duplicated(keep=False)
    return [
        f"row {row + 1}: {short(first[row])!r} {'sums up the others' if sums[row] else 'is a footnote'}: remove it"
        for row in cells.index[notes | sums]
    ]


def _use(role: str) -> str:
    """Return the ``role`` of a column, or "left out" if it is the reason why the column is left out."""
    return role if role in (NUMBER, CATEGORY, NAME, RESULT) else "left out"


def _having(roles: Roles, *wanted: str) -> list[str]:
    """Return the headers of the columns whose role is one of those ``wanted``."""
    return [header for header, role in roles.items() if role in wanted]


def _below(known: Options, cells: pd.DataFrame, roles: Roles, wrong: dict[int, str]) -> pd.DataFrame:
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
    without = None if result is None else missing(cells[result]) & cells[result].str.lower().ne(FAILED)
    roles, wrong = dict[str, str](), list[str]()
    for header in cells:
        try:
            roles[header] = _kind(cells[header], given.get(header), without)
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError("; ".join(wrong))
    free = [header for header in cells if header not in given]
    counts = [h for h in free if roles[h] == NUMBER and _counts(cells, h) and not _RESULTS.search(h)]
    numbers = [h for h in free if roles[h] == NUMBER and h not in counts]
    likely = [h for h in free if roles[h] == RESULT or (h in numbers and _RESULTS.search(h))]
    likely.sort(key=lambda header: (not _RESULTS.search(header), bool(_STATISTIC.search(header))))
    likely += [h for h in _of_results(numbers, result or "") if h not in likely]
    if likely and result is None:
        rows = _rows(cells.index[cells[likely[0]] == ""])
        otherwise = f"fill in row {rows}, or give --ignore" if rows else "--number or --ignore"
        remedy = f"is it the result? Then give --result {_either(likely[:1])}, otherwise {otherwise}"
        raise ValueError(f"the column is {_either(likely[:4])}: {remedy}")
    roles |= dict.fromkeys(likely, OTHER)
    roles |= dict.fromkeys(counts, COUNTS)
    numbered = [h for h in counts if h == cells.columns[0] and cells[h].is_unique]
    texts = [h for h in free if roles[h] == CATEGORY and cells[h].is_unique]
    names = numbered or [h for h in texts if cells[h].map(may_name).all()]
    if names and NAME not in given.values():
        roles[names[0]] = NAME
    categories = [h for h in free if roles[h] == CATEGORY]
    places = [h for h in categories if "well" in _words(h)]
    places += [h for h in free if places and "plate" in _words(h) and roles[h] in (NUMBER, CATEGORY)]
    roles |= dict.fromkeys(places, PLACE)
    roles |= dict.fromkeys((h for h in categories if _STATUS.fullmatch(" ".join(_words(h)))), STATUS)
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
            roles[header] = f"{_MANY} than {_LEVELS:,} different texts"
        seen.setdefault(pattern, header)
    if NAME not in roles.values():
        roles |= dict.fromkeys([h for h in categories if _names_the_others(cells, roles, h)][:1], NAME)
    # a number of the experiment is no name if an option was tried several times
    if numbered and _features(cells, roles).duplicated().any():
        roles[numbered[0]] = COUNTS
    return roles


def _names_the_others(cells: pd.DataFrame, roles: Roles, header: str) -> bool:
    """Return whether a column of texts, which differ in most rows, has one for each combination of other features."""
    others, texts = _features(cells, {**roles, header: NAME}), cells[header]
    few = texts.nunique() < max(_FEW, len(cells) / 2)
    if roles[header] != CATEGORY or few or others.empty or not texts.map(may_name).all():
        return False
    option = others.groupby(list(others), sort=False, dropna=False).ngroup()
    return bool((option == pd.factorize(texts)[0]).all())


def _of_results(headers: Sequence[str], result: str) -> list[str]:
    """Return the headers of means and spreads of the ``result``, and of single results; means come first."""
    found = {header: match for header in headers if (match := _STATISTIC.search(header))}
    statistics = [
        header
        for header, match in found.items()
        if _STATISTIC.search(result) or {*_words(header[: match.start()])} <= {*_words(result)}
    ]
    statistics.sort(key=lambda header: found[header][2] is None)
    singles = [header for header in headers if _SINGLE.fullmatch(header)]
    return statistics + singles * (len(singles) > 1)


def _words(header: str) -> list[str]:
    """Return the words in a header, in lower case."""
    return re.findall(r"[^\W\d_]+", header.lower())


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
    if odd.empty:
        return NUMBER
    if asked is None and len(odd) == len(cells):
        remedy = "is it a number? Write digits and a decimal point only; otherwise give --category or --name"
        if is_odd:
            require(False, f"the column '{cells.name}' in row {full.index[0] + 1}", full.iloc[0], remedy)
        return CATEGORY
    # another result lacks a number in all rows ``without`` a result, if these are known; a setting may lack it anywhere
    fits = without is None or (without.any() and missing(cells[without]).all())
    if asked is None and missing(odd).all() and fits:
        return RESULT
    rows = _rows(odd.index)
    way = "--ignore" if full.empty else "--name, --category, --ignore or --result"
    remedy = f"other rows have numbers: mend these, or give it by {way}"
    raise ValueError(f"the column '{cells.name}' in row {rows} is {short(odd.iloc[0])!r}: {remedy}")


def _is_merged(cells: pd.Series) -> bool:
    """Return whether each text occurs once, and the same number of empty cells follows each, as after a merge."""
    at = cells.index[cells != ""]
    regular = len(at) > 1 and list(at) == list(range(0, len(cells), at[1]))
    return regular and len(cells) % at[1] == 0 < at[1] - 1 and cells[at].is_unique


def _counts(cells: pd.DataFrame, header: str) -> bool:
    """Return whether a column numbers the rows, by its header, or as the first one that counts from 0 or 1."""
    numbers, words = floats(cells[header]), " ".join(_words(header))
    if not cells[header].str.isdecimal().all():
        return False
    if not numbers.is_unique:
        return bool(_REPEATS.fullmatch(words))
    # experiments may have few gaps, as in a table that `fedgo export` wrote, where equal rows are one
    most = len(cells) * (1 if re.search("num|index", words) else 1.5)
    rising = numbers.diff()[1:].gt(0).all() or numbers.max() - numbers.min() < most
    if words in ("", "column") and "#" not in header:  # a header that says nothing
        in_order = list(numbers) in (list(range(len(cells))), list(range(1, len(cells) + 1)))
        return in_order and header == cells.columns[0] and cells.shape[1] > 1
    is_label = _LABELS.fullmatch(words) or "#" in header
    in_standard_order = words == "std" and header == cells.columns[0]
    return bool(is_label or (rising and (in_standard_order or _COUNTERS.fullmatch(words))))


def _features(cells: pd.DataFrame, roles: Roles) -> pd.DataFrame:
    """Return the columns that are features: categories, and numbers, NaN where there is none."""
    features, number = cells[_having(roles, NUMBER, CATEGORY)], _having(roles, NUMBER)
    return features.apply(lambda column: floats(column) if column.name in number else column)


def _made_names(cells: pd.DataFrame, roles: Roles, same: pd.Series, taken: pd.Series) -> pd.Series:
    """Return a name for each row: its features as far as they tell options apart, if that is short, or ``row 3``.

    ``same`` has a number for each row, equal for the rows of an option, and ``taken`` its name or nothing.
    """
    names = pd.Series("", cells.index)
    for header in (*_having(roles, CATEGORY), *_having(roles, NUMBER)):
        longer = names.str.cat(cells[header].str[:20].str.strip(), ", ")
        names = longer if longer.nunique() > names.nunique() else names
    names = names.str.removeprefix(", ")
    new = names[~same.isin(same[taken != ""]) & ~same.duplicated()]
    fits = new.is_unique and not new.isin(taken).any()
    if fits and all(text == short(text) != "" and may_name(text) and text.isprintable() for text in new):
        return names
    return ("added " * bool((taken != "").any()) + "row ") + (cells.index.to_series() + 1).astype(str)


def _report(cells: pd.DataFrame, roles: Roles, options: Options, told: Sequence[Result]) -> list[str]:
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
    again = (pd.Series([option for _, option, _ in told]).value_counts() > 1).sum()
    features = len(_having(roles, NUMBER, CATEGORY))
    words = f"{len(cells)} rows: {len(options.names)} options, {features} features, {len(told)} results"
    if RESULT not in roles.values():
        lines.append("no column is taken for results; if one holds them, give it by --result")
    return [f"{words}, {again} options with several", *lines]
