"""What one client plays by: the paper's model around ŵ₀, or a surrogate in epochs, with or without the guard.

Neither holds a formula: they are the learners of the simulator, for one client.

- `Linearised`: `fedgo.phase_two.EventTriggered`, lines 3–6 of Algorithm 1.
- `Epochal`: `fedgo.beyond.epochs.Epochs`, and around it `fedgo.beyond.guard.Guard` where there is a guarantee; the fit
  is to what the last ``NEWS`` brought, its own pulls since come on top.

What a fit begins from has to be in the client's file, so only numbers are handed from one fit to the next (`carried`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fedgo.beyond import guard
from fedgo.beyond.epochs import Epochs, Own, State
from fedgo.beyond.guard import Guard, TabularIntervals
from fedgo.beyond.optimist import Optimist
from fedgo.beyond.surrogates import ByEvidence, Fitted, Linear, Relinearised, Rivals, Surrogate
from fedgo.confidence import Tally
from fedgo.federation.plan import Around, Plan, each_pull
from fedgo.phase_two import State as Ridge
from fedgo.phase_two import drifted
from fedgo.simulation import largest


class Estimate(NamedTuple):
    """Of every arm, (K,) each: ``mean``, the index ``upper``, the upper end of an interval around the mean, and with a
    guard the ``certificate`` max U − L, by how much the arm is at most worse than the best one."""

    mean: Tensor
    upper: Tensor
    certificate: Tensor | None = None


class Model(Protocol):
    """A model of the arms after some pulls."""

    @property
    def gain(self) -> Tensor:
        """The log-ratio of the event that a file has to keep."""
        ...

    def index(self, retired: Tensor, order: Tensor) -> Tensor:
        """(K,), −∞ where ``retired`` (K,); ``order`` (K,) decides ties."""
        ...

    def fires(self, arm: Tensor) -> bool:
        """Whether to call for a synchronisation after a pull of ``arm`` ()."""
        ...

    @property
    def stale(self) -> bool:
        """Whether it is time to make the model of all its data again."""
        ...

    def learned(self, arm: Tensor, reward: Tensor) -> "Model":
        """The model after one more pull of ``arm`` ()."""
        ...

    def estimate(self) -> Estimate:
        """What it says of every arm."""
        ...


@dataclass(frozen=True)
class Linearised:
    """The paper's: ``around`` ŵ₀, and the ``state`` of one learner without leading axes."""

    plan: Plan
    around: Around
    state: Ridge

    @classmethod
    def of(cls, plan: Plan, around: Around, base: Tensor, own: Tally, gain: Tensor) -> "Linearised":
        """After the statistics ``base``, a vector v, the pulls ``own``, and their log-ratio ``gain``."""
        blank = Tally.blank(len(plan.arms))
        return cls(plan, around, Ridge(plan.posterior(around, base, own), own, gain, blank))

    @property
    def gain(self) -> Tensor:
        """As `Model` says."""
        return self.state.gain

    def index(self, retired: Tensor, order: Tensor) -> Tensor:
        """As `Model` says."""
        return self.around.learner.index(self.state).masked_fill(retired, -torch.inf)

    def fires(self, arm: Tensor) -> bool:
        """As `Model` says."""
        return bool(self.around.learner.fires(self.state, arm))

    @property
    def stale(self) -> bool:
        """As `Model` says."""
        return bool(drifted(self.state.fresh))

    def learned(self, arm: Tensor, reward: Tensor) -> "Linearised":
        """As `Model` says."""
        turn = torch.ones_like(self.gain)
        return replace(self, state=self.around.learner.pulled(self.state, arm, reward, turn))

    def estimate(self) -> Estimate:
        """As `Model` says."""
        return Estimate(self.state.posterior.mean, self.around.learner.index(self.state))


