"""What the book prints beside its figures: tables, quoted numbers, frequencies, fitted rates, and a page's checks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from IPython.display import Markdown, display
from scipy.stats import binomtest
from torch import Tensor

from fedgo._checks import require
from fedgo.experiments.summaries import formatted, mean_error

Truth = bool | Tensor | npt.NDArray[np.bool_]

_RULES = {"l": "---", "r": "---:", "c": ":---:"}
_QUOTED = "application/papermill.record/"  # what a page of the book takes, and Jupyter does not know
_BAR = re.compile(r"(?<!\\)\|")
# What stays as it is, a minus, an error.
_PRINTED = re.compile(r"(\$[^$]*\$|`[^`]*`)|(?<![\w.-])(-)(?=\d)|(?<=\d) ± (?=\d)")


def _printed(cell: str) -> str:
    """Return ``cell`` with a minus sign before a negative number and a non-breaking ± between a number and its
    error.
    """
    return _PRINTED.sub(lambda match: match[1] or ("−" if match[2] else "\u00a0±\u00a0"), cell)


def table(head: Sequence[str], rows: Iterable[Sequence[str | int]], align: str | None = None) -> Markdown:
    """Return a Markdown table, with commas in integers and a minus sign before negative numbers.

    Args:
        head: The heads of the columns.
        rows: The rows, with text or whole numbers as cells.
        align: A letter for each column: l, r or c. Without it the first column is l and the others are r.

    Raises:
        ValueError: A row has another number of cells than the head, or a cell has a bare | or several lines.
    """
    rules = [_RULES[letter] for letter in align or "l" + "r" * (len(head) - 1)]
    whole = [[f"{cell:,d}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    lines = [list(head), rules, *([_printed(cell) for cell in row] for row in whole)]
    for line in lines:
        require(len(line) == len(head), "a row", line, f"give {len(head)} cells")
        for cell in line:
            fine = not _BAR.search(cell) and "\n" not in cell
            require(fine, "a cell", cell, r"write \lvert or \| for |, and one line")
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


SYMBOLS = {
    "lam": r"$\lambda$",
    "beta": r"$\beta$",
    "beta/lam": r"$\beta/\lambda$",
    "lengthscale": r"$\ell$",
    "link": "link",
}


def as_set(value: float | str) -> str:
    """Return a ``value`` of a setting as text, with the digits that it has: 0.03, 1,000, 10⁻⁵."""
    if isinstance(value, str):
        return value
    leading, _ = f"{value:.2e}".split("e")
    return formatted(value, max(len(leading.replace(".", "").rstrip("0")), 1))


def in_symbols(setting: Mapping[str, float | str]) -> str:
    """Return ``setting`` as text in the symbols of the book."""
    return ", ".join(f"{SYMBOLS[name]} {as_set(value)}" for name, value in setting.items())


State = Literal["held", "reversed", "open"]  # of a part of a claim, see `fedgo.experiments.claims`
MARKS: Mapping[State, str] = {"held": "■", "reversed": "⊠", "open": "□"}


def share_of_parts(states: Sequence[State]) -> str:
    """Return a bar with the mark of each part of a claim, in fives and sorted by state, and the counts in words."""
    squares = "".join(mark * states.count(state) for state, mark in MARKS.items())
    fives = " ".join(squares[first : first + 5] for first in range(0, len(squares), 5))
    words = (f"{states.count(state)}\u00a0{state}" for state in MARKS if state in states)
    return f"{fives}<br>{', '.join(words)}"


class Frequency(NamedTuple):
    """How often something failed in independent runs, with the exact 95 % interval of Clopper and Pearson."""

    failures: int
    trials: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of runs that failed."""
        return self.failures / self.trials

    @property
    def interval(self) -> str:
        """The interval as it is printed."""
        return f"{self.low:.3f} to {self.high:.3f}"


