"""Ways to the optimistic arm of line 3: as printed, by ascent over the ball; and for many arms."""
