"""Checks of the theory on executed runs: the radius, each inequality of the proof, and what messages reveal."""
