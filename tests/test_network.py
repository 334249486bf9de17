"""The class F: layout of w, gradients against automatic differentiation, the loss that the oracle descends."""

import pytest
import torch
from instances import sample

from fedgo import Network, SingleUnit


@pytest.mark.parametrize(("d_x", "size"), [(6, 201), (8, 251), (10, 301)])
def test_the_papers_network_has_25_dx_plus_51_parameters(d_x, size):
    assert Network(d_x).size == size == 25 * d_x + 51


MODELS = pytest.mark.parametrize("network", [Network(3, 4), SingleUnit(3)])


@MODELS
def test_gradients_are_those_of_automatic_differentiation(network):
    w, x = sample(2, network.size), sample(2, 5, 3, seed=1)
    expected = torch.func.vmap(torch.func.jacrev(network.values))(w, x)
    torch.testing.assert_close(network.gradients(w, x), expected, rtol=0, atol=1e-14)


@MODELS
def test_squared_loss_counts_only_the_masked_points_and_gives_its_own_gradient(network):
    w, x, y = sample(2, network.size), sample(2, 4, 3, seed=1), sample(2, 4, seed=2)
    mask = torch.tensor([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    w.requires_grad_()
    loss, gradient = network.squared_loss(w, x, y, mask)
    expected = (mask * (y - network.values(w, x)) ** 2).sum(-1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), w)[0])
