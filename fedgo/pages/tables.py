"""Tables and numbers for the pages of the book: quoted values, frequencies, fitted exponents, and checks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from IPython.display import Markdown, display
from scipy.stats import binomtest
from torch import Tensor

from fedgo._checks import require
from fedgo.experiments.claims import State
from fedgo.experiments.summaries import formatted, mean_error

Truth = bool | Tensor | npt.NDArray[np.bool_]

_RULES = {"l": "---", "r": "---:", "c": ":---:"}
# The kind of output in which a notebook stores a quoted value. The pages of the book read it, and Jupyter hides it.
_QUOTED = "application/papermill.record/"
_BAR = re.compile(r"(?<!\\)\|")
# Three alternatives: formulas and code, which stay as they are; a minus before a number; a ± before an error.
_PRINTED = re.compile(r"(\$[^$]*\$|`[^`]*`)|(?<![\w.-])(-)(?=\d)|(?<=\d) ± (?=\d)")


def _printed(cell: str) -> str:
    """Return the text ``cell`` with minus signs in place of hyphens and with blanks around ± at which no line breaks.

    A hyphen is replaced if a digit follows it, and no letter, digit, underscore, point or hyphen stands before it. The
    blanks around a ± are replaced if a digit stands before the first and after the second of them. Formulas between two
    dollar signs and code between two backticks stay as they are.
    """
    return _PRINTED.sub(lambda match: match[1] or ("−" if match[2] else "\u00a0±\u00a0"), cell)


def table(head: Sequence[str], rows: Iterable[Sequence[str | int]], align: str | None = None) -> Markdown:
    """Return a Markdown table, with commas in cells that are ints, and with minus signs before negative numbers.

    In a cell, a hyphen before a digit becomes a minus sign, unless a letter, digit, underscore, point or hyphen stands
    before it. No line breaks at the blanks around a ± between two digits. The heads, and formulas and code in a cell,
    stay as they are.

    Args:
        head: The heads of the columns, at least one.
        rows: The rows, each with one cell for each column. A cell is a str or an int.
        align: A letter for each column: l for left, r for right or c for centred. If it is None or empty, the first
            column is l and the others are r.

    Raises:
        ValueError: There is no head, a row or ``align`` has another length than the head, or a head or a cell has
            several lines or a | without a backslash before it.
        KeyError: ``align`` has another letter.
        TypeError: A cell is neither a str nor an int. A float and a NumPy integer are refused too.
    """
    rules = [_RULES[letter] for letter in align or "l" + "r" * (len(head) - 1)]
    whole = [[f"{cell:,d}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    lines = [list(head), rules, *([_printed(cell) for cell in row] for row in whole)]
    for line in lines:
        require(len(line) == len(head), "a row", line, f"give {len(head)} cells")
        for cell in line:
            plain = not _BAR.search(cell) and "\n" not in cell
            require(plain, "a cell", cell, r"write \lvert or \| for |, and one line")
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


SYMBOLS = {
    "lam": r"$\lambda$",
    "beta": r"$\beta$",
    "beta/lam": r"$\beta/\lambda$",
    "lengthscale": r"$\ell$",
    "link": "link",
}


def as_set(value: float | str) -> str:
    """Return a ``value`` of a setting as text for Markdown, for instance 0.03, 1,000 or $10^{-5}$.

    A number of at least 0 has as many significant digits as it needs, at most three; a negative number has one more
    than it needs. If the absolute value is 0, or from 0.001 to below 100,000 after rounding, the number is written in
    plain digits, and all digits before the decimal point are shown. Other numbers are written with a power of ten. A
    text is returned as it is.

    Raises:
        ValueError: The value is infinite or NaN.
    """
    if isinstance(value, str):
        return value
    leading, _ = f"{value:.2e}".split("e")
    return formatted(value, max(len(leading.replace(".", "").rstrip("0")), 1))


def in_symbols(setting: Mapping[str, float | str]) -> str:
    """Return ``setting`` as Markdown text, "symbol value, symbol value, …", in the order of its parameters.

    ``setting`` has the values of an algorithm's parameters by their names. `SYMBOLS` has the book's symbol for each
    name, and `as_set` writes the values. Without parameters the result is empty.

    Raises:
        KeyError: A parameter has no symbol in `SYMBOLS`.
        ValueError: A value is infinite or NaN.
    """
    return ", ".join(f"{SYMBOLS[name]} {as_set(value)}" for name, value in setting.items())


MARKS: Mapping[State, str] = {"held": "■", "reversed": "⊠", "open": "□"}


def share_of_parts(states: Sequence[State]) -> str:
    """Return how many parts of a claim are held, reversed and open, as marks and in words.

    ``states`` has the state of each part. The result is text for a cell of a Markdown table, in two lines that "<br>"
    separates. The first line has one mark for each state, ■ for held, ⊠ for reversed and □ for open, in this order and
    in groups of five. The second line has the number of each state that occurs, for instance "6 held, 1 open".
    """
    squares = "".join(mark * states.count(state) for state, mark in MARKS.items())
    fives = " ".join(squares[first : first + 5] for first in range(0, len(squares), 5))
    words = (f"{states.count(state)}\u00a0{state}" for state in MARKS if state in states)
    return f"{fives}<br>{', '.join(words)}"


class Frequency(NamedTuple):
    """The frequency of failures in independent runs, with the exact 95 % interval of Clopper and Pearson.

    ``failures`` is the number of failures in ``trials`` runs, and ``low`` and ``high`` are the ends of the interval of
    the probability of failure.
    """

    failures: int
    trials: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of the runs that failed: ``failures``/``trials``.

        Raises:
            ZeroDivisionError: ``trials`` is 0.
        """
        return self.failures / self.trials

    @property
    def interval(self) -> str:
        """The two ends ``low`` and ``high`` of the interval as text with three decimals, such as "0.012 to 0.345"."""
        return f"{self.low:.3f} to {self.high:.3f}"


