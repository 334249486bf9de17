"""The class F: gradients against automatic differentiation."""

import pytest
import torch
from instances import sample

from fedgo import Network, SingleUnit


@pytest.mark.parametrize("network", [Network(3, 4), SingleUnit(3)])
def test_gradients_are_those_of_automatic_differentiation(network):
    w, x = sample(2, network.size), sample(2, 5, 3, seed=1)
    expected = torch.func.vmap(torch.func.jacrev(network.values))(w, x)
    torch.testing.assert_close(network.gradients(w, x), expected, rtol=0, atol=1e-14)
