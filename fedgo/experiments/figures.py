"""Figures: one matplotlib style, one colour and marker per algorithm, traces drawn as mean ± standard error."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from torch import Tensor

from fedgo.experiments.regimes import Regime
from fedgo.experiments.roster import ALGORITHMS, PLAYERS
from fedgo.experiments.summaries import mean_error
from fedgo.trace import Trace

STYLES: Mapping[str, tuple[str, str]] = {
    name: player.style for name, player in ALGORITHMS.items() if player.style
}
BEYOND: Mapping[str, tuple[str, str]] = {  # the part beyond the paper, in the same colours on every page
    name: player.style
    for name, player in PLAYERS.items()
    if player.style and player.style not in STYLES.values()
}
_FALLBACK = ("#000000", "p")
_POINTS = 400  # steps drawn of a curve; more make the file large and look the same


def use_style() -> None:
    """Set the book's matplotlib style: vector output, legible at the width of a phone."""
    plt.rcParams.update(
        {
            "figure.figsize": (7, 3.2),
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "font.size": 11,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "svg.fonttype": "path",
            "svg.hashsalt": "fedgo",
        }
    )
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # outside a notebook there is no inline back end to set
        return
    set_matplotlib_formats("svg")


def band(axes: Axes, name: str, values: Tensor) -> None:
    """Mean ± standard error over the runs of ``values`` (S, steps), drawn from step 1 on."""
    colour, marker = STYLES.get(name, _FALLBACK)
    drawn = np.unique(np.linspace(0, values.shape[1] - 1, _POINTS).round().astype(int))
    steps = 1 + drawn
    mean, error = (part[drawn] for part in mean_error(values))
    # every algorithm's markers have places of their own, so that no curve quite hides another that it lies on
    turn = 3 * list(STYLES).index(name) % len(STYLES) if name in STYLES else 0
    axes.plot(
        steps,
        mean,
        color=colour,
        marker=marker,
        markevery=(0.1 * turn / len(STYLES), 0.1),
        markersize=5,
        label=name,
    )
    axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)


def plain_ticks(axis: Axis, steps: Sequence[int] = (1, 2, 5)) -> None:
    """Number ``axis`` in digits, as in text; a logarithmic one at ``steps`` times powers of ten and nowhere else."""
    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace("-", "−")))
    axis.set_minor_formatter(NullFormatter())


def regret_and_communication(rows: Mapping[str, Iterable[Trace]]) -> Figure:
    """The layout of the paper's Figures 2 and 3: a row per problem, regret left, communication right.

    Every curve has its algorithm's name at its right end.
    """
    figure, grid = plt.subplots(len(rows), 2, figsize=(9.5, 3.4 * len(rows)), squeeze=False)
    for (title, traces), (left, right) in zip(rows.items(), grid, strict=True):
        sent = []
        for trace in traces:
            band(left, trace.algorithm, trace.cumulative_regret)
            band(right, trace.algorithm, trace.communication)
            sent += trace.communication[:, -1].tolist()
        # logarithmic above the smallest total, so that an algorithm that sends nothing has its line at 0
        least = 10.0 ** np.floor(np.log10(min([total for total in sent if total > 0], default=1)))
        left.set(title=title, xlabel="steps", ylabel="cumulative regret")
        right.set(title=title, xlabel="steps", ylabel="scalars sent")
        right.set_yscale("symlog", linthresh=least)
        right.set_ylim(bottom=-0.1 * least)
        for axis in (left.xaxis, left.yaxis, right.xaxis):
            plain_ticks(axis)
    for axes in grid.flat:
        name_ends(axes)
    return figure


def name_ends(axes: Axes) -> None:
    """Write the label of every curve beside its right end; where labels would overlap they are moved apart."""
    named = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    last = [np.asarray(line.get_xydata())[-1] for line in named]
    axes.set_xlim(right=max(float(x) for x, _ in last))
    axes.figure.canvas.draw()  # panels then have the height that they keep
    within = axes.transData + axes.transAxes.inverted()
    ends = [float(within.transform(point)[1]) for point in last]
    order = sorted(range(len(named)), key=ends.__getitem__)
    step = 11 * axes.figure.dpi / 72 / axes.bbox.height  # a line of the labels, as a share of the panel
    places: list[float] = []
    for k in order:
        places.append(max(ends[k], 0.0, places[-1] + step if places else 0.0))
    for back in range(len(order)):
        places[-1 - back] = min(places[-1 - back], 1 - step * back)
    for k, place in zip(order, places, strict=True):
        rule = {
            "arrowstyle": "-",
            "color": named[k].get_color(),
            "linewidth": 1.2,
            "shrinkA": 0,
            "shrinkB": 0,
            "relpos": (0, 0.5),  # to where the name begins: a line to its middle would cross other names
        }
        name, at = str(named[k].get_label()), (1, ends[k])
        axes.annotate(name, at, (1.05, place), "axes fraction", fontsize=9, va="center", arrowprops=rule)


