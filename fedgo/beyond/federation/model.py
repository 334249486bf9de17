"""What is played by: the paper's model of a client, and the public plan that a server makes for all."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.beyond.advised import UCB1
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.wire import each_pull
from fedgo.beyond.surrogates.models import Fitted, fitted, why_it_failed
from fedgo.beyond.surrogates.networks import Linear
from fedgo.confidence import Tally, compress
from fedgo.phase_two import EventState, EventTriggered
from fedgo.simulation import largest


@dataclass(frozen=True)
class ClientModel:
    """`fedgo.phase_two.EventTriggered`, lines 3–6 of Algorithm 1, of one run and one client, around ŵ₀.

    The ``offsets`` f_x(ŵ₀) (K,) are taken from rewards before they are summed. The ``state`` has axes (1, 1, …) for the
    run and the client.
    """

    learner: EventTriggered
    offsets: Tensor
    state: EventState

    @classmethod
    def around(cls, plan: Plan, w0: Tensor) -> "ClientModel":
        """Return the model without data, linearised at ŵ₀ = ``w0`` (d_w,), with compressed gradients as features."""
        assert plan.network is not None
        features = compress(plan.network.gradients(w0, plan.arms)).features
        offsets, size = plan.network.values(w0, plan.arms), plan.network.size
        learner = EventTriggered(1, features[None, None], offsets[None, None], size, plan.settings)
        return cls(learner, offsets, learner.begin())

    def knowing(self, base: Tensor, own: Tensor) -> "ClientModel":
        """Return the model that knows the pulls of all, ``base`` (2, K), and then learns its ``own`` (2, K).

        Both are counts and sums of residuals. Each of its own pulls is learned with the mean of its arm.
        """
        model = replace(self, state=self.learner.resume(Tally(*base.unsqueeze(1))))
        means = self.offsets + own[1] / own[0]
        for arm in each_pull(own[0]):
            model = model.learned(arm, means[arm])
        return model

    def best(self, retired: Tensor, order: Tensor) -> int:
        """Return the arm with the largest index, none that is ``retired`` (K,); ``order`` (K,) decides ties."""
        index = self.learner.index(self.state)[0, 0]
        return int(largest(index.masked_fill(retired, -torch.inf), order))

    def fires(self, arm: Tensor) -> bool:
        """Return whether to call for a synchronisation after a pull of ``arm`` () (line 6)."""
        return bool(self.learner.fires(self.state, arm.view(1, 1)))

    def learned(self, arm: Tensor, reward: Tensor) -> "ClientModel":
        """Return the model after one more pull of ``arm`` (), which gave ``reward`` ()."""
        turn = torch.ones(1, 1, dtype=torch.float64)
        return replace(self, state=self.learner.learn(self.state, arm.view(1, 1), reward.view(1, 1), turn))


class Course(NamedTuple):
    """A public plan: the ``arms`` (L,) from client ``turn`` on, the ``length`` of the epoch, and the ``weights`` from
    which the next fit begins, ŵ of a network's."""

    arms: Tensor
    length: int
    turn: int
    weights: Tensor


def course(plan: Plan, weights: Tensor, total: Tensor, each: Sequence[Tensor] = ()) -> Course:
    """Return what is planned on the data ``total`` (2, K) of all, by the server and by whoever else is told them.

    If the clients differ, ``each`` has the data (2, K) of every client, which are fitted in place of the ``total``.
    If the fit fails, a warning says why, and independent arms are fitted in its place; an ``ImportError`` and a
    ``MemoryError`` are raised (`why_it_failed`). Without data, or if that fit fails too, Phase I goes on. The plan is
    never longer than what is left of the T₀ + NT pulls; where nothing is left, it has an arm for each client.
    """
    assert plan.fitting is not None
    how, pulls, sigma = plan.fitting.how, int(total[0].sum()), plan.fitting.sigma
    before, order = Linear.kept(weights) if len(weights) else None, plan.order_of_ties[0]
    pooled = data = Tally(*total)
    if plan.fitting.differ:
        data = Tally(*torch.stack(list(each), 1))
    budget = plan.clients * plan.fitting.rounds
    turn, length = (pulls - plan.length) % plan.clients, how.until.length(pulls)
    left = plan.due - pulls if plan.due > pulls else plan.clients
    tried = [
        (plan.fitting.surrogate, data, "arms are independent"),
        (UCB1.surrogate, pooled, "Phase I goes on"),
    ]
    for surrogate, seen, instead in tried if pulls > 0 else []:
        try:
            fit: Fitted = fitted(surrogate, plan.arms, seen, sigma, before)
            sites = len(fit.mean) // len(plan.arms)
            cells = how.epoch(
                fit, pooled.counts, sigma, order, most=left, sites=sites, turn=turn, budget=budget
            )
        except Exception as error:
            why = why_it_failed(error)
            warnings.warn(f"the fit failed ({why}): until the next one {instead}", stacklevel=2)
        else:
            weights = fit.w if isinstance(fit, Linear) else weights[:0]
            return Course(cells % len(plan.arms), length, turn, weights)
    return Course(plan.first, plan.length, 0, weights)
