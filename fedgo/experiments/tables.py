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
    """``cell`` with a minus sign before a number, and with what joins a number and its error."""
    return _PRINTED.sub(lambda found: found[1] or ("−" if found[2] else "\u00a0±\u00a0"), cell)


def table(head: Sequence[str], rows: Iterable[Sequence[str | int]], align: str | None = None) -> Markdown:
    """A Markdown table; integers are printed with commas, everything else as it is given, but for the minus sign.

    ``align`` has a letter for each column, l, r or c; unless said, the first is l and the others are r.
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
    """A ``value`` of a setting for a table, with the digits that it has and no more: 0.03, 1,000, 10⁻⁵."""
    if isinstance(value, str):
        return value
    leading, _ = f"{value:.2e}".split("e")
    return formatted(value, max(len(leading.replace(".", "").rstrip("0")), 1))


def in_symbols(setting: Mapping[str, float | str]) -> str:
    """The ``setting`` in the symbols of the book."""
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
    """How often something failed, with Clopper and Pearson's exact 95 % interval from ``low`` to ``high``."""

    failures: int
    trials: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of failures."""
        return self.failures / self.trials

    @property
    def interval(self) -> str:
        """The interval as it is printed."""
        return f"{self.low:.3f} to {self.high:.3f}"


def frequency(failures: int | Tensor, trials: int | None = None) -> Frequency:
    """``failures`` of ``trials`` independent runs; or a boolean tensor with one entry for each run."""
    many = failures.numel() if isinstance(failures, Tensor) else trials or 0
    few = int(failures.sum()) if isinstance(failures, Tensor) else failures
    require(many >= 1, "trials", trials, "give the number of runs, at least 1")
    require(0 <= few <= many, "failures", few, f"give a number from 0 to {many}, the runs")
    found = binomtest(few, many).proportion_ci(method="exact")
    return Frequency(few, many, float(found.low), float(found.high))


class Rate(NamedTuple):
    """A log–log slope: its mean over independent runs and the standard error of that mean."""

    slope: float
    error: float

    def __str__(self) -> str:
        return f"{self.slope:.3f} ± {self.error:.3f}".replace("-", "−")


def rate(x: Sequence[float], values: Tensor) -> Rate:
    """The exponent p of ``values`` (S, n) ∝ xᵖ at ``x`` (n,): a least-squares line through the logarithms of every run.

    Independent runs have independent slopes, so their spread gives the error. The residuals of one line do not, because
    the points of one run need not be independent.
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
    """Keep ``values`` for the prose, where the role n shows them: ``rho_0`` as "rho-0", with ``of`` as "of-rho-0".

    ``form`` is the format of what is not whole; whole numbers have commas, strings are Markdown. A `Frequency` is its
    share, with "-low" and "-high" its interval; a pair, as a `Rate` or what `mean_error` returns, has its error as
    "-error". The value stays in the metadata. The pages of the book leave the output itself out. Where the executed
    notebook is opened as it is, in Jupyter or after papermill, the output reads "`rho-0` = 0.5": the number can be
    found by the name that the text has in its place.
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
    """The checks of a page: each is added where it is made, and the page ends with `table`."""

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, statement: str, kind: str, where: str, result: str, *holds: Truth) -> None:
        """A ``statement``, ``where`` it was checked, and the ``result``; an AssertionError unless all of ``holds``."""
        require(len(holds) >= 1, "holds", holds, "give what has to be true")
        for place, part in enumerate(holds):
            if not torch.as_tensor(part).all():
                raise AssertionError(f"{statement}, {where}: {result}; condition {place} does not hold")
        self.rows.append((statement, kind, where, result))

    def table(self) -> Markdown:
        """All of them, in the order in which they were made."""
        return table(("statement", "kind", "what was checked", "result"), self.rows, "llll")
