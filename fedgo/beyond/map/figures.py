"""The figure of the regime map, with a row for each regime and a point for each player."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fedgo.beyond.map.roster import PLAYERS
from fedgo.experiments import figures
from fedgo.experiments.world import Regime

# The colour and the marker of each player of the map. A player of the paper's comparison has the same as there.
STYLES: Mapping[str, tuple[str, str]] = {
    **{name: player.style for name, player in PLAYERS.items() if player.style},
    **figures.STYLES,
}
FALLBACK = ("#000000", "p")


def players_by_regime(
    shares: Mapping[Regime, Mapping[str, tuple[float, float, float]]], narrow: bool = False
) -> Figure:
    """Return a figure with a row for each regime, and in it a point with its interval for each player.

    The number of pulls per arm, NT/K, is printed to the right of each row.

    Args:
        shares: For each regime and player the mean regret divided by that of uniform play, and the lower and the upper
            end of its interval.
        narrow: Whether the figure is for a phone. Then the title of each regime stands above its points.
    """
    least = 1e-3
    figure, axes = plt.subplots(figsize=(3.6, 19) if narrow else (7.2, 13))
    right = axes.get_yaxis_transform()
    for place, (regime, by) in enumerate(shares.items()):
        for k, (name, (mean, low, high)) in enumerate(by.items()):
            colour, mark = PLAYERS[name].style or FALLBACK
            y = place + (0.13 * k - 0.05 if narrow else 0.2 * (k - 1.5))
            axes.plot([max(low, least), high], [y, y], color=colour, linewidth=1)
            axes.plot(mean, y, mark, color=colour, markersize=6, label=PLAYERS[name].title or name)
        axes.axhline(place - 0.5, color="#888888", linewidth=0.3)
        axes.text(1.02, place + 0.2 * narrow, f"{regime.pulls:g}", va="center", fontsize=9, transform=right)
        if narrow:
            axes.text(0.01, place - 0.28, regime.title, va="center", fontsize=9, transform=right)
    axes.set(xscale="log", xlim=(least, 2), ylim=(len(shares) - 0.5, -0.5))
    axes.set_xlabel("regret divided by that of uniform play")
    axes.grid(axis="y", visible=False)
    titles = [] if narrow else [regime.title for regime in shares]
    axes.set_yticks(range(len(titles)), titles, fontsize=9)
    handles = axes.get_legend_handles_labels()
    named = dict(zip(*reversed(handles), strict=True))
    figure.legend([*named.values()], [*named], loc="outside upper center", ncols=2)
    return figure
