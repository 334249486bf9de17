"""The experiments of the paper: who plays which problem with which setting, and the tables of the results."""