def frequency(failures: int | Tensor, trials: int | None = None) -> Frequency:
    """Return how often something failed.

    Args:
        failures: The number of failures, or a boolean tensor with an entry for each run.
        trials: The number of runs, if ``failures`` is a number.
    """
    many = failures.numel() if isinstance(failures, Tensor) else trials or 0
    few = int(failures.sum()) if isinstance(failures, Tensor) else failures
    require(many >= 1, "trials", trials, "give the number of runs, at least 1")
    require(0 <= few <= many, "failures", few, f"give a number from 0 to {many}, the runs")
    limits = binomtest(few, many).proportion_ci(method="exact")
    return Frequency(few, many, float(limits.low), float(limits.high))


class Rate(NamedTuple):
    """A log–log slope: its mean over independent runs and the standard error of that mean."""

    slope: float
    error: float

    def __str__(self) -> str:
        return f"{self.slope:.3f} ± {self.error:.3f}".replace("-", "−")


def rate(x: Sequence[float], values: Tensor) -> Rate:
    """Return the exponent p of ``values`` ∝ xᵖ, by a least-squares line through the logarithms of each run.

    Independent runs have independent slopes, so their spread gives the error. The residuals of one line do not, because
    the points of one run need not be independent.

    Args:
        x: The points, (n,).
        values: The values, (S, n), at least two runs and two points, all positive.
    """
    shape = tuple(values.shape)
    fits = len(shape) == 2 and shape[1] == len(x) and min(shape) >= 2
    require(fits, "the shape of values", shape, "give (S, n), at least two runs and two points")
    least = min(values.min().item(), *x)
    require(least > 0, "the least of x and values", least, "logarithms need > 0")
    place = torch.tensor(x, dtype=torch.float64).log()
    place = place - place.mean()
    slopes = values.double().log() @ place / place.square().sum()
    mean, error = mean_error(slopes)
    return Rate(float(mean), float(error))


def quote(form: str = "", of: str = "", /, **values: object) -> None:
    """Keep ``values`` for the prose of the page, where the role n shows them by name.

    A value ``rho_0`` has the name "rho-0", and "of-rho-0" with ``of``. A `Frequency` is shown as its share, with its
    interval as "-low" and "-high"; a pair, such as a `Rate`, has its error as "-error". The value stays in the metadata
    of the cell, and the pages leave the output out. In an executed notebook that is opened as it is, the output reads
    "`rho-0` = 0.5", so that a number can be found by the name that stands for it in the text.

    Args:
        form: The format of numbers that are not whole; whole numbers have commas, and strings are Markdown.
        of: The first part of the names.
        values: The values by name.
    """
    for name, value in values.items():
        parts: dict[str, object] = {"": value}
        match value:
            case Frequency(low=low, high=high):
                parts = {"": value.share, "-low": low, "-high": high}
            case (mean, error):
                parts = {"": mean, "-error": error}
        for end, part in parts.items():
            if isinstance(part, Tensor | np.generic):
                part = part.item()
            kept = part.data if isinstance(part, Markdown) else part
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


@dataclass
class Checks:
    """The checks of a page, which are added where they are made; the page ends with their `table`."""

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, statement: str, kind: str, where: str, result: str, *holds: Truth) -> None:
        """Add a check, or fail if it does not hold.

        Args:
            statement: What was checked.
            kind: The kind of the check.
            where: On what it was checked.
            result: What came out.
            holds: The conditions, each of which has to be true everywhere.

        Raises:
            AssertionError: A condition does not hold.
        """
        require(len(holds) >= 1, "holds", holds, "give what has to be true")
        for place, part in enumerate(holds):
            if not torch.as_tensor(part).all():
                raise AssertionError(f"{statement}, {where}: {result}; condition {place} does not hold")
        self.rows.append((statement, kind, where, result))

    def table(self) -> Markdown:
        """Return the table of all checks, in the order in which they were made."""
        return table(("statement", "kind", "what was checked", "result"), self.rows, "llll")
