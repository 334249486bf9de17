"""What one client plays by: a learner of the simulator for one run and one client, resumed from counts and sums (2, K).

- Around ŵ₀ it is `fedgo.phase_two.EventTriggered`, lines 3–6 of Algorithm 1; without a network the arms are features.
- A surrogate in epochs is `fedgo.beyond.epochs.Epochs`, with a guarantee `fedgo.beyond.guard.Guard` around it.
- Where the server plans (`course`) a client has no model.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo.beyond import epochs, guard
from fedgo.beyond.advised import UCB1
from fedgo.beyond.epochs import Epochs, Own
from fedgo.beyond.guard import Guard, TabularIntervals
from fedgo.beyond.optimist import Optimist
from fedgo.beyond.surrogates import Fitted, Linear
from fedgo.confidence import Tally, compress
from fedgo.federation.plan import Fitting, Plan
from fedgo.federation.wire import each_pull
from fedgo.phase_two import EventTriggered
from fedgo.simulation import Learner, largest


class Estimate(NamedTuple):
    """Of every arm, (K,) each: ``mean``, the index ``upper``, the upper end of an interval around the mean, and with a
    guard the ``certificate`` max U − L, by how much the arm is at most worse than the best one."""

    mean: Tensor
    upper: Tensor
    certificate: Tensor | None = None


@dataclass(frozen=True)
class Model:
    """A ``learner`` and its ``state``, with axes (1, 1, …) for the run and the client.

    The ``offsets`` (K,) are taken from rewards before they are summed: f_x(ŵ₀), or 0. The ``weights`` (n,) are all that
    the next model needs of this one: ŵ₀, or those from which a surrogate's next fit begins.
    """

    learner: Learner[Any]
    state: Any
    offsets: Tensor
    weights: Tensor

    def best(self, retired: Tensor, order: Tensor) -> int:
        """The arm to pull; if that is ``retired`` (K,), another by the upper ends; ``order`` (K,) decides ties."""
        index = self.learner.index(self.state)[0, 0]
        if bool(retired[largest(index, order)]):
            guarded = isinstance(self.learner, Guard)
            index = self.state.counted.interval.upper[0, 0] if guarded else self.estimate().upper
        return int(largest(index.masked_fill(retired, -torch.inf), order))

    def fires(self, arm: Tensor) -> bool:
        """Whether to call for a synchronisation after a pull of ``arm`` ()."""
        return bool(self.learner.fires(self.state, arm.view(1, 1)))

    def learned(self, arm: Tensor, reward: Tensor) -> "Model":
        """The model after one more pull of ``arm`` ()."""
        turn = torch.ones(1, 1, dtype=torch.float64)
        return replace(self, state=self.learner.learn(self.state, arm.view(1, 1), reward.view(1, 1), turn))

    def after(self, data: Tensor) -> "Model":
        """The model after pulls of its own, ``data`` (2, K): arm by arm, each with the mean of its arm."""
        model, (counts, sums) = self, data
        means = self.offsets + sums / counts
        for arm in each_pull(counts):
            model = model.learned(arm, means[arm])
        return model

    def estimate(self) -> Estimate:
        """What it says of every arm."""
        learner, state = self.learner, self.state
        if isinstance(learner, Guard):
            interval = state.counted.interval
            proposal = replace(self, learner=learner.proposal, state=state.proposer).estimate()
            return proposal._replace(certificate=(interval.upper.amax() - interval.lower)[0, 0])
        if isinstance(learner, EventTriggered):
            return Estimate(state.posterior.mean[0, 0], learner.index(state)[0, 0])
        assert isinstance(learner, Epochs)
        if isinstance(state.plan, Own):
            return Estimate(state.plan.posterior.mean[0, 0], learner.index(state)[0, 0])
        fit = state.fits[0]
        return Estimate(fit.mean, fit.mean + learner.kappa * fit.variance.clamp(min=0).sqrt())

    def notes(self, arm: Tensor) -> dict[str, Tensor]:
        """What a guard has to say of a pull of ``arm`` (), without a guard nothing; () each."""
        if not isinstance(self.learner, Guard):
            return {}
        notes = self.learner.notes(self.state, self.learner.index(self.state), arm.view(1, 1))
        return {name: value.squeeze() for name, value in notes.items()}


def around(plan: Plan, w0: Tensor, news: Tensor, before: Model | None = None) -> Model:
    """The paper's model after the ``news`` (2, K), on the coordinates of the arms' gradients at ŵ₀ = ``w0`` (d_w,).

    They are those of the model ``before``, if that is around the same ŵ₀.
    """
    server = Tally(*news.unsqueeze(1))
    if before is not None and before.weights is w0 and isinstance(before.learner, EventTriggered):
        return replace(before, state=before.learner.resume(server))
    features, offsets, dimension = plan.arms, torch.zeros(len(plan.arms)).double(), plan.arms.shape[1]
    if plan.network is not None:
        features = compress(plan.network.gradients(w0, plan.arms)).features
        offsets, dimension = plan.network.values(w0, plan.arms), plan.network.size
    assert plan.settings is not None
    learner = EventTriggered(1, features[None, None], offsets[None, None], dimension, plan.settings)
    return Model(learner, learner.resume(server), offsets, w0)


def in_epochs(
    plan: Plan, how: Fitting, client: int, weights: Tensor, news: Tensor, synchronisations: int
) -> Model:
    """A surrogate's model of ``client`` when an epoch begins, its fit from the last one's ``weights`` on."""
    learner, state = _begun(plan, how, weights, news, synchronisations)
    state = state.of_client(client)
    model = Model(learner, state, torch.zeros(len(plan.arms)).double(), _weights_of(state.fits[0]))
    guarantee = how.guarantee
    if guarantee is None:
        return model
    intervals = TabularIntervals(plan.clients, guarantee.sigma, guarantee.value, guarantee.delta)
    gamma = guarantee.threshold(len(plan.arms), plan.clients, how.rounds)
    optimist = Optimist(1, intervals, learner.first, gamma, guarantee.patience)
    guarded = Guard(optimist, learner, guarantee.kappa, plan.order_of_ties[None, client : client + 1])
    begun = optimist.resume(Tally(*news.unsqueeze(1)), torch.tensor([synchronisations]))
    return replace(model, learner=guarded, state=guard.State(begun, state))


class Course(NamedTuple):
    """A public plan: the ``arms`` (L,) from client ``turn`` on, the ``length`` of the epoch, and the ``weights`` from
    which the next fit begins."""

    arms: Tensor
    length: int
    turn: int
    weights: Tensor


def course(plan: Plan, how: Fitting, weights: Tensor, total: Tensor, synchronisations: int) -> Course:
    """What the server plans on the data ``total`` (2, K) of all, its fit from the last one's ``weights`` on.

    A fit that fails is made of independent arms in its place, with a warning; without data Phase I goes on.
    """
    if not bool(total[0].any()):
        return Course(plan.first, plan.length, 0, weights)
    try:
        _, state = _begun(plan, how, weights, total, synchronisations)
    except ValueError as error:
        warnings.warn(f"{error}; until the next one arms are independent", stacklevel=2)
        _, state = _begun(plan, replace(how, surrogate=UCB1.surrogate), weights, total, synchronisations)
    length = int(state.length)
    assert isinstance(state.plan, Tensor)
    turn = -int(state.place[0, 0]) % plan.clients
    return Course(state.plan[0, :length], length, turn, _weights_of(state.fits[0]))


def _begun(
    plan: Plan, how: Fitting, weights: Tensor, data: Tensor, synchronisations: int
) -> tuple[Epochs, epochs.State]:
    """The learner of all clients, and its state when an epoch begins on ``data`` (2, K)."""
    server, syncs = Tally(*data.unsqueeze(1)), torch.tensor([synchronisations])
    unknown, ties = Tally.blank(1, len(plan.arms)), plan.order_of_ties
    learner = Epochs(
        plan.clients, plan.arms.unsqueeze(0), (plan.run,), (how.surrogate,), unknown, ties[None, :1],
        how.sigma, how.kappa, how.until, how.planning, plan.clients * how.rounds, plan.length, how.untried,
    )  # fmt: skip
    turn = (server.counts.sum(-1).long() - plan.length) % plan.clients  # who is next where all take turns
    return learner, learner.resume(server, syncs, turn, [Linear.kept(weights) if len(weights) else None])


def _weights_of(fit: Fitted) -> Tensor:
    """Those from which the next fit begins (n,): ŵ of a `Linear`, of others none."""
    return fit.w if isinstance(fit, Linear) else torch.zeros(0, dtype=torch.float64)
