"""The optimistic arm of line 3 as printed, by ascent over the confidence ball, and learners for many arms."""
