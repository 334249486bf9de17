"""What the chapters of the book draw, tabulate and quote with."""