def frequency(failures: int | Tensor, trials: int | None = None) -> Frequency:
    """Return the frequency of failures with its exact 95 % interval, that of Clopper and Pearson.

    Args:
        failures: The number of failures, or a boolean tensor with an entry for each run, True for a failure.
        trials: The number of runs; it is not used if ``failures`` is a tensor.

    Raises:
        ValueError: The number of runs is missing or below 1, or the number of failures is negative or above it.
        TypeError: A number is not an integer; 10.0 is refused too.
    """
    if isinstance(failures, Tensor):
        trials, failures = failures.numel(), int(failures.sum())
    trials = trials or 0
    require(trials >= 1, "trials", trials, "give the number of runs, at least 1")
    require(0 <= failures <= trials, "failures", failures, f"give a number from 0 to {trials}, the runs")
    limits = binomtest(failures, trials).proportion_ci(method="exact")
    return Frequency(failures, trials, float(limits.low), float(limits.high))


class Rate(NamedTuple):
    """A slope on logarithmic axes: its mean ``slope`` over independent runs and the standard ``error`` of that mean."""

    slope: float
    error: float

    def __str__(self) -> str:
        return f"{self.slope:.3f} ± {self.error:.3f}".replace("-", "−")


def rate(x: Sequence[float], values: Tensor) -> Rate:
    """Return the exponent p of ``values`` ∝ xᵖ with its standard error.

    In each run, p is the slope of the least-squares line through the logarithms of the points and of the values.
    Independent runs have independent slopes, so that their spread gives the error. The residuals of one line do not,
    because the points of one run need not be independent.

    Args:
        x: The points, n positive and finite numbers that are not all equal.
        values: The positive and finite values of S runs at the points, (S, n), with S and n of at least 2.

    Returns:
        The mean of the S slopes and the standard error of this mean.

    Raises:
        ValueError: ``values`` does not have this shape, a point or a value is 0 or negative, or a value is NaN.
    """
    shape = tuple(values.shape)
    fits = len(shape) == 2 and shape[1] == len(x) and min(shape) >= 2
    require(fits, "the shape of values", shape, "give (S, n), at least two runs and two points")
    least = min(values.min().item(), *x)
    require(least > 0, "the least of x and values", least, "give numbers above 0")
    logs = torch.tensor(x, dtype=torch.float64).log()
    centred = logs - logs.mean()
    slopes = values.double().log() @ centred / centred.square().sum()
    mean, error = mean_error(slopes)
    return Rate(float(mean), float(error))


