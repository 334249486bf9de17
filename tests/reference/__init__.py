"""The algorithms in plain numpy: one run, one client after the other, dense matrices, no cleverness.

Every message is counted where it is sent, from its own size. The package has to make the same choices and send as much.
"""
