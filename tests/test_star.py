"""The ledger against numbers worked out by hand."""

import torch

from fedgo.star import Ledger, Message, Star, When


def test_charges_add_up_only_senders_are_charged_and_messages_arrive_unchanged():
    when, content = When(torch.tensor([0]), torch.tensor([0])), torch.arange(6.0).view(1, 1, 2, 3)
    star = Star(10, Ledger.blank(1, 1))
    assert star.broadcast(Message(content, 6), when) is content
    star.broadcast(Message(content, torch.tensor([5])), when)
    assert star.collect(Message(content, 6), when, senders=1) is content
    star.collect(Message(content, torch.tensor([[1, 2, 3]])), when)  # of each sender
    assert (star.ledger.up.item(), star.ledger.down.item()) == (6 + 1 + 2 + 3, 10 * (6 + 5))
    free = star._replace(charged=False)
    assert free.broadcast(Message(content, 6), when) is free.collect(Message(content, 6), when) is content
    assert (star.ledger.up.item(), star.ledger.down.item()) == (12, 110)
