"""Fed-GLB-UCB: a generalised linear model E[y] = μ(xᵀθ) (Li and Wang, NeurIPS 2022, https://arxiv.org/abs/2202.01087).

With A = λI + Σ xxᵀ the index of an arm is xᵀA⁻¹b + √β‖x‖_{A⁻¹}. After a pull a client takes an online Newton step
θ ← θ − A⁻¹x(μ(xᵀθ) − y)/c_μ, where c_μ ≤ μ', and adds x·xᵀθ to b, with the θ before the step. On the same event as
DisLinUCB all clients send ΔA, they fit θ to all data by accelerated gradient descent (2N d_x scalars for each round)
until the regularised loss per datum is within 1/(Nt)² of its minimum after t steps, and the server sends A,
b = (A − λI)θ and θ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import on_cpu, require
from fedgo.confidence import Tally, require_prior, width
from fedgo.messages import names_arms, scalars
from fedgo.phase_one import Exploration
from fedgo.phase_two import Settings, place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Ask, Message, Star, When, answer
from fedgo.trace import Trace

MOST_ROUNDS = 50_000  # of one fit; reaching it is an error, not a silent stop


class Link(NamedTuple):
    """A link function μ = ``mean`` with bounds ``least`` ≤ μ' ≤ ``most`` on its slope.

    The Newton step uses the lower bound c_μ, and the descent the upper one.
    """

    mean: Callable[[Tensor], Tensor]
    least: float
    most: float


LINKS = {
    "identity": Link(lambda z: z, 1.0, 1.0),
    "logistic": Link(torch.sigmoid, 0.1, 0.25),  # μ' ≥ 0.1 for |xᵀθ| ≤ 2
}


@on_cpu
def fed_glb_ucb(
    problem: Problem,
    clients: int,
    steps: int,
    settings: Settings,
    link: Literal["identity", "logistic"] = "identity",
) -> Trace:
    """Play ``steps`` steps of Fed-GLB-UCB, which fits a generalised linear model to all rewards.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps.
        settings: λ, β, γ and the form of the messages.
        link: The name of the link function μ in `LINKS`.

    Returns:
        The trace, without a Phase I.

    Raises:
        ValueError: An argument is out of range.
        TypeError: An argument is of another kind.
        ArithmeticError: A fit did not reach its tolerance.
    """
    require_run(problem, clients, steps, settings)
    require_prior(problem.arms.square().sum(-1).amax(), settings.lam)
    require(link in LINKS, "link", link, f"choose one of {tuple(LINKS)}")
    learner = GeneralisedLinear(clients, problem.arms, settings, LINKS[link])
    nothing = Exploration.nothing(len(problem.runs))
    # fits of many runs at once take as long as the fit of one
    return simulate("Fed-GLB-UCB", problem, learner, nothing, clients, steps, together=True)


class LinkState(NamedTuple):
    """What the N clients and the server of Fed-GLB-UCB know in each of S runs.

    A client has ``inverse`` A⁻¹ (S, N, d_x, d_x), ``b`` and ``theta`` θ (S, N, d_x), the counts and sums ``own`` (S, N,
    K) of all its pulls, the counts ``fresh`` (S, N, K) of its pulls since the last synchronisation, and their log-ratio
    ``gain`` (S, N). The server has ``gram`` A (S, d_x, d_x) and ``fitted`` θ (S, d_x), from which its next fit starts.
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
    """N = ``learners`` clients with a generalised linear model each, of the rewards of ``arms`` (S, K, d_x).

    ``settings`` has λ, β, γ and the form of the messages, and ``link`` is the link function.
    """

    learners: int
    arms: Tensor
    settings: Settings
    link: Link

    def begin(self) -> LinkState:
        """Return the state without data, with A = λI and b = θ = 0."""
        runs, arms, d = self.arms.shape
        eye = torch.eye(d, dtype=torch.float64)
        inverse = (eye / self.settings.lam).expand(runs, self.learners, d, d)
        gram = (self.settings.lam * eye).expand(runs, d, d)
        vector = torch.zeros(runs, self.learners, d, dtype=torch.float64)
        own = Tally.blank(runs, self.learners, arms)
        gain, fitted = vector[..., 0], vector[:, 0]
        return LinkState(inverse, vector, vector, own, own.counts, gain, gram, fitted)

    def index(self, state: LinkState) -> Tensor:
        """Return the index xᵀA⁻¹b + √β‖x‖_{A⁻¹} of each arm, (S, N, K).

        μ increases, so that the arm with the largest index also has the largest optimistic reward.
        """
        arms = self.arms.unsqueeze(1)
        seen = arms @ state.inverse
        mean = (seen @ state.b.unsqueeze(-1)).squeeze(-1)
        return mean + math.sqrt(self.settings.beta) * width((seen * arms).sum(-1))

    def fires(self, state: LinkState, arm: Tensor) -> Tensor:
        """Return whether the event of DisLinUCB fires after each client pulls its ``arm`` (S, N), (S, N) bool."""
        _, variance = self._pulled(state, arm)
        pulls = state.fresh.sum(-1) + 1
        return pulls * (state.gain + variance.log1p()) > self.settings.gamma

    def learn(self, state: LinkState, arm: Tensor, reward: Tensor, turn: Tensor) -> LinkState:
        """Return the state after the pulls of the clients with ``turn`` 1, which change A, b and θ."""
        x, variance = self._pulled(state, arm)
        predicted = (x * state.theta).sum(-1)
        seen = (state.inverse @ x.unsqueeze(-1)).squeeze(-1) / (1 + variance).sqrt().unsqueeze(-1)
        taken = seen * turn.unsqueeze(-1)
        inverse = state.inverse - taken.unsqueeze(-1) * taken.unsqueeze(-2)
        slope = turn * (self.link.mean(predicted) - reward) / self.link.least
        newton = (inverse @ x.unsqueeze(-1)).squeeze(-1) * slope.unsqueeze(-1)
        return state._replace(
            inverse=inverse,
            b=state.b + x * (turn * predicted).unsqueeze(-1),
            theta=state.theta - newton,
            own=state.own.record(arm, reward, turn),
            fresh=state.fresh.scatter_add(-1, arm.unsqueeze(-1), turn.unsqueeze(-1)),
            gain=state.gain + turn * variance.log1p(),
        )

    def synchronise(self, state: LinkState, star: Star, when: When) -> LinkState:
        """Return the state after the runs ``when.run`` sent ΔA, fitted θ over ``star``, and received A, b and θ.

        With a form of messages that names arms, the clients send counts and sums instead, and the server fits alone.
        """
        run = when.run
        arms, encoding = self.arms[run].unsqueeze(1), self.settings.encoding
        pulls, (count, d) = state.fresh[run].sum(-1), arms.shape[-2:]
        fresh = (arms * state.fresh[run].unsqueeze(-1)).mT @ arms
        packed = names_arms(encoding)
        cost = scalars("counts", d, pulls, count) if packed else scalars(encoding, d, pulls, count, vectors=0)
        gram = state.gram[run] + star.collect(Message(fresh, cost), when).sum(1)
        own = state.own.of(run)
        theta = self._fit(own, gram, state.fitted[run], (lambda _: answer) if packed else star.at, when)
        data = gram - self.settings.lam * torch.eye(d, dtype=gram.dtype)
        b = (data @ theta.unsqueeze(-1)).squeeze(-1)
        vectors = 2 * d if encoding == "dense" else d  # θ, and b, which follows from A and θ
        star.broadcast(Message(gram, vectors + scalars(encoding, d, pulls.sum(1), count, vectors=0)), when)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram)).unsqueeze(1)
        fresh, gain = torch.zeros_like(own.counts), torch.zeros_like(state.gain[run])
        common = LinkState(inverse, b.unsqueeze(1), theta.unsqueeze(1), own, fresh, gain, gram, fitted=theta)
        return place(state, run, common)

    def _pulled(self, state: LinkState, arm: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features x (S, N, d_x) of each ``arm`` (S, N), and ‖x‖²_{A⁻¹} (S, N)."""
        x = self.arms.gather(1, arm.unsqueeze(-1).expand(-1, -1, self.arms.shape[-1]))
        return x, ((state.inverse @ x.unsqueeze(-1)).squeeze(-1) * x).sum(-1)

    def _fit(self, own: Tally, gram: Tensor, theta: Tensor, ask: Callable[[When], Ask], when: When) -> Tensor:
        """Return the θ (R, d_x) that minimises the regularised loss per datum to within 1/(Nt)².

        The loss is (1/t)[Σ_s (m(x_sᵀθ) − y_s x_sᵀθ) + λ|θ|²/2] with m' = μ, over the t data of all clients.

        Args:
            own: The data of each client, (R, N, K).
            gram: A, (R, d_x, d_x).
            theta: Where the descent starts, (R, d_x).
            ask: Returns, for some of the runs, how a point is sent to the clients and their gradients come back.
            when: The runs and the step at which the scalars are booked.
        """
        lam, total = self.settings.lam, own.summed()
        pulls = total.counts.sum(-1, keepdim=True)
        target = (
            1 / (self.learners * pulls).square()
        )  # every step so far was the pull of a client: t is their number
        size = pulls / (self.link.most * (torch.linalg.eigvalsh(gram)[:, -1:] - lam) + lam)

        def objective(left: Tensor) -> Callable[[Tensor], Tensor]:
            """Return the gradient of the loss in the runs ``left`` (n,), as a function of points (n, d_x)."""
            exchange = ask(When(when.run[left], when.step[left]))
            arms, (counts, sums), n = self.arms[when.run[left]], total.of(left), pulls[left]

            def gradients(point: Tensor) -> Message[Tensor]:
                """Return the message of the clients, t times the gradient at ``point`` of the loss without λ."""
                error = counts * self.link.mean((arms @ point.mT).squeeze(-1)) - sums
                return Message((error.unsqueeze(-2) @ arms).squeeze(-2), point.shape[-1])

            def gradient(point: Tensor) -> Tensor:
                """Return the gradient of the whole loss at ``point``, after one exchange."""
                summed: Tensor = exchange(gradients, Message(point.unsqueeze(1), point.shape[-1]))
                return torch.add(summed, point, alpha=lam) / n

            return gradient

        # the loss is λ/t-strongly convex: it is within |gradient|²·t/(2λ) of its minimum
        return nesterov(objective, theta, size, (2 * lam / pulls * target).squeeze(-1))


def nesterov(
    objective: Callable[[Tensor], Callable[[Tensor], Tensor]], start: Tensor, size: Tensor, small: Tensor
) -> Tensor:
    """Minimise R functions h at once by Nesterov's accelerated descent, and return their minimisers (R, d).

    A step is θ⁺ = z − s∇h(z), w⁺ = (1 + √(1 + 4w²))/2 and z⁺ = θ⁺ + (w − 1)/w⁺·(θ⁺ − θ), with the step size s. If the
    step points uphill, the momentum starts again with w = 1 (O'Donoghue and Candès 2015).

    Args:
        objective: Returns ∇h of the functions with the given numbers, (n,); it is called again when some are finished.
        start: Where the descent begins, (R, d).
        size: The step size s, (R, 1).
        small: The value of |∇h|² at which a function is finished, (R,).

    Raises:
        ArithmeticError: Some function is not finished after `MOST_ROUNDS` steps.
    """
    fitted, left, gradient = start.clone(), torch.arange(len(start)), objective(torch.arange(len(start)))
    theta = ahead = start
    weight = torch.ones_like(size)
    for _ in range(MOST_ROUNDS):
        slope = gradient(ahead)
        done = slope.square().sum(-1) <= small
        if done.any():
            fitted[left[done]] = ahead[done]
            if done.all():
                return fitted
            rows = (left, slope, theta, ahead, weight, size, small)
            left, slope, theta, ahead, weight, size, small = (values[~done] for values in rows)
            gradient = objective(left)
        moved = torch.addcmul(ahead, slope, size, value=-1)
        change = moved - theta
        uphill = (slope * change).sum(-1, keepdim=True) > 0
        weight = weight.masked_fill(uphill, 1.0)
        heavier = (1 + (1 + 4 * weight.square()).sqrt()) / 2
        theta, ahead, weight = moved, torch.addcmul(moved, (weight - 1) / heavier, change), heavier
    raise ArithmeticError(f"the fit did not reach its tolerance in {MOST_ROUNDS} rounds; raise λ")