def players_by_regime(
    shares: Mapping[Regime, Mapping[str, tuple[float, float, float]]], narrow: bool = False
) -> Figure:
    """A row for each regime, with NT/K on its right: a point and its interval for each player of the map.

    Narrow, for a phone, the regimes' titles stand above their points.
    """
    least = 1e-3
    figure, axes = plt.subplots(figsize=(3.6, 15) if narrow else (7.2, 11))
    right = axes.get_yaxis_transform()
    for place, (regime, by) in enumerate(shares.items()):
        for k, (name, (mean, low, high)) in enumerate(by.items()):
            colour, mark = PLAYERS[name].style or _FALLBACK
            y = place + (0.12 * k - 0.05 if narrow else 0.16 * (k - 2))
            axes.plot([max(low, least), high], [y, y], color=colour, linewidth=1)
            axes.plot(mean, y, mark, color=colour, markersize=4, label=PLAYERS[name].title or name)
        axes.axhline(place - 0.5, color="#888888", linewidth=0.3)
        axes.text(1.02, place + 0.2 * narrow, f"{regime.pulls:g}", va="center", fontsize=9, transform=right)
        if narrow:
            axes.text(0.01, place - 0.28, regime.title, va="center", fontsize=9, transform=right)
    axes.set(xscale="log", xlim=(least, 2), ylim=(len(shares) - 0.5, -0.5))
    axes.set_xlabel("regret over uniform play's")
    axes.grid(axis="y", visible=False)
    titles = [] if narrow else [regime.title for regime in shares]
    axes.set_yticks(range(len(titles)), titles, fontsize=9)
    handles = axes.get_legend_handles_labels()
    named = dict(zip(*reversed(handles), strict=True))
    figure.legend([*named.values()], [*named], loc="outside upper center", ncols=2 if narrow else 3)
    return figure


class Outcome(NamedTuple):
    """What an algorithm got and paid on one problem: its final ``regret`` (S,), and its mean bills in scalars."""

    regret: Tensor
    dense: float
    packed: float


def regret_against_scalars(rows: Mapping[str, Mapping[str, Outcome]]) -> Figure:
    """Final regret over scalars sent, a panel for each problem, every algorithm by its colour and marker.

    Filled at the mean regret and the dense bill; an arrow leads to the packed bill, hollow, where that is another. A
    thin line goes from the mean to the median, which has a dash. What sends nothing stands at 0.
    """
    high = math.ceil(len(rows) / 2)
    figure, grid = plt.subplots(high, 2, figsize=(9.5, 4.1 * high), squeeze=False)
    figure.set_layout_engine("constrained", hspace=0.08)
    sent = [bill for by in rows.values() for each in by.values() for bill in (each.dense, each.packed)]
    least = 10.0 ** math.floor(math.log10(min([bill for bill in sent if bill > 0], default=1)))
    for axes, (title, by) in zip(grid.flat, rows.items(), strict=False):
        for name, each in by.items():
            colour, marker = STYLES.get(name, _FALLBACK)
            mean, median = float(each.regret.mean()), float(each.regret.median())
            axes.plot([each.dense] * 2, [mean, median], color=colour, linewidth=0.8)
            axes.plot(each.dense, median, "_", color=colour, markersize=7)
            if each.packed != each.dense:
                arrow = {"arrowstyle": "->", "color": colour, "linewidth": 0.9, "shrinkB": 4}
                axes.annotate("", (each.packed, mean), (each.dense, mean), arrowprops=arrow)
                axes.plot(each.packed, mean, marker, color=colour, markersize=7, markerfacecolor="white")
            axes.plot(each.dense, mean, marker, color=colour, markersize=7, label=name)
        best = min(by, key=lambda name: float(by[name].regret.mean()))
        axes.set(title=f"{title} (lowest: {best})", yscale="log", xlim=(-0.5 * least, 30 * max(sent)))
        axes.set_xscale("symlog", linthresh=least, linscale=0.5)
        exponents = range(round(math.log10(least)) + 1, math.ceil(math.log10(max(sent))) + 1, 2)
        axes.set_xticks([0, *(10.0**exponent for exponent in exponents)])
        heights = [height for each in by.values() for height in (each.regret.mean(), each.regret.median())]
        narrow = max(heights) < 100 * min(heights)
        plain_ticks(axes.yaxis, (1, 2, 5) if narrow else (1,))
        axes.margins(y=0.12)
    for axes in grid[-1]:
        axes.set_xlabel("scalars sent")
    for axes in grid[:, 0]:
        axes.set_ylabel("final regret")
    most = max(grid.flat, key=lambda axes: len(axes.get_legend_handles_labels()[1]))
    figure.legend(*most.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