@dataclass(frozen=True)
class Epochal:
    """A surrogate in epochs at client ``me`` of ``plan``: its ``learner``, the state in which the epoch ``began``, the
    one ``now``, both with leading axes (1, 1, …), and the news ``base`` that they were made of."""

    plan: Plan
    me: int
    base: Tensor
    learner: Epochs | Guard
    began: Any
    now: Any

    @classmethod
    def of(
        cls, plan: Plan, me: int, base: Tensor, own: Tally, number: int, warm: Tensor, before: Any = None
    ) -> "Epochal":
        """After the news ``base`` (2K,) of exchange ``number`` and the pulls ``own``; the fit begins from ``warm``.

        The model ``before`` is asked for the fit where it has the same news. Exchange 2 ends Phase I, so the number of
        synchronisations p is at most ``number`` − 2.
        """
        if isinstance(before, cls) and before.base is base:
            model = replace(before, now=before.began)
        else:
            model = cls._begun(plan, me, Tally(*base.view(2, 1, -1)), number, warm)
            model = replace(model, base=base)
        found: Epochal = after(model, own)
        return found

    @classmethod
    def _begun(cls, plan: Plan, me: int, total: Tally, number: int, warm: Tensor) -> "Epochal":
        how = plan.fitting
        assert how is not None
        steps, blank = plan.clients * how.rounds, Tally.blank(1, len(plan.arms))
        ties, own_ties = plan.order_of_ties[:1].unsqueeze(0), plan.order_of_ties[me].view(1, 1, -1)
        epochs = Epochs(
            plan.clients, plan.arms.unsqueeze(0), plan.seed, (plan.run,), (how.surrogate,), blank, ties,
            how.sigma, how.kappa, how.until, how.planning, steps, plan.length,
        )  # fmt: skip
        syncs = torch.tensor([number - 2])
        turn = (total.counts.sum(-1).long() - plan.length) % plan.clients  # who is next where all take turns
        state = epochs.resume(total, syncs, turn, [_resumed(how.surrogate, warm)]).of_client(me)
        if how.guarantee is None:
            return cls(plan, me, plan.blank(), epochs, state, state)
        given = how.guarantee
        intervals = TabularIntervals(plan.clients, given.sigma, given.value, given.delta)
        gamma = given.threshold(len(plan.arms), plan.clients, how.rounds)
        optimist = Optimist(1, intervals, blank, gamma, given.patience)
        guarded = guard.State(optimist.resume(total, syncs), state)
        return cls(plan, me, plan.blank(), Guard(optimist, epochs, given.kappa, own_ties), guarded, guarded)

    @property
    def gain(self) -> Tensor:
        """0: the log-ratio follows from the pulls."""
        return torch.zeros((), dtype=torch.float64)

    @property
    def _epoch(self) -> State:
        found: State = self.now.proposer if isinstance(self.learner, Guard) else self.now
        return found

    @property
    def fit(self) -> Fitted:
        """The surrogate's fit to what the last news brought."""
        return self._epoch.fits[0]

    @property
    def _bounds(self) -> tuple[Tensor, Tensor] | None:
        """The guard's L and U, (K,) each."""
        if not isinstance(self.learner, Guard):
            return None
        interval = self.now.counted.interval
        return interval.lower[0, 0], interval.upper[0, 0]

    def index(self, retired: Tensor, order: Tensor) -> Tensor:
        """As `Model` says; where the planned or certified arm is retired, the upper ends."""
        index = self.learner.index(self.now)[0, 0]
        if bool(retired.any()) and bool(retired[largest(index, order)]):
            bounds = self._bounds
            index = self.estimate().upper if bounds is None else bounds[1]
        return index.masked_fill(retired, -torch.inf)

    def fires(self, arm: Tensor) -> bool:
        """As `Model` says; where clients do not take turns, also after the last pull of a plan."""
        return bool(self.learner.fires(self.now, arm.view(1, 1)))

    @property
    def stale(self) -> bool:
        """As `Model` says: with every news it is new."""
        return False

    def learned(self, arm: Tensor, reward: Tensor) -> "Epochal":
        """As `Model` says."""
        turn = torch.ones(1, 1, dtype=torch.float64)
        return replace(self, now=self.learner.learn(self.now, arm.view(1, 1), reward.view(1, 1), turn))

    def estimate(self) -> Estimate:
        """As `Model` says."""
        how, epoch, bounds = self.plan.fitting, self._epoch, self._bounds
        assert how is not None
        if isinstance(epoch.plan, Own):
            epochs = self.learner.proposal if isinstance(self.learner, Guard) else self.learner
            mean, upper = epoch.plan.posterior.mean[0, 0], epochs.index(epoch)[0, 0]
        else:
            mean, upper = self.fit.mean, self.fit.mean + how.kappa * self.fit.variance.clamp(min=0).sqrt()
        certificate = None if bounds is None else bounds[1].amax() - bounds[0]
        return Estimate(mean, upper, certificate)

    def notes(self, arm: Tensor) -> Mapping[str, Tensor]:
        """What the guard has to say of a pull of ``arm`` (), without a guard nothing; (1, 1) each."""
        if not isinstance(self.learner, Guard):
            return {}
        return self.learner.notes(self.now, self.learner.index(self.now), arm.view(1, 1))


def after(model: Any, own: Tally, offsets: Tensor | float = 0.0) -> Any:
    """The ``model`` after the pulls ``own``, arm by arm, each with the arm's mean residual on ``offsets`` (K,)."""
    means = offsets + own.sums / own.counts
    for arm in each_pull(own.counts):
        model = model.learned(arm, means[arm])
    return model


def carried(fit: Fitted) -> Tensor:
    """The numbers (n,) that the next fit begins from: ŵ of a `Linear`, those of all `Rivals`, of others none."""
    if isinstance(fit, Rivals):
        return torch.cat([carried(each) for each in fit.rivals])
    return fit.w if isinstance(fit, Linear) else torch.zeros(0, dtype=torch.float64)


def _resumed(surrogate: Surrogate, warm: Tensor) -> Fitted | None:
    """What stands for the fit before: it has the numbers ``warm`` of `carried`, and nothing else."""
    if not len(warm):
        return None
    if isinstance(surrogate, ByEvidence):
        sizes = [each.network.size if isinstance(each, Relinearised) else 0 for each in surrogate.surrogates]
        parts = zip(surrogate.surrogates, warm.split(sizes), strict=True)
        return Rivals(tuple(_resumed(each, part) for each, part in parts), 0)
    return Linear.kept(warm)
