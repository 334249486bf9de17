"""The index of line 3 of Algorithm 1 as printed, by ascent over the confidence ball."""
