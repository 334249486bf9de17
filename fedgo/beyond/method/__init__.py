"""What to run: surrogates, the joint plan, epochs, and the recommended method."""
