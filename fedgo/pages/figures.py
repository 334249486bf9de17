"""Figures: the book's matplotlib style, a colour and a marker for each algorithm, and the paper's Figures 2 and 3."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import print_figure
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torch import Tensor

from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.summaries import mean_error
from fedgo.trace import Trace

# The colour and the marker of each algorithm of the paper's comparison, and of the advised setting, on all pages.
STYLES: Mapping[str, tuple[str, str]] = {
    **{name: player.style for name, player in ALGORITHMS.items() if player.style},
    "advised": ("#0A7F5A", "*"),
}
# The width of a figure for a phone in inches, and where it begins in the SVG of the figure for a desktop.
PHONE, FOR_PHONE = 3.7, '<defs class="phone">'
# The number of steps at which a curve is drawn, at most. The steps are closer to each other at first, where the curve
# bends. More steps would make the file of the figure large.
_POINTS = 70


def use_style() -> None:
    """Set the book's matplotlib style and vector output for the figures of a notebook."""
    plt.style.use(Path(__file__).parent / "data/book.mplstyle")
    set_matplotlib_formats("svg")
    formats: Any = InteractiveShell.instance().display_formatter
    formats.formatters["image/svg+xml"].for_type(Figure, both_widths)


_LONG = 14  # letters of a tick label that leave no room beside the panel of a phone
_ROW = 0.3  # inches of a row on a phone that has such a label above its marks


def both_widths(figure: Figure) -> str:
    """Return ``figure`` as SVG; a part of it that is not shown is the same figure in the width of a phone.

    Panels that stand in one row stand below each other on the phone. The extension ``dark`` of the book takes the two
    drawings apart.
    """
    wide: str = print_figure(figure, "svg")
    width, height = figure.get_size_inches()
    grid: Any = figure.axes[0].get_gridspec() if figure.axes else None
    if width <= PHONE or grid is None:
        return wide
    if grid.nrows == 1 < grid.ncols == len(figure.axes):
        below: Any = figure.add_gridspec(grid.ncols, 1)
        height *= 0.8 * grid.ncols
        for axes, place in zip(figure.axes, below, strict=True):
            axes.set_subplotspec(place)
            axes.tick_params(labelleft=True)
    up = ScaledTranslation(0, 0.23 * _ROW, figure.dpi_scale_trans)
    rows: dict[int, float] = {}  # with such labels, by the row of the grid
    for axes in figure.axes:
        names = axes.get_yticklabels()
        words = [name.get_text() for name in names if not name.get_text().startswith("$")]
        if max(map(len, words), default=0) > _LONG:  # above their rows
            lines = 1 + max(word.count("\n") for word in words)
            spec: Any = axes.get_subplotspec()
            rows[spec.rowspan.start] = len(names) * (1 + lines) / 2
            first, last = axes.get_ylim()
            axes.set_ylim(first, last + math.copysign(0.4, last - first))
            axes.tick_params(axis="y", pad=-3, length=0, labelsize=8)
            for name in names:
                name.set(horizontalalignment="left", verticalalignment="bottom", in_layout=False)
                name.set_transform(name.get_transform() + up)
    figure.set_size_inches(PHONE, max(height, _ROW * sum(rows.values()) + 1.5))
    narrow = print_figure(figure, "svg").partition("<svg")
    return wide.replace("</svg>", f"{FOR_PHONE}<svg{narrow[2]}</defs>\n</svg>")


def plain_ticks(axis: Axis) -> None:
    """Label the ticks of ``axis`` with plain numbers, at 1, 2 and 5 times the powers of ten if it is logarithmic."""
    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace("-", "−")))
    axis.set_minor_formatter(NullFormatter())


def mean_and_band(axes: Axes, name: str, values: Tensor) -> None:
    """Draw the mean of ``values`` (S, steps) over S runs against the steps, with a band of two standard errors.

    Each algorithm has its markers at other steps, so that both of two equal curves are visible. Steps whose mean is not
    positive are left out, and the band ends at a hundredth of the mean, because a logarithmic axis has no zero.
    """
    colour, marker = STYLES[name]
    steps = np.unique(((values.shape[1] - 1) * np.linspace(0, 1, _POINTS) ** 2).round().astype(int))
    mean, error = mean_error(values[:, steps])
    steps, mean, error = 1 + steps[mean > 0], mean[mean > 0], error[mean > 0]
    every = (0.2 * [*STYLES].index(name) / len(STYLES), 0.2)
    axes.plot(steps, mean, color=colour, marker=marker, markevery=every, markersize=5, label=name)
    low, high = np.maximum(mean - 2 * error, mean / 100), mean + 2 * error
    axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def regret_and_communication(
    dense: Mapping[str, Mapping[str, Trace]], packed: Mapping[str, Mapping[str, Trace]]
) -> Figure:
    """Draw the paper's Figures 2 and 3: for each problem the cumulative regret, and the scalars sent in two forms.

    All vertical axes are logarithmic and begin at a tenth of the smallest final mean, of the regret or of the packed
    scalars. An algorithm that sends nothing has the text "none" in place of a curve.

    Args:
        dense: The traces, by the title of a problem and then by algorithm, with messages counted as matrices.
        packed: The same runs with messages counted as counts and sums, at least of the algorithms that send anything.
    """
    rows: list[Any] = []
    for title in dense:
        rows += [[f"{title}, regret"] * 2, [f"{title}, dense", f"{title}, packed"]]
    figure = plt.figure(figsize=(7.2, 4.2 * len(dense) + 0.3))
    axes = figure.subplot_mosaic(rows, height_ratios=[3, 2] * len(dense))
    size = 10
    for title, traces in dense.items():
        regret, matrices, counts = (axes[f"{title}, {what}"] for what in ("regret", "dense", "packed"))
        counts.sharey(matrices)
        labels = {regret: title, matrices: "scalars, in matrices", counts: "scalars, packed"}
        for panel, label in labels.items():
            panel.set_yscale("log")
            panel.set_xlabel("steps", fontsize=size)
            panel.set_title(label, fontsize=size)
            panel.tick_params(labelsize=size - 1)
            panel.locator_params(axis="x", nbins=3)  # with more ticks the numbers of five digits would touch
            plain_ticks(panel.xaxis)
        regret.set_ylabel("cumulative regret", fontsize=size)
        plain_ticks(regret.yaxis)
        for name, trace in traces.items():
            mean_and_band(regret, name, trace.cumulative_regret)
            if trace.communication.any():
                mean_and_band(matrices, name, trace.communication)
                mean_and_band(counts, name, packed[title][name].communication)
            else:
                note, place = f"{name}: none", matrices.transAxes
                matrices.text(0.97, 0.03, note, ha="right", fontsize=size - 1, transform=place)
        for panel in (regret, counts):
            panel.set_ylim(bottom=min(float(np.asarray(line.get_ydata())[-1]) for line in panel.lines) / 10)
    handles, names = regret.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize=size)
    return figure
