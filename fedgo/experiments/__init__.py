"""The experiments of the paper: regimes, players, studies, and what their tables say."""
