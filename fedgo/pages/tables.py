"""Tables and numbers for the pages of the book: quoted values, frequencies, fitted exponents, and checks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from IPython.display import Markdown, display
from torch import Tensor

from fedgo._checks import count, require
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
    """Return ``cell`` with minus signs before numbers and no line break at ±; formulas and code stay as they are."""
    return _PRINTED.sub(lambda match: match[1] or ("−" if match[2] else "\u00a0±\u00a0"), cell)


def table(head: Sequence[str], rows: Iterable[Sequence[str | int]], align: str | None = None) -> Markdown:
    """Return a Markdown table, with commas in cells that are ints, and with minus signs before negative numbers.

    Args:
        head: The heads of the columns, at least one.
        rows: The rows, each with one cell for each column, a str or an int, in one line and without a bare |.
        align: A letter for each column: l, r or c. If it is None or empty, the first column is l and the others are r.
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
    """Return a ``value`` of a setting as Markdown, for instance 0.03, 1,000 or $10^{-5}$, with three digits at most."""
    if isinstance(value, str):
        return value
    leading, _ = f"{value:.2e}".split("e")
    return formatted(value, max(len(leading.replace(".", "").rstrip("0")), 1))


def in_symbols(setting: Mapping[str, float | str]) -> str:
    """Return ``setting`` as Markdown text, "symbol value, symbol value, …", with the book's `SYMBOLS`."""
    return ", ".join(f"{SYMBOLS[name]} {as_set(value)}" for name, value in setting.items())


MARKS: Mapping[State, str] = {"held": "■", "reversed": "⊠", "open": "□"}


def share_of_parts(states: Sequence[State]) -> str:
    """Return how many parts of a claim have each state, as marks and in words: "■■■■■ ■□<br>6 held, 1 open"."""
    squares = "".join(mark * states.count(state) for state, mark in MARKS.items())
    fives = " ".join(squares[first : first + 5] for first in range(0, len(squares), 5))
    words = (f"{states.count(state)}\u00a0{state}" for state in MARKS if state in states)
    return f"{fives}<br>{', '.join(words)}"


def ranged(estimate: Sequence[float]) -> str:
    """Return an ``estimate``, the ends of its interval last, as text, such as "0.83 (0.81 to 0.85)"."""
    mean, low, high = estimate
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


class Frequency(NamedTuple):
    """The frequency of ``failures`` in ``trials`` runs, with the exact 95 % interval of Clopper and Pearson."""

    failures: int
    trials: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of the runs that failed."""
        return self.failures / self.trials

    @property
    def interval(self) -> str:
        """The ends of the interval as text, such as "0.012 to 0.345"."""
        return f"{self.low:.3f} to {self.high:.3f}"


def frequency(failures: int | Tensor, trials: int | None = None) -> Frequency:
    """Return the frequency of failures in ``trials`` runs, or in the runs that a boolean tensor has as entries."""
    if isinstance(failures, Tensor):
        trials, failures = failures.numel(), int(failures.sum())
    trials = count("trials", trials or 0, "give the number of runs, at least 1")
    count("failures", failures, f"give a number from 0 to {trials}, the runs", least=0, most=trials)
    from scipy.stats import binomtest  # its import takes as long as that of pandas

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

    In each run, p is the slope of the least-squares line through the logarithms. Independent runs have independent
    slopes, so that their spread gives the error; the points of one run need not be independent.

    Args:
        x: The points, n positive and finite numbers that are not all equal.
        values: The positive values of S runs at the points, (S, n), with S and n of at least 2.
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

    A value ``rho_0`` has the name "rho-0", and with ``of`` = "x" the name "x-rho-0". A `Frequency` is stored as its
    share, with the ends of its interval under "-low" and "-high", and a pair, such as a `Rate`, as a number and its
    "-error". Pages do not show the outputs; in an executed notebook an output reads "`rho-0` = 0.5".

    Args:
        form: The format of floats, for instance ".2f". An int is written with commas, and a str as it is, as Markdown.
        of: The first part of the names; without it a name has only one part.
        values: Numbers, tensors with one entry, strings, Markdown as `table` returns it, pairs of these, or
            frequencies.
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

    What must hold in every run stops the notebook if it does not. A number that depends on the parameters stops it only
    in a run with the parameters of the ``book``.
    """

    book: bool = True
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def says(self, sentence: str, *holds: Truth) -> None:
        """Check a sentence of the page whose truth depends on the run; if it does not hold, print it."""
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
        """
        require(len(holds) >= 1, "holds", holds, "give what has to be true")
        if not _all(holds):
            if self.book or kind.startswith(_ALWAYS):
                number = [_all([condition]) for condition in holds].index(False)
                raise AssertionError(f"{statement}, {where}: {result}; condition {number} does not hold")
            result = f"does not hold with these parameters; expected: {result}"
        self.rows.append((statement, kind, where, result))

    def table(self) -> Markdown:
        """Return a Markdown table of all checks, in the order in which they were made."""
        return table(("statement", "kind", "what was checked", "result"), self.rows, "llll")
