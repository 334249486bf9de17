"""The class F: layout of w, gradients against automatic differentiation, the loss that the oracle descends."""

import pytest
import torch
from instances import sample

from fedgo import Network, SingleUnit


@pytest.mark.parametrize(("d_x", "size"), [(6, 201), (8, 251), (10, 301)])
def test_the_papers_network_has_25_dx_plus_51_parameters(d_x, size):
    assert Network(d_x).size == size == 25 * d_x + 51


def test_values_are_the_printed_formula():
    network, w, x = Network(3, 4), sample(2, 21), sample(2, 5, 3, seed=1)
    w1, c1, w2, c2 = network.split(w)
    for run in range(2):
        for k in range(5):
            unit = 1 / (1 + (-(w1[run] @ x[run, k] + c1[run])).exp())
            assert torch.isclose(network.values(w, x)[run, k], w2[run] @ unit + c2[run], atol=1e-14)
    torch.testing.assert_close(SingleUnit(3).values(w[1, :3], x)[1, 4], torch.tanh(w[1, :3] @ x[1, 4]))


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


def test_all_shapes_broadcast_over_leading_dimensions():
    network, w, x = Network(3, 4), sample(5, 1, 21), sample(2, 7, 3)
    assert network.values(w, x).shape == (5, 2, 7)
    assert network.gradients(w, x).shape == (5, 2, 7, 21)
    torch.testing.assert_close(network.gradients(w, x)[3, 1], network.gradients(w[3, 0], x[1]))
