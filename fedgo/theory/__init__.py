"""The bounds of the paper's analysis with explicit constants: as printed and, where that is wrong, as repaired."""

from fedgo.theory import assumptions, confidence, phase_one, phase_two, theorem, worlds

__all__ = ["assumptions", "confidence", "phase_one", "phase_two", "theorem", "worlds"]
