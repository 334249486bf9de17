"""The checks at the public edge: what each of them refuses and lets pass, and that its error says what and how."""

import math
from decimal import Decimal

import numpy as np
import pytest
import torch

from fedgo._checks import MOST, count, number, require_each, tensor

ONES = torch.ones(2, 3, dtype=torch.float64)


@pytest.mark.parametrize("value", [0, -1, MOST + 1, 10**19])
def test_a_count_lies_in_its_range(value):
    with pytest.raises(ValueError, match=f"n is {value}: give some"):
        count("n", value, "give some")
    assert [count("n", given, "") for given in (1, np.int64(7), MOST)] == [1, 7, MOST]
    assert count("n", 0, "", least=0) == 0 and count("n", 10**19, "", most=math.inf) == 10**19


@pytest.mark.parametrize("kind", ["1", None, True, torch.tensor(1), torch.tensor(1.0), Decimal(1), 1j, [1.0]])
def test_a_number_is_real_and_a_count_is_a_whole_number(kind):
    with pytest.raises(TypeError, match=r"x is .*: give a number; above 0"):
        number("x", kind, "above 0", above=0)
    for given in (kind, 2.0):
        with pytest.raises(TypeError, match=r"n is .*: give a whole number; at least 1"):
            count("n", given, "at least 1")


@pytest.mark.parametrize("value", [0.0, -1, math.nan, math.inf, -math.inf, 10**400])
def test_a_number_is_finite_and_in_its_range(value):
    with pytest.raises(ValueError, match=r"x is .*: above 0"):
        number("x", value, "above 0", above=0)
    assert number("x", np.float64(0.5), "", above=0) == 0.5 and number("x", 0, "", least=0) == 0.0
    assert number("x", math.inf, "", least=0, infinite=True) == math.inf


@pytest.mark.parametrize("kind", [ONES.numpy(), ONES.tolist(), None, 1.0])
def test_a_tensor_is_torchs(kind):
    with pytest.raises(TypeError, match=r"(?s)x is .*torch\.as_tensor"):
        tensor("x", kind)


@pytest.mark.parametrize("other", [ONES.float(), ONES.long(), ONES.to("meta"), ONES.to_sparse()])
def test_a_tensor_is_dense_float64_on_the_cpu(other):
    with pytest.raises(ValueError, match=r"the kind of x is .*give float64 on the CPU"):
        tensor("x", other)
    assert tensor("x", ONES) is ONES


def test_the_first_entry_that_is_wrong_is_named():
    values = ONES.clone()
    values[1, 2] = -3.0
    with pytest.raises(ValueError, match=r"x\[1, 2\] is -3.0: give more"):
        require_each(values > 0, "x", values, "give more")
