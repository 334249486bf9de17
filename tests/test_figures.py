"""Colours and markers that tell algorithms apart, and numbers at the ticks as the book prints them."""

import numpy as np
import pytest
import torch
from instances import made_trace
from matplotlib import pyplot as plt

from fedgo.experiments.roster import ALGORITHMS, SIX
from fedgo.pages.figures import (
    STYLES,
    regret_and_communication,
)
from fedgo.trace import Trace


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_has_a_colour_and_a_marker_that_no_other_has(name):
    assert name in STYLES  # what has none is drawn in black, and near a dark grey nobody can tell it
    everybody = [player.style for other, player in ALGORITHMS.items() if other != name]
    for styles in zip(STYLES[name], zip(*everybody, strict=True), strict=True):
        assert styles[0] not in styles[1]
    # on no page does a colour mean somebody else, though a player of the map may be an algorithm under another name
    others = [style for style in STYLES.values() if style != STYLES[name]]
    assert STYLES[name][0] not in [colour for colour, _ in others]


def ramp(regret: float, sent: int, steps: int = 500) -> Trace:
    """Two runs of which the first has the ``regret`` and the scalars ``sent`` in every step, and the second thrice."""
    each = torch.tensor([[1], [3]]).expand(2, steps)
    return made_trace(regret * each, sent * each)


def test_the_papers_figures_end_at_the_final_means_and_nothing_leaves_their_axes_at_the_end():
    sends = [name for name in SIX if name != "N-GO-UCB"]
    dense = {a: ramp(k + 1, 1000 * k * (a in sends)) for k, a in enumerate(SIX, 1)}
    packed = {a: ramp(9, k) for k, a in enumerate(sends, 1)}
    figure = regret_and_communication(*(dict.fromkeys(("one", "two"), of) for of in (dense, packed)))
    assert len(figure.axes) == 6
    for panels in (figure.axes[:3], figure.axes[3:]):
        drawn = (dense, {a: dense[a] for a in sends}, packed)
        quantities = ("cumulative_regret", "communication", "communication")
        for panel, traces, values in zip(panels, drawn, quantities, strict=True):
            low, high = panel.get_ylim()
            assert panel.get_yscale() == "log"
            assert [line.get_label() for line in panel.lines] == [*traces]
            for line, trace in zip(panel.lines, traces.values(), strict=True):
                x, y = np.asarray(line.get_xydata())[-1]
                assert (x, y) == (500, getattr(trace, values)[:, -1].double().mean()) and low < y < high
        assert panels[1].get_ylim() == panels[2].get_ylim() != panels[0].get_ylim()
        assert [text.get_text() for text in panels[1].texts] == ["N-GO-UCB: none"]
    plt.close(figure)
