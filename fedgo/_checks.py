"""Validation at the public edge: one ValueError that names the value received and the remedy."""

from typing import Any

import torch
from torch import Tensor


def require(condition: bool, name: str, received: Any, remedy: str) -> None:
    """Raise a ``ValueError`` "``name`` is ``received``: ``remedy``" unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{name} is {received!r}: {remedy}")


def require_each(condition: Tensor, name: str, values: Tensor, remedy: str) -> None:
    """Raise a ``ValueError`` that names the first entry of ``values`` where ``condition`` (of its shape) fails."""
    bad = (~condition).nonzero()
    if len(bad):
        where = tuple(bad[0].tolist())
        require(False, f"{name}[{', '.join(map(str, where))}]", values[where].item(), remedy)


def require_finite(name: str, values: Tensor) -> None:
    """Raise a ``ValueError`` that names the first entry of ``values`` that is NaN or infinite."""
    require_each(torch.isfinite(values), name, values, "give finite numbers")
