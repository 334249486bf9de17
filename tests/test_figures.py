"""Numbers as the book prints them, and curves that stay visible where two algorithms do the same."""

import itertools

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedgo.experiments.figures import (
    BEYOND,
    STYLES,
    Outcome,
    band,
    name_ends,
    plain_ticks,
    regret_against_scalars,
)
from fedgo.experiments.roster import ALGORITHMS, YARDSTICKS


def test_curves_that_are_equal_show_markers_of_their_own():
    axes = Figure().subplots()
    for name in STYLES:
        band(axes, name, torch.arange(1000.0).expand(3, -1))
    starts = [line.get_markevery()[0] for line in axes.lines]
    assert all(0 <= start < 0.1 for start in starts)
    gaps = [abs(a - b) for a in starts for b in starts if a != b]
    assert len(set(starts)) == len(STYLES) and min(gaps) > 0.1 / len(STYLES) - 1e-9


@pytest.mark.parametrize("name", ALGORITHMS | YARDSTICKS)
def test_an_algorithm_has_a_colour_and_a_marker_that_no_other_has(name):
    assert name in STYLES  # what has none is drawn in black, and near a dark grey nobody can tell it
    others = [style for other, style in STYLES.items() if other != name]
    colours = [colour for colour, _ in others + list(BEYOND.values())]
    assert STYLES[name][0] not in colours  # on no page does a colour mean somebody else
    assert all(style not in of for style, of in zip(STYLES[name], zip(*others, strict=True), strict=True))


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


def outcomes(regrets, bills, packed):
    """One problem with the algorithms of the book, each with two runs around its regret."""
    return {
        name: Outcome(torch.tensor([0.5, 1.5]) * regret, dense, small)
        for name, regret, dense, small in zip(STYLES, regrets, bills, packed, strict=False)
    }


@pytest.fixture
def trade_off():
    """Two problems; on the second two algorithms have the same point, and the last sends nothing."""
    figure = regret_against_scalars(
        {
            "One": outcomes([300, 200, 900], [1e7, 1e9, 1e5], [1e4, 1e5, 1e5]),
            "Two": outcomes([300, 300, 100, 900], [1e7, 1e7, 1e5, 0], [1e4, 1e4, 1e5, 0]),
        }
    )
    yield figure
    plt.close(figure)


def test_every_algorithm_has_its_colour_and_marker_in_the_legend(trade_off):
    (legend,) = trade_off.legends
    assert [text.get_text() for text in legend.get_texts()] == list(STYLES)[:4]


def test_dense_is_filled_packed_is_hollow_and_the_title_names_the_lowest(trade_off):
    one, two = trade_off.axes
    filled = {tuple(line.get_xydata()[0]) for line in one.lines if line.get_markerfacecolor() != "white"}
    hollow = {tuple(line.get_xydata()[0]) for line in one.lines if line.get_markerfacecolor() == "white"}
    assert {(1e7, 300.0), (1e9, 200.0), (1e5, 900.0)} <= filled
    assert hollow == {(1e4, 300.0), (1e5, 200.0)}
    assert (one.get_title(), two.get_title()) == ("One (lowest: One-GO-UCB)", "Two (lowest: N-GO-UCB)")
    assert two.get_xlim()[0] < 0


def test_a_median_of_zero_has_no_place_on_a_logarithmic_axis_and_its_mean_has_one():
    zero = Outcome(torch.tensor([0.0, 0.0, 12.0]), 1e5, 1e4)
    figure = regret_against_scalars(
        {"One": {"UCB1": zero, "Uniform": Outcome(torch.tensor([9.0]), 0.0, 0.0)}}
    )
    figure.canvas.draw()
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"UCB1", "Uniform"}
    plt.close(figure)


@pytest.mark.slow
@pytest.mark.parametrize("heights", [range(10), [5.0] * 10, [0.0, *range(9)], [9.0] * 9 + [8.9]])
def test_every_curve_has_its_name_at_its_end_and_no_name_hides_another(heights):
    figure = plt.figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for name, height in zip(STYLES, heights, strict=True):
        band(axes, name, torch.linspace(0, height, 500).expand(2, -1))
    name_ends(axes)
    figure.canvas.draw()
    boxes = {text.get_text(): Text.get_window_extent(text) for text in axes.texts}  # without its line
    assert sorted(boxes) == sorted(STYLES)
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes.values())
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.height for box in boxes.values())
    order = sorted(boxes, key=lambda name: boxes[name].y0)
    assert all(boxes[low].y1 <= boxes[high].y0 + 2 for low, high in itertools.pairwise(order))
    ends = dict(zip(STYLES, heights, strict=True))
    assert [ends[name] for name in order] == sorted(heights)
    plt.close(figure)
