"""Fed-GO-UCB and its two extremes (Li, Liu and Wang, ICLR 2024, https://arxiv.org/abs/2311.01695).

Phase II of Algorithm 1 is ridge regression on the gradients g_x = ∇f_x(ŵ₀) around the oracle's ŵ₀:

    Σ ← Σ + g gᵀ,   b ← b + g(gᵀŵ₀ + y − f_x(ŵ₀)),   ŵ = Σ⁻¹b + λΣ⁻¹ŵ₀,   x = argmax_x max_{‖w − ŵ‖²_Σ ≤ β} f_x(w)

Fed-GO-UCB synchronises on an event, One-GO-UCB at every step, N-GO-UCB (Section 6) never, with N oracles that each fit
one client's own Phase I data. State and steps are those of `fedgo.phase_two`.
"""

from typing import Literal

from torch import Tensor

from fedgo._checks import on_cpu, require, require_kind
from fedgo.confidence import compress
from fedgo.images import view
from fedgo.line_three import LineThree
from fedgo.network import Network
from fedgo.parameter_space import ParameterSpace
from fedgo.phase_one import Start
from fedgo.phase_two import EventTriggered, Immediate, Index, Settings
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.trace import Trace

Argmax = Literal["first-order", "ascent"]
Space = Literal["arms", "parameters"]


@on_cpu
def fed_go_ucb(
    problem: Problem, start: Start, settings: Settings, argmax: Argmax = "first-order", space: Space = "arms"
) -> Trace:
    """Fed-GO-UCB: N models around one ŵ₀, synchronised when the event with threshold γ fires.

    It computes in the ``space`` of the arms, O(NK²) numbers, or of the "parameters", O(K(N + d_w)), for many arms.
    """
    return _run("Fed-GO-UCB", problem, fed_go_learner(problem, start, settings, argmax, space), start)


def fed_go_learner(
    problem: Problem, start: Start, settings: Settings, argmax: Argmax = "first-order", space: Space = "arms"
) -> EventTriggered:
    """The N models of Fed-GO-UCB before Phase II, for `simulate` or for whoever wants their proposals."""
    _check(problem, start, settings)
    engines = {"arms": EventTriggered, "parameters": ParameterSpace}
    require(space in engines, "space", space, f"choose one of {tuple(engines)}")
    return engines[space](start.clients, *_linearise(problem, start, settings, argmax))


@on_cpu
def one_go_ucb(problem: Problem, start: Start, settings: Settings, argmax: Argmax = "first-order") -> Trace:
    """One-GO-UCB: one model for all clients; each step costs (N + 1)(d_w² + d_w) scalars, γ is not used."""
    _check(problem, start, settings)
    learner = Immediate(1, *_linearise(problem, start, settings, argmax))
    return _run("One-GO-UCB", problem, learner, start)


@on_cpu
def n_go_ucb(problem: Problem, start: Start, settings: Settings, argmax: Argmax = "first-order") -> Trace:
    """N-GO-UCB: N models, each around its client's own ŵ₀ (a `private_start`), nothing sent; γ is not used."""
    _check(problem, start, settings, shared=False)
    alone = Settings(settings.lam, settings.beta, float("inf"))
    learner = EventTriggered(start.clients, *_linearise(problem, start, alone, argmax))
    return _run("N-GO-UCB", problem, learner, start)


def _check(problem: Problem, start: Start, settings: Settings, shared: bool = True) -> None:
    require_kind(isinstance(start, Start), "start", start, "give the Start that Phase I leaves")
    require_kind(isinstance(settings, Settings), "settings", settings, "give Settings(lam, beta, gamma)")
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    # what N-GO-UCB's Phase I and Phase II send is nothing, in whatever form
    start.require_for(problem, settings.encoding if shared else start.encoding, shared)


def _linearise(
    problem: Problem, start: Start, settings: Settings, argmax: Argmax
) -> tuple[Tensor, Tensor, int, Settings, Index | None]:
    """Features, offsets f_x(ŵ₀), d_w, settings and the optimism of a learner on the gradients at ŵ₀."""
    kinds = ("first-order", "ascent")
    require(argmax in kinds, "argmax", argmax, f"choose one of {kinds}")
    arms = problem.arms.unsqueeze(1)
    coordinates = compress(start.network.gradients(start.w0, arms))
    optimism: Index | None = None
    if argmax == "ascent":
        if not isinstance(start.network, Network):
            raise ValueError(f"argmax is {argmax!r}: the ascent of line 3 needs a Network; use 'first-order'")
        optimism = LineThree(view(start.network, start.w0, arms), settings.lam, settings.beta)
    offsets = start.network.values(start.w0, arms)
    return coordinates.features, offsets, start.network.size, settings, optimism


def _run(name: str, problem: Problem, learner: EventTriggered, start: Start) -> Trace:
    return simulate(name, problem, learner, start.exploration, start.clients, start.clients * start.rounds)
