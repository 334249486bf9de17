"""The experiments of the paper: which algorithms play which problems with which settings, and the results in tables."""
