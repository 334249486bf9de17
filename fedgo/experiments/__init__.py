"""The experiments of the paper: regimes, players, studies, and the results in their tables."""
