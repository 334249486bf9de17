"""Every bound of the paper's analysis with explicit constants, as printed and, where that is wrong, repaired."""

__all__ = ["assumptions", "confidence", "phase_one", "phase_two", "theorem", "worlds"]
