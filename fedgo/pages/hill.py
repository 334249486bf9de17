"""The running example of the paper's chapters: four clients look for the highest of 101 points of a hill.

There is S = 1 run of N = 4 clients and T = 15 rounds on K = 101 arms; arrays are (S, K), or (S, steps) over the steps
of Phase II. `draw` draws the example at every stage of the algorithm.
"""

from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes

from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.confidence import Tally, compress, condition, first_order
from fedgo.network import Network
from fedgo.phase_one import Start, shared_start
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.theory.replay import Replay, replay
from fedgo.trace import Trace

CLIENTS, ROUNDS = 4, 15
SETTINGS = Settings(lam=0.1, beta=0.3, gamma=3.0)
# The colour and the marker of each client.
LOOKS = (("#0072B2", "o"), ("#009E73", "s"), ("#CC79A7", "D"), ("#E69F00", "^"))


class Hill(NamedTuple):
    """The example as Fed-GO-UCB plays it.

    Args:
        problem: The arms, points of [0, 1], and their mean rewards, the hill.
        start: The result of Phase I: 8 uniform pulls, and the fit of a network of 10 units.
        trace: The pulls, rewards and synchronisations of both phases.
        steps: What the client of each step of Phase II knows, and how much it has learned.
    """

    problem: Problem
    start: Start
    trace: Trace
    steps: Replay

    def known(self, step: int) -> Tally:
        """Return the counts and sums of residuals that the client of ``step`` knows after this step of Phase II."""
        return Tally(*(part[:, step] for part in self.steps.known))

    def told(self, step: int) -> Tally:
        """Return the counts and sums that every client knows after a synchronisation at ``step`` of Phase II."""
        first, blank = self.trace.phase_one, torch.zeros_like(self.problem.means)
        arm, reward = (part[:, first : first + step + 1] for part in (self.trace.arm, self.trace.reward))
        residual = reward - self.fit.gather(1, arm)
        return Tally(blank.scatter_add(1, arm, torch.ones_like(reward)), blank.scatter_add(1, arm, residual))

    @property
    def fit(self) -> torch.Tensor:
        """The values of the network of Phase I, (1, 101)."""
        return self.start.network.values(self.start.w0[:, 0], self.problem.arms)


def climb() -> Hill:
    """Play the example: Phase I, then Fed-GO-UCB with `SETTINGS`."""
    line = torch.linspace(0, 1, 101, dtype=torch.float64)
    means = (-((line - 0.62) / 0.22).square()).exp()
    problem = Problem("hill", line[None, :, None], means[None], runs=(0,), seed=1)
    start = shared_start(problem, Network(1, hidden=10), CLIENTS, ROUNDS)
    trace = fed_go_ucb(start, SETTINGS)
    return Hill(problem, start, trace, replay(start, trace, SETTINGS.lam))


def draw(axes: Axes, hill: Hill, pulls: int = 0, tally: Tally | None = None) -> None:
    """Draw the hill, and what is known of it.

    Args:
        axes: The axes on which to draw.
        hill: The example.
        pulls: The number of pulls whose rewards are drawn, each in the colour of its client.
        tally: The counts and sums of residuals of a client. They add the fit, the client's tangent model with its
            band, the mean rewards that it knows, and its next pull.
    """
    line, top = hill.problem.arms[0, :, 0], hill.problem.means[0]
    axes.plot(line, top, color="black", label="$f$, unknown")
    for client, (colour, marker) in enumerate(LOOKS):
        own = slice(client, pulls, CLIENTS)
        if pulls > client:
            look: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "", "markersize": 6}
            axes.plot(
                line[hill.trace.arm[0, own]], hill.trace.reward[0, own], label=f"client {client + 1}", **look
            )
    if pulls >= hill.trace.phase_one or tally:
        axes.plot(line, hill.fit[0], "--", color="#0072B2", label=r"the fit $f_x(\hat w_0)$")
    if tally:
        network, w0 = hill.start.network, hill.start.w0[:, 0]
        features = compress(network.gradients(w0, hill.problem.arms)).features
        model = condition(features, hill.fit, SETTINGS.lam, tally)
        index, middle = first_order(model, SETTINGS.beta)[0], model.mean[0]
        (seen,) = tally.counts[0].nonzero(as_tuple=True)
        rewards = hill.fit[0, seen] + tally.sums[0, seen] / tally.counts[0, seen]
        axes.plot(line, middle, color="#D55E00", label="tangent model")
        band: dict[str, Any] = {"color": "#D55E00", "alpha": 0.2, "linewidth": 0, "label": "band"}
        axes.fill_between(line, 2 * middle - index, index, **band)
        axes.plot(line[seen], rewards, "o", color="black", markersize=4, label="known rewards")
        best = index.argmax()
        axes.plot(line[best], index[best], "v", color="#D55E00", markersize=8, label="next pull")
    axes.set(xlabel="arm $x$", ylabel="reward")
