"""The players of the paper's studies: the function of each, the settings that it may choose from, and its colour.

`ALGORITHMS` is the paper's comparison with the controls, and `LINE_THREE` has its two algorithms with line 3 as
printed. A new entry changes nothing for the others.
"""

from collections.abc import Iterable
from itertools import product

from fedgo.algorithms.approx_dis_kernel_ucb import approx_dis_kernel_ucb
from fedgo.algorithms.controls import exact_kernel_ucb, shared_ucb1
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.fed_glb_ucb import fed_glb_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb, n_go_ucb, one_go_ucb
from fedgo.experiments.players import Player, from_scratch, from_start, grid, play_uniform
from fedgo.experiments.world import Setting
from fedgo.phase_two import Settings

# One setting for the three GO algorithms on all four problems. It was chosen by a coarse comparison of λ and β in
# {0.01, …, 10} and γ in {0.1, …, 10}, on instances of the tuning seed, which no evaluation uses. The paper gives no
# values of λ, β and γ.
GO_SETTINGS = Settings(lam=0.01, beta=0.1, gamma=1.0)


def _wide(settings: Iterable[Setting], ratios: tuple[float, ...]) -> tuple[Setting, ...]:
    """Return each of the ``settings`` with each β for which β/λ is among ``ratios``: for small λ only this matters."""
    pairs = product(settings, ratios)
    return tuple({**setting, "beta": float(f"{setting['lam'] * ratio:.3g}")} for setting, ratio in pairs)


def _decades(each: int, first: float, number: int) -> tuple[Setting, ...]:
    """Return ``number`` settings of β alone, 10^(``first`` + k/``each``) for k = 0, 1, …"""
    return grid(beta=tuple(float(f"{10 ** (k / each + first):.3g}") for k in range(number)))


# The threshold γ is 1 everywhere. It is not tuned, because for regret alone its best value is 0.
_RIDGE = _wide(grid(lam=(0.00001, 0.0001, 0.001, 0.01)), (1, 3, 10, 30, 100, 300, 1000, 3000))
_GLB = _wide(grid(link=("identity", "logistic"), lam=(0.01, 0.03, 0.1, 0.3)), (1, 10, 100, 1000))
_KERNEL = _wide(grid(lengthscale=(0.1, 0.3, 1.0, 3.0), lam=(0.001, 0.01)), (0.3, 3, 30, 300))

# The algorithms of the paper, its own and those that it compares with.
SIX = ("Fed-GO-UCB", "One-GO-UCB", "N-GO-UCB", "DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB")

# The colours have a contrast of at least 3 to a white and to a dark background, and colour-blind readers can tell them
# apart. The markers say the same without colour. The two greys are inverted on a dark background.
ALGORITHMS: dict[str, Player] = {
    "Fed-GO-UCB": Player(from_start(fed_go_ucb), _RIDGE, style=("#D55E00", "o"), dense=True),
    "One-GO-UCB": Player(from_start(one_go_ucb), _RIDGE, style=("#0072B2", "s"), dense=True),
    "N-GO-UCB": Player(from_start(n_go_ucb, private=True), _RIDGE, style=("#5A965A", "^"), dense=True),
    "DisLinUCB": Player(from_scratch(dis_lin_ucb), _RIDGE, style=("#C31E6E", "v"), dense=True),
    "Fed-GLB-UCB": Player(from_scratch(fed_glb_ucb, "link"), _GLB, style=("#825F1E", "P"), dense=True),
    "ApproxDisKernelUCB": Player(
        from_scratch(approx_dis_kernel_ucb, "lengthscale"), _KERNEL, style=("#05A0C8", "X"), dense=True
    ),
    "Kernel UCB, at once": Player(
        from_scratch(exact_kernel_ucb, "lengthscale"), _KERNEL, style=("#AA5AE1", "*")
    ),
    "UCB1, shared": Player(from_scratch(shared_ucb1), _decades(8, -4.5, 32), style=("#444444", "d")),
    "Uniform": Player(play_uniform, style=("#888888", ".")),
}

# Line 3 as printed, by projected ascent, instead of the first-order index. Its grid has smaller balls than that of the
# first-order index, because in a wide ball line 3 remains optimistic about every arm, however often it was pulled.
_SMALL = _wide(grid(lam=(0.0001, 0.01)), (0.1, 1, 10, 100))
LINE_THREE: dict[str, Player] = {
    "Fed-GO-UCB, line 3": Player(from_start(fed_go_ucb, argmax="ascent"), _SMALL),
    "One-GO-UCB, line 3": Player(from_start(one_go_ucb, argmax="ascent"), _SMALL),
}
