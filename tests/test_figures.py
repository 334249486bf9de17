"""Colours and markers that tell algorithms apart, and numbers at the ticks as the book prints them."""

import pytest
from matplotlib.figure import Figure

from fedgo.experiments.figures import STYLES, plain_ticks
from fedgo.experiments.roster import ALGORITHMS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_has_a_colour_and_a_marker_that_no_other_has(name):
    assert name in STYLES  # what has none is drawn in black, and near a dark grey nobody can tell it
    everybody = [player.style for other, player in ALGORITHMS.items() if other != name]
    for styles in zip(STYLES[name], zip(*everybody, strict=True), strict=True):
        assert styles[0] not in styles[1]
    # on no page does a colour mean somebody else, though a player of the map may be an algorithm under another name
    assert STYLES[name][0] not in [
        colour for colour, mark in STYLES.values() if (colour, mark) != STYLES[name]
    ]


@pytest.mark.parametrize(
    ("scale", "low", "high", "expected"),
    [
        ("linear", 0, 1200, ["0", "200", "400", "600", "800", "1,000", "1,200"]),
        ("linear", -0.5, 0.5, ["−0.4", "−0.2", "0", "0.2", "0.4"]),
        ("log", 20, 2000, ["20", "50", "100", "200", "500", "1,000", "2,000"]),
        ("log", 0.02, 0.08, ["0.02", "0.05"]),
    ],
)
def test_ticks_are_numbers_as_in_text_and_none_stands_between_them(scale, low, high, expected):
    axes = Figure().subplots()
    axes.set(yscale=scale, ylim=(low, high))
    plain_ticks(axes.yaxis)
    axes.figure.draw_without_rendering()
    ticks = axes.yaxis.get_major_ticks()
    shown = [tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high * (1 + 1e-9)]
    assert shown == expected
    assert not any(tick.label1.get_text() for tick in axes.yaxis.get_minor_ticks())
