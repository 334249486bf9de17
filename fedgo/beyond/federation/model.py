"""The models by which a federation plays: the paper's model of one client, and the plan that a server makes for all."""

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
    """The model by which one client of the paper's algorithm plays Phase II (lines 3–6 of Algorithm 1).

    Args:
        learner: `fedgo.phase_two.EventTriggered` for one run and one client, linearised at ŵ₀.
        offsets: The predictions f_x(ŵ₀) of the K arms, (K,). A client subtracts them from rewards before it sums them.
        state: The learner's state, whose first two axes, of length 1 each, are the run and the client.
    """

    learner: EventTriggered
    offsets: Tensor
    state: EventState

    @classmethod
    def around(cls, plan: Plan, w0: Tensor) -> "ClientModel":
        """Return the model without data, linearised at ŵ₀.

        Args:
            plan: The public plan, which has a network.
            w0: The parameters ŵ₀ of the network, (d_w,).
        """
        assert plan.network is not None
        features = compress(plan.network.gradients(w0, plan.arms)).features
        offsets, size = plan.network.values(w0, plan.arms), plan.network.size
        learner = EventTriggered(1, features[None, None], offsets[None, None], size, plan.settings)
        return cls(learner, offsets, learner.begin())

    def knowing(self, base: Tensor, own: Tensor) -> "ClientModel":
        """Return the model that has learned the synchronised pulls, and then the client's later pulls one by one.

        Args:
            base: The counts and the sums of residuals of all clients at the last synchronisation, (2, K).
            own: The counts and the sums of residuals of this client's pulls since then, (2, K). The model learns each
                of these pulls with the mean reward of its arm, because single rewards are not stored.
        """
        model = replace(self, state=self.learner.resume(Tally(*base.unsqueeze(1))))
        means = self.offsets + own[1] / own[0]
        for arm in each_pull(own[0]):
            model = model.learned(arm, means[arm])
        return model

    def best(self, retired: Tensor, order: Tensor) -> int:
        """Return the number of the arm with the largest index among those that are not retired.

        Args:
            retired: Whether each arm is retired, (K,) bool.
            order: The order in which ties are broken, (K,): of the arms that tie up to rounding, the one with the
                largest entry of ``order`` is taken.

        Raises:
            ValueError: The index of an arm is NaN.
        """
        index = self.learner.index(self.state)[0, 0]
        return int(largest(index.masked_fill(retired, -torch.inf), order))

    def fires(self, arm: Tensor) -> bool:
        """Return whether one more pull of ``arm``, () int64, fulfils the condition of line 6 of Algorithm 1.

        If it does, the client asks for a synchronisation. The reward of the pull does not matter.
        """
        return bool(self.learner.fires(self.state, arm.view(1, 1)))

    def learned(self, arm: Tensor, reward: Tensor) -> "ClientModel":
        """Return the model after one more pull of ``arm``, () int64, which gave ``reward``, () float64."""
        turn = torch.ones(1, 1, dtype=torch.float64)
        return replace(self, state=self.learner.learn(self.state, arm.view(1, 1), reward.view(1, 1), turn))


class Course(NamedTuple):
    """The plan of one epoch, which the server makes for all clients.

    Args:
        arms: The L arms to pull, (L,) int64; the clients take them in turn.
        length: The number of pulls by all clients after which the epoch ends.
        turn: The number of the client that takes the first arm.
        weights: The weights ŵ of the last fit of a network, (d_w,), from which the next fit begins; (0,) for any other
            surrogate.
    """

    arms: Tensor
    length: int
    turn: int
    weights: Tensor


def course(plan: Plan, weights: Tensor, total: Tensor, each: Sequence[Tensor] = ()) -> Course:
    """Return the plan of the next epoch, which anyone with the same data and weights can recompute.

    If the fit fails, a warning says why, and independent arms are fitted instead. If there are no data, or if the
    second fit fails too, the arms of Phase I are planned again. A plan made from a fit is never longer than what is
    left of the T₀ + NT pulls of the federation (T₀ in Phase I, and T for each of the N clients); if nothing is left, it
    has at most N arms.

    Args:
        plan: The public plan of the federation, with a fitting.
        weights: The weights of the last fit of a network, (d_w,), or (0,) if there is none.
        total: The counts and sums of all clients together, (2, K).
        each: If the clients differ, the counts and sums of every client, N times (2, K), which are fitted in place of
            ``total``.

    Raises:
        ImportError: A library that the fit needs is missing.
        MemoryError: The fit needs more memory than there is.

    Warns:
        UserWarning: A fit fails.
    """
    assert plan.fitting is not None
    how, pulls, sigma = plan.fitting.how, int(total[0].sum()), plan.fitting.sigma
    before, order = Linear.kept(weights) if len(weights) else None, plan.order_of_ties[0]
    seen = torch.stack(list(each), 1) if plan.fitting.differ else total
    budget = plan.clients * plan.fitting.rounds
    turn, length = (pulls - plan.length) % plan.clients, how.until.length(pulls)
    left = plan.due - pulls if plan.due > pulls else plan.clients
    chosen = (plan.fitting.surrogate, seen, "arms are independent")
    simplest = (UCB1.surrogate, total, "Phase I goes on")
    for surrogate, data, instead in (chosen, simplest) if pulls > 0 else ():
        try:
            fit: Fitted = fitted(surrogate, plan.arms, Tally(*data), sigma, before)
            sites = len(fit.mean) // len(plan.arms)
            cells = how.epoch(fit, total[0], sigma, order, most=left, sites=sites, turn=turn, budget=budget)
        except Exception as error:
            why = why_it_failed(error)
            warnings.warn(f"the fit failed ({why}): until the next one {instead}", stacklevel=2)
        else:
            weights = fit.w if isinstance(fit, Linear) else weights[:0]
            return Course(cells % len(plan.arms), length, turn, weights)
    return Course(plan.first, plan.length, 0, weights)
