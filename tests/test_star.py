"""The ledger against numbers worked out by hand."""

import torch

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


def test_charges_add_up_only_senders_are_charged_and_messages_arrive_unchanged():
    when, content = When(torch.tensor([0]), torch.tensor([0])), torch.arange(6.0).view(1, 1, 2, 3)
    star = Star(10, Ledger.blank(1, 1))
    assert star.broadcast(Message(content, 6), when) is content
    star.broadcast(Message(content, torch.tensor([5])), when)
    star.broadcast(Message(content, torch.tensor([[4, 5, 6]])), when)  # to each client its part
    assert star.collect(Message(content, 6), when, senders=1) is content
    star.collect(Message(content, torch.tensor([[1, 2, 3]])), when)  # of each sender
    assert (star.ledger.up.item(), star.ledger.down.item()) == (6 + 1 + 2 + 3, 10 * (6 + 5) + 4 + 5 + 6)
    free = star._replace(charged=False)
    assert free.broadcast(Message(content, 6), when) is free.collect(Message(content, 6), when) is content
    assert (star.ledger.up.item(), star.ledger.down.item()) == (12, 125)
