"""Fed-GLB-UCB (Li and Wang, NeurIPS 2022): a generalised linear model E[y] = μ(xᵀθ), one Newton step at a time.

Between synchronisations a client takes online Newton steps θ ← θ − A⁻¹x(μ(xᵀθ) − y)/c_μ and collects b ← b + x xᵀθ
(θ before the step); its index is xᵀA⁻¹b + √β‖x‖_{A⁻¹}, A = λI + Σ xxᵀ. On the same event as DisLinUCB the clients
upload ΔA, fit θ to all data by accelerated gradient descent (2N d_x scalars a round) until the regularised loss per
datum is within 1/(Nt)² of its minimum, and download A, b = (A − λI)θ and θ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedgo.checks import require
from fedgo.confidence import Tally
from fedgo.encoding import names_arms, scalars
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.simulate import Explored, Trace, place, simulate
from fedgo.star import Handler, Star, Summed, When, answer

MOST_ROUNDS = 50_000  # of one fit; reaching it is an error, not a silent stop

Ask = Callable[[Handler, Tensor, When], Summed]


class Link(NamedTuple):
    """The link μ with the bounds c_μ = ``least`` ≤ μ' ≤ ``most`` that the Newton step and the descent use."""

    mean: Callable[[Tensor], Tensor]
    least: float
    most: float


LINKS = {
    "identity": Link(lambda z: z, 1.0, 1.0),
    "logistic": Link(torch.sigmoid, 0.1, 0.25),  # μ' ≥ 0.1 for |xᵀθ| ≤ 2
}


class Gram(NamedTuple):
    """The message ΔA or A, ``matrix`` (R, ..., d, d), in one of the encodings."""

    matrix: Tensor
    scalars: Tensor


class State(NamedTuple):
    """Per learner (S, N, …): A⁻¹, b, θ, all own data as a `Tally` of rewards, pulls and log-ratio since the sync.

    ``gram`` (S, d, d) is the server's A and ``fitted`` (S, d) its θ, from which its next fit starts.
    """

    inverse: Tensor
    b: Tensor
    theta: Tensor
    own: Tally
    fresh: Tensor
    gain: Tensor
    gram: Tensor
    fitted: Tensor


