"""The algorithms beyond the paper in plain numpy: one run, one client after the other, no cleverness."""
