"""The bounds of the paper's analysis with explicit constants: as printed and, where that is wrong, as repaired."""

from fedgo.theory import assumptions, ball, oracle, regret, theorem, worlds

__all__ = ["assumptions", "ball", "oracle", "regret", "theorem", "worlds"]
