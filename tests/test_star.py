"""The ledger against numbers worked out by hand."""

import torch

from fedgo.confidence import Tally
from fedgo.messages import scalars
from fedgo.star import Ledger, Message, Star, When


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def test_an_exchange_charges_every_client_both_ways_at_its_run_and_step():
    star = Star(5, Ledger.blank(3, 4))
    when = When(torch.tensor([0, 2]), torch.tensor([1, 3]))
    star.ask(lambda w: Message(w.expand(2, 5, 7).narrow(2, 0, 2), 2), Message(zeros(2, 1, 7), 7), when)
    down, up = torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, 4, dtype=torch.int64)
    down[0, 1] = down[2, 3] = 5 * 7
    up[0, 1] = up[2, 3] = 5 * 2
    assert torch.equal(star.ledger.down, down)
    assert torch.equal(star.ledger.up, up)


def test_charges_add_up_and_messages_arrive_unchanged():
    star = Star(2, Ledger.blank(1, 1))
    when = When(torch.tensor([0]), torch.tensor([0]))
    content = torch.arange(6.0).view(1, 1, 2, 3)
    message = Message(content, 6)
    assert torch.equal(star.broadcast(message, when), content)
    star.broadcast(message, when)
    assert star.ledger.down.tolist() == [[2 * 2 * 6]]


def test_statistics_cost_their_dense_size_and_only_senders_are_charged():
    star = Star(10, Ledger.blank(1, 1))
    when = When(torch.tensor([0]), torch.tensor([0]))
    statistics = Message(Tally(zeros(1, 10, 4), zeros(1, 10, 4)), scalars("dense", 201, 3, 4))
    star.collect(statistics, when, senders=1)
    assert star.ledger.up.item() == 201**2 + 201 == 40_602
    star.broadcast(statistics, when)
    assert star.ledger.down.item() == 406_020
