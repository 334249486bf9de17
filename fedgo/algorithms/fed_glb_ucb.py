"""Fed-GLB-UCB: a generalised linear model E[y] = μ(xᵀθ) (Li and Wang, NeurIPS 2022, https://arxiv.org/abs/2202.01087).

y is the reward of an arm x with d_x features, μ the link function, and θ the parameter. With A = λI + Σ xxᵀ over the
pulls that a client knows, the index of an arm is xᵀA⁻¹b + √β‖x‖_{A⁻¹}. After a pull a client adds xxᵀ to A, takes the
online Newton step θ ← θ − A⁻¹x(μ(xᵀθ) − y)/c_μ, where c_μ is a lower bound on the slope μ', and adds x·xᵀθ to b, with
the θ before the step.

A client triggers a synchronisation when n·ln(det A/det(A − ΔA)) exceeds the threshold γ, where n is the number of its
pulls since the last synchronisation and ΔA the sum of xxᵀ over these pulls. Then all N clients send their ΔA. They fit
θ to all data by accelerated gradient descent, which costs 2N d_x scalars for each round, until the regularised loss per
datum is within 1/(Nt)² of its minimum, where t is the number of all pulls so far. At last the server sends A and θ, and
in the dense form also b = (A − λI)θ. If the clients send counts and sums instead of ΔA, the server fits θ alone, and
the rounds cost nothing. There are S runs of K arms, R of which synchronise; arrays are (S, N, d_x).
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

MOST_ROUNDS = 50_000  # the most rounds of gradient descent in one fit; a fit that needs more raises an error


class Link(NamedTuple):
    """A link function μ with bounds on its slope μ'.

    Args:
        mean: μ, which is applied to each entry of a tensor.
        least: A lower bound c_μ > 0 on μ' at the values of xᵀθ that are expected, by which the Newton step divides.
        most: An upper bound on μ' everywhere, which gives the step size of the gradient descent.
    """

    mean: Callable[[Tensor], Tensor]
    least: float
    most: float


LINKS = {
    "identity": Link(lambda z: z, 1.0, 1.0),
    "logistic": Link(torch.sigmoid, 0.1, 0.25),  # the lower bound μ' ≥ 0.1 holds for |xᵀθ| ≤ 2
}


@on_cpu
def fed_glb_ucb(
    problem: Problem,
    clients: int,
    steps: int,
    settings: Settings,
    link: Literal["identity", "logistic"] = "identity",
) -> Trace:
    """Play Fed-GLB-UCB, which fits a generalised linear model μ(xᵀθ) of the mean reward of an arm x.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps, in each of which one client pulls one arm; the clients take turns.
        settings: λ, β, the threshold γ of the event, and the form of the messages.
        link: The link function μ: "identity" for μ(z) = z, or "logistic" for μ(z) = 1/(1 + exp(−z)).

    Raises:
        ValueError: An argument is out of range; ``link`` is unknown; or the arms or rewards are so large, or λ so
            small, that rounding would decide which arm is pulled.
        TypeError: An argument is of another kind.
        ArithmeticError: A fit did not reach its tolerance in 50,000 rounds, for instance because rewards are too large.
    """
    require_run(problem, clients, steps, settings)
    require_prior(problem.arms.square().sum(-1).amax(), settings.lam)
    require(link in LINKS, "link", link, f"choose one of {tuple(LINKS)}")
    learner = GeneralisedLinear(clients, problem.arms, settings, LINKS[link])
    nothing = Exploration.nothing(len(problem.runs))
    # runs wait for each other, because the fits of many runs at once take as long as the fit of one
    return simulate("Fed-GLB-UCB", problem, learner, nothing, clients, steps, together=True)


class LinkState(NamedTuple):
    """What the clients and the server of Fed-GLB-UCB know.

    Args:
        inverse: The inverse A⁻¹ of each client's matrix, (S, N, d_x, d_x).
        b: Each client's vector b, (S, N, d_x).
        theta: Each client's parameter θ, (S, N, d_x).
        own: The counts and sums of rewards of all pulls of each client itself, (S, N, K) each.
        fresh: The counts of each client's pulls since the last synchronisation, (S, N, K).
        gain: The log-ratio ln(det A/det(A − ΔA)) of each client, (S, N).
        gram: The server's matrix A, of all pulls up to the last synchronisation, (S, d_x, d_x).
        fitted: The θ of the server's last fit, from which its next fit starts, and 0 before the first, (S, d_x).
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
    """The learner of Fed-GLB-UCB.

    Args:
        learners: The number N of clients.
        arms: The features of the arms, (S, K, d_x).
        settings: λ, β, γ and the form of the messages.
        link: The link function μ with the bounds on its slope.
    """

    learners: int
    arms: Tensor
    settings: Settings
    link: Link

    def begin(self) -> LinkState:
        """Return the state before the first pull: A is λI, and all else is 0."""
        runs, arms, d = self.arms.shape
        eye = torch.eye(d, dtype=torch.float64)
        inverse = (eye / self.settings.lam).expand(runs, self.learners, d, d)
        gram = (self.settings.lam * eye).expand(runs, d, d)
        vector = torch.zeros(runs, self.learners, d, dtype=torch.float64)
        own = Tally.blank(runs, self.learners, arms)
        gain, fitted = vector[..., 0], vector[:, 0]
        return LinkState(inverse, vector, vector, own, own.counts, gain, gram, fitted)

    def index(self, state: LinkState) -> Tensor:
        """Return the index of each arm for each client, (S, N, K); μ increases, so that it need not be applied."""
        arms = self.arms.unsqueeze(1)
        seen = arms @ state.inverse
        mean = (seen @ state.b.unsqueeze(-1)).squeeze(-1)
        return mean + math.sqrt(self.settings.beta) * width((seen * arms).sum(-1))

    def fires(self, state: LinkState, arm: Tensor) -> Tensor:
        """Return whether the event would occur at each client with the pull of ``arm``, (S, N) bool."""
        _, variance = self._pulled(state, arm)
        pulls = state.fresh.sum(-1) + 1
        return pulls * (state.gain + variance.log1p()) > self.settings.gamma

    def learn(self, state: LinkState, arm: Tensor, reward: Tensor, turn: Tensor) -> LinkState:
        """Return the state after one pull of each client with ``turn`` 1; the Newton step uses the new A."""
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
        """Return the state after the clients of some runs have sent ΔA, fitted θ together, and received A, b and θ."""
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
        # The server sends θ too, and in the dense form also b, although b follows from A and θ.
        vectors = 2 * d if encoding == "dense" else d
        star.broadcast(Message(gram, vectors + scalars(encoding, d, pulls.sum(1), count, vectors=0)), when)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram)).unsqueeze(1)
        fresh, gain = torch.zeros_like(own.counts), torch.zeros_like(state.gain[run])
        common = LinkState(inverse, b.unsqueeze(1), theta.unsqueeze(1), own, fresh, gain, gram, fitted=theta)
        return place(state, run, common)

    def _pulled(self, state: LinkState, arm: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features x (S, N, d_x) of each client's ``arm`` and the squared width ‖x‖²_{A⁻¹}, (S, N)."""
        x = self.arms.gather(1, arm.unsqueeze(-1).expand(-1, -1, self.arms.shape[-1]))
        return x, ((state.inverse @ x.unsqueeze(-1)).squeeze(-1) * x).sum(-1)

    def _fit(self, own: Tally, gram: Tensor, theta: Tensor, ask: Callable[[When], Ask], when: When) -> Tensor:
        """Return a θ for each of R runs, (R, d_x), with a regularised loss per datum within 1/(Nt)² of its minimum."""
        # The loss is (1/t)[Σ_s (m(x_sᵀθ) − y_s x_sᵀθ) + λ|θ|²/2] over the t data of all clients, with an antiderivative
        # m of μ. `ask` carries points to the clients of some runs, and the sums of their gradients back.
        lam, total = self.settings.lam, own.summed()
        pulls = total.counts.sum(-1, keepdim=True)
        # t is the number of all pulls so far, because every step is the pull of one client
        target = 1 / (self.learners * pulls).square()
        size = pulls / (self.link.most * (torch.linalg.eigvalsh(gram)[:, -1:] - lam) + lam)

        def objective(left: Tensor) -> Callable[[Tensor], Tensor]:
            """Return a function from points (n, d_x) to the gradients there of the losses of the n runs ``left``."""
            exchange = ask(When(when.run[left], when.step[left]))
            arms, (counts, sums), n = self.arms[when.run[left]], total.of(left), pulls[left]

            def gradients(point: Tensor) -> Message[Tensor]:
                """Return the gradients of the sums over all clients, which cost the d_x scalars of one client's."""
                error = counts * self.link.mean((arms @ point.mT).squeeze(-1)) - sums
                return Message((error.unsqueeze(-2) @ arms).squeeze(-2), point.shape[-1])

            def gradient(point: Tensor) -> Tensor:
                """Return the gradients of the regularised losses per datum, by one exchange with the clients."""
                summed: Tensor = exchange(gradients, Message(point.unsqueeze(1), point.shape[-1]))
                return torch.add(summed, point, alpha=lam) / n

            return gradient

        # The loss is λ/t-strongly convex. Therefore it is at most |gradient|²·t/(2λ) above its minimum.
        return nesterov(objective, theta, size, (2 * lam / pulls * target).squeeze(-1))


def nesterov(
    objective: Callable[[Tensor], Callable[[Tensor], Tensor]], start: Tensor, size: Tensor, small: Tensor
) -> Tensor:
    """Minimise R convex functions h at once by Nesterov's accelerated gradient descent, and return points (R, d).

    A step is θ⁺ = z − s∇h(z), w⁺ = (1 + √(1 + 4w²))/2 and z⁺ = θ⁺ + (w − 1)/w⁺·(θ⁺ − θ), where w controls the momentum
    and begins at 1. If the step points uphill, ∇h(z)ᵀ(θ⁺ − θ) > 0, the momentum starts again: this step is taken with w
    = 1 (O'Donoghue and Candès 2015). The result is the first z with a small enough gradient.

    Args:
        objective: Receives the positions (n,) int64 of some of the functions, and returns a function from points (n, d)
            to the gradients ∇h there. It is called again whenever some functions are finished.
        start: The points θ = z at which the descent begins, (R, d) with R ≥ 1.
        size: The step size s of each function, (R, 1).
        small: A function is finished if ‖∇h‖² is at most this number, (R,).
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