@dataclass(frozen=True)
class GeneralisedLinear:
    """N = ``learners`` clients with generalised linear models on ``arms`` (S, K, d_x)."""

    learners: int
    arms: Tensor
    settings: Settings
    link: Link

    def begin(self) -> State:
        """A = λI, b = θ = 0."""
        runs, arms, d = self.arms.shape
        eye = torch.eye(d, dtype=torch.float64)
        shape = (runs, self.learners)
        blank = torch.zeros(*shape, arms, dtype=torch.float64)
        vector = torch.zeros(*shape, d, dtype=torch.float64)
        return State(
            (eye / self.settings.lam).expand(*shape, d, d),
            vector,
            vector,
            Tally(blank, blank),
            blank,
            torch.zeros(shape, dtype=torch.float64),
            (self.settings.lam * eye).expand(runs, d, d),
            vector[:, 0],
        )

    def index(self, state: State) -> Tensor:
        """xᵀA⁻¹b + √β‖x‖_{A⁻¹}; μ increases, so the index is that of the linear part."""
        arms = self.arms.unsqueeze(1)
        seen = arms @ state.inverse
        mean = (seen @ state.b.unsqueeze(-1)).squeeze(-1)
        width = (seen * arms).sum(-1).clamp(min=0).sqrt()
        return mean + math.sqrt(self.settings.beta) * width

    def fires(self, state: State, arm: Tensor) -> Tensor:
        """The event of DisLinUCB, for A after the pull."""
        _, width = self._pulled(state, arm)
        return (state.fresh.sum(-1) + 1) * (state.gain + width.log1p()) > self.settings.gamma

    def learn(self, state: State, arm: Tensor, reward: Tensor, turn: Tensor) -> State:
        """Absorb the pull into A and b, and take the online Newton step."""
        x, width = self._pulled(state, arm)
        predicted = (x * state.theta).sum(-1)
        seen = (state.inverse @ x.unsqueeze(-1)).squeeze(-1) / (1 + width).sqrt().unsqueeze(-1)
        taken = seen * turn.unsqueeze(-1)
        inverse = state.inverse - taken.unsqueeze(-1) * taken.unsqueeze(-2)
        slope = turn * (self.link.mean(predicted) - reward) / self.link.least
        newton = (inverse @ x.unsqueeze(-1)).squeeze(-1) * slope.unsqueeze(-1)
        return State(
            inverse,
            state.b + x * (turn * predicted).unsqueeze(-1),
            state.theta - newton,
            state.own.record(arm, reward, turn),
            state.fresh.scatter_add(-1, arm.unsqueeze(-1), turn.unsqueeze(-1)),
            state.gain + turn * width.log1p(),
            state.gram,
            state.fitted,
        )

    def synchronise(self, state: State, star: Star, when: When) -> State:
        """Upload ΔA, fit θ over the star, download A, b and θ; the own data stay with their clients."""
        run = when.run
        arms, encoding = self.arms[run].unsqueeze(1), self.settings.encoding
        pulls, (count, d) = state.fresh[run].sum(-1), arms.shape[-2:]
        fresh = (arms * state.fresh[run].unsqueeze(-1)).mT @ arms
        ask: Ask = star.ask
        if names_arms(encoding):  # counts and sums go up, and the server fits alone
            uploaded, ask = Gram(fresh, scalars("counts", d, pulls, count)), answer
        else:
            uploaded = Gram(fresh, scalars(encoding, d, pulls, count, vectors=0))
        gram = state.gram[run] + star.collect(uploaded, when).matrix.sum(1)
        own = state.own.of(run)
        theta = self._fit(own, gram, state.fitted[run], ask, when)
        data = gram - self.settings.lam * torch.eye(d, dtype=gram.dtype)
        b = (data @ theta.unsqueeze(-1)).squeeze(-1)
        vectors = 2 * d if encoding == "dense" else d  # θ, and b, which follows from A and θ
        star.broadcast(Gram(gram, vectors + scalars(encoding, d, pulls.sum(1), count, vectors=0)), when)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        blank = torch.zeros_like(state.gain[run])
        fresh = torch.zeros_like(own.counts)
        new = State(inverse.unsqueeze(1), b.unsqueeze(1), theta.unsqueeze(1), own, fresh, blank, gram, theta)
        after: State = place(state, run, new)
        return after

    def _pulled(self, state: State, arm: Tensor) -> tuple[Tensor, Tensor]:
        """x (S, N, d) and ‖x‖²_{A⁻¹} (S, N) of ``arm`` (S, N)."""
        x = self.arms.gather(1, arm.unsqueeze(-1).expand(-1, -1, self.arms.shape[-1]))
        return x, ((state.inverse @ x.unsqueeze(-1)).squeeze(-1) * x).sum(-1)

    def _fit(self, own: Tally, gram: Tensor, theta: Tensor, ask: Ask, when: When) -> Tensor:
        """Nesterov's descent, restarted where it goes uphill, on (1/n)[Σ m(xᵀθ) − y xᵀθ + λ|θ|²/2] with m' = μ.

        From ``theta`` (R, d); a run leaves when its gradient shows it to be within 1/(Nt)² of its minimum.
        """
        lam, fitted = self.settings.lam, theta.clone()
        pulls = own.counts.sum((1, 2)).unsqueeze(-1)
        target = 1 / (self.learners * pulls).square()  # every step so far is somebody's pull: t = Σ n
        now = _Descent(
            row=torch.arange(len(theta)),
            run=when.run,
            step=when.step,
            arms=self.arms[when.run],
            counts=own.counts.sum(1),
            sums=own.sums.sum(1),
            pulls=pulls,
            size=pulls / (self.link.most * (torch.linalg.eigvalsh(gram)[:, -1:] - lam) + lam),
            small=(2 * lam / pulls * target).squeeze(-1),
            theta=theta,
            ahead=theta,
            weight=torch.ones_like(pulls),
        )

        def gradients(point: Tensor) -> Summed:  # the clients', summed at once
            error = now.counts * self.link.mean((now.arms @ point.mT).squeeze(-1)) - now.sums
            return Summed((error.unsqueeze(-2) @ now.arms).squeeze(-2), point.shape[-1])

        for _ in range(MOST_ROUNDS):
            total = ask(gradients, now.ahead.unsqueeze(1), When(now.run, now.step)).total
            gradient = torch.add(total, now.ahead, alpha=lam) / now.pulls
            done = gradient.square().sum(-1) <= now.small
            if done.any():
                fitted[now.row[done]] = now.ahead[done]
                now, gradient = _Descent(*(part[~done] for part in now)), gradient[~done]
                if not len(now.row):
                    return fitted
            moved = torch.addcmul(now.ahead, gradient, now.size, value=-1)
            change = moved - now.theta
            uphill = (gradient * change).sum(-1, keepdim=True) > 0
            weight = now.weight.masked_fill(uphill, 1.0)  # the momentum starts again where it points uphill
            heavier = (1 + (1 + 4 * weight.square()).sqrt()) / 2
            ahead = torch.addcmul(moved, (weight - 1) / heavier, change)
            now = now._replace(theta=moved, ahead=ahead, weight=heavier)
        raise ArithmeticError(f"the fit did not reach its tolerance in {MOST_ROUNDS} rounds; raise λ = {lam}")


class _Descent(NamedTuple):
    """The runs that are not fitted yet, a row each: ``row`` of the result, run and step; arms (·, K, d), pulls of all
    clients and sums of their rewards (·, K); n and step size (·, 1), squared gradient to end at (·,); the iterates."""

    row: Tensor
    run: Tensor
    step: Tensor
    arms: Tensor
    counts: Tensor
    sums: Tensor
    pulls: Tensor
    size: Tensor
    small: Tensor
    theta: Tensor
    ahead: Tensor
    weight: Tensor


def fed_glb_ucb(
    problem: Problem,
    clients: int,
    steps: int,
    settings: Settings,
    link: Literal["identity", "logistic"] = "identity",
) -> Trace:
    """``steps`` steps of Fed-GLB-UCB."""
    require(link in LINKS, "link", link, f"choose one of {tuple(LINKS)}")
    learner = GeneralisedLinear(clients, problem.arms, settings, LINKS[link])
    return simulate("Fed-GLB-UCB", problem, learner, Explored.nothing(len(problem.runs)), clients, steps)