def quote(form: str = "", of: str = "", /, **values: object) -> None:
    """Store ``values`` as outputs of a notebook's cell, from which the text of the book's page can show them by name.

    A value ``rho_0`` has the name "rho-0", and with the argument ``of`` = "x" the name "x-rho-0". A `Frequency` is
    stored as its share, and the ends of its interval under the names with "-low" and "-high". The first number of a
    pair, such as a `Rate`, has the name, and the second one, its error, the name with "-error". Each value and its name
    are stored in the metadata of an output of its own, and the pages do not show the output. In an executed notebook
    that is opened as it is, the output reads "`rho-0` = 0.5", so that a reader finds the number by its name.

    Args:
        form: The format of floats, for instance ".2f". An int is written with commas, and a str as it is, as Markdown.
        of: The first part of the names; without it a name has only one part.
        values: The values by name: numbers, tensors with one entry, strings, Markdown as `table` returns it, pairs of
            these, or frequencies.

    Raises:
        ValueError: A value is a float, and ``form`` is no format of a float.
        TypeError: ``form`` is not empty, and a value is none of these.
        RuntimeError: A tensor does not have exactly one entry.
    """
    for name, value in values.items():
        by_ending: dict[str, object] = {"": value}
        match value:
            case Frequency(low=low, high=high):
                by_ending = {"": value.share, "-low": low, "-high": high}
            case (mean, error):
                by_ending = {"": mean, "-error": error}
        for end, quoted in by_ending.items():
            if isinstance(quoted, Tensor | np.generic):
                quoted = quoted.item()
            kept = quoted.data if isinstance(quoted, Markdown) else quoted
            if isinstance(kept, str):
                kind, shown = "markdown", kept
            else:
                kind, shown = "plain", format(kept, ",d" if isinstance(kept, int) else form).replace("-", "−")
            key = (f"{of}-{name}" if of else name).replace("_", "-") + end
            named = f"`{key}`:\n\n{shown}" if "\n" in shown else f"`{key}` = {shown}"
            display(
                {f"{_QUOTED}text/{kind}": shown, "text/markdown": named},
                raw=True,
                metadata={"scrapbook": {"name": key, "mime_prefix": _QUOTED}, "value": kept},
            )


_ALWAYS = ("identity", "on every run", "proof")  # kinds of checks that do not depend on the parameters


def _all(conditions: Iterable[Truth]) -> bool:
    """Return whether every entry of every condition is true."""
    return all(bool(torch.as_tensor(condition).all()) for condition in conditions)


@dataclass
class Checks:
    """The checks of a page of the book, and which of its sentences do not hold in this run.

    What must hold in every run stops the notebook if it does not. A number that depends on the parameters may be
    another one in another run; it stops the notebook only in a run with the parameters of the book.

    Args:
        book: Whether the parameters are those of the book.
    """

    book: bool = True
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def says(self, sentence: str, *holds: Truth) -> None:
        """Check a sentence of the page whose truth depends on the run; if it does not hold, print it.

        Args:
            sentence: The sentence, in the words of the page or shorter.
            holds: The conditions under which it holds.

        Raises:
            AssertionError: The sentence does not hold with the parameters of the book.
        """
        if _all(holds):
            return
        if self.book:
            raise AssertionError(f"the page says: {sentence} This does not hold; correct the sentence")
        print(f"With these parameters, this sentence of the book does not hold: {sentence}")

    def add(self, statement: str, kind: str, where: str, result: str, *holds: Truth) -> None:
        """Check a statement and add it to the table of checks.

        Args:
            statement: The statement that is checked.
            kind: The kind of the check. If it begins with identity, proof or "on every run", it must hold in every run.
            where: The runs or values on which it is checked.
            result: The result, in words or numbers.
            holds: The conditions, at least one. Every entry has to be true.

        Raises:
            AssertionError: A condition is false that must hold in every run, or in a run with the book's parameters.
            ValueError: There is no condition.
        """
        require(len(holds) >= 1, "holds", holds, "give what has to be true")
        if not _all(holds):
            if self.book or kind.startswith(_ALWAYS):
                number = [_all([condition]) for condition in holds].index(False)
                raise AssertionError(f"{statement}, {where}: {result}; condition {number} does not hold")
            result = f"does not hold with these parameters; expected: {result}"
        self.rows.append((statement, kind, where, result))

    def table(self) -> Markdown:
        """Return a Markdown table of all checks, in the order in which they were made.

        Its columns are the statement, the kind of the check, what was checked, and the result.

        Raises:
            ValueError: A text of a check has several lines or a | without a backslash before it.
        """
        return table(("statement", "kind", "what was checked", "result"), self.rows, "llll")
