"""Numbers as the book prints them, and curves that stay visible where two algorithms do the same."""

import math

import pytest
import torch
from matplotlib.figure import Figure

from fedgo.paper.figures import STYLES, band, number


@pytest.mark.parametrize(
    ("value", "digits", "printed"),
    [
        (0, 2, "0"),
        (-0.0, 1, "0"),
        (0.0012345, 2, "0.0012"),
        (0.25, 1, "0.2"),
        (-1.5, 2, "−1.5"),
        (12.34, 2, "12"),
        (12345, 2, "12,345"),
        (99999.6, 3, r"$1.00\cdot10^{5}$"),
        (1e-9, 1, "$10^{-9}$"),
        (2.64e5, 2, r"$2.6\cdot10^{5}$"),
        (-3e-7, 1, r"$-3\cdot10^{-7}$"),
        (math.inf, 2, r"$\infty$"),
        (-math.inf, 2, r"$-\infty$"),
        (math.nan, 2, "–"),
    ],
)
def test_a_number_is_printed_as_one_writes_it(value, digits, printed):
    assert number(value, digits) == printed


def test_curves_that_are_equal_show_markers_of_their_own():
    axes = Figure().subplots()
    for name in STYLES:
        band(axes, name, torch.arange(1000.0).expand(3, -1))
    starts = [line.get_markevery()[0] for line in axes.lines]
    assert all(0 <= start < 0.1 for start in starts)
    gaps = [abs(a - b) for a in starts for b in starts if a != b]
    assert len(set(starts)) == len(STYLES) and min(gaps) > 0.01
