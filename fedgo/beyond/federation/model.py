"""The plan of an epoch, which the server of a federation makes for all clients by fitting a surrogate."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.method.advised import UCB1
from fedgo.beyond.method.networks import Linear
from fedgo.beyond.method.surrogates import Fitted, fitted, why_it_failed
from fedgo.confidence import Tally


class Course(NamedTuple):
    """The plan of one epoch, which the server makes for all clients, and the weights that were fitted last.

    Args:
        arms: The L arms to pull, (L,) int64; the clients take them in turn.
        length: The number of pulls by all clients after which the epoch ends. It may be larger than L; the clients then
            go on from the beginning of their shares.
        turn: The number of the client that takes the first arm.
        weights: With a network as surrogate, the d_w weights ŵ of the fit from which this plan was made, (d_w,), where
            the next fit may begin; if the arms of Phase I are planned again, those of the plan before. With the paper's
            network, which needs no plan, its parameter ŵ₀ that is fitted after Phase I, (d_w,). There are none, (0,),
            before they are fitted, with any other surrogate, and if independent arms replaced a fit that failed.
    """

    arms: Tensor
    length: int
    turn: int
    weights: Tensor


def course(plan: Plan, weights: Tensor, total: Tensor, each: Sequence[Tensor] = ()) -> Course:
    """Return the plan of the next epoch, which anyone with the same data and weights can recompute.

    If the fit fails, a warning says why, and independent arms are fitted instead. If there are no data, or if the
    second fit fails too, the arms of Phase I are planned again. A plan made from a fit has at most as many arms as
    pulls are left of the T₀ + NT pulls of the federation (T₀ in Phase I, and T for each of the N clients), or at most N
    if none is left. If the clients differ and their fit succeeds, it has at least N arms nevertheless, one for each.

    Args:
        plan: The public plan of the federation, with a fitting.
        weights: The d_w weights of the last fit of a network, (d_w,), or (0,) if there is none.
        total: The counts and sums of all clients together, (2, K) for K arms.
        each: The counts and sums of every client, N times (2, K). If the clients differ, they are needed, and the
            surrogate is fitted to them in place of ``total``. Otherwise they are not used.

    Raises:
        ImportError: A library that the fit needs is missing.
        RuntimeError: The clients differ, and ``each`` is empty.

    Warns:
        UserWarning: A fit fails.
    """
    assert plan.fitting is not None
    how, pulls, sigma = plan.fitting.how, int(total[0].sum()), plan.fitting.sigma
    before, order = Linear.kept(weights) if len(weights) else None, plan.order_of_ties[0]
    seen = torch.stack(list(each), 1) if plan.fitting.differ else total
    # as in the simulator, without the pulls of Phase I, unless the clients go on after the last round
    budget = max(plan.clients * plan.fitting.rounds, pulls - plan.length)
    turn, length = (pulls - plan.length) % plan.clients, how.until.length(pulls)
    left = plan.due - pulls if plan.due > pulls else plan.clients
    chosen = (plan.fitting.surrogate, seen, "arms are independent")
    simplest = (UCB1.surrogate, total, "Phase I goes on")
    for surrogate, data, instead in (chosen, simplest) if pulls > 0 else ():
        try:
            fit: Fitted = fitted(surrogate, plan.arms, Tally(*data), sigma, before)
            sites = len(fit.mean) // len(plan.arms)
            cells = how.epoch(fit, data[0], sigma, order, most=left, sites=sites, turn=turn, budget=budget)
        except Exception as error:
            why = why_it_failed(error)
            warnings.warn(f"the fit failed ({why}): until the next one {instead}", stacklevel=2)
        else:
            weights = fit.w if isinstance(fit, Linear) else weights[:0]
            return Course(cells % len(plan.arms), length, turn, weights)
    return Course(plan.first, plan.length, 0, weights)
