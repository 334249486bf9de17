"""Validation at the public edge: before any work, one error names the argument, the value received and the remedy.

A number that is out of range raises a ``ValueError``, and a value of another kind, such as a text for a number, a
``TypeError``. In all functions ``name`` is what the value is called in the error, ``received`` the value, and
``remedy`` what to give instead.
"""

import math
import numbers
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
_LARGEST = sys.float_info.max
MOST = 2**53  # float64 does not hold every larger whole number, and products of larger numbers exceed int64


def require(condition: bool, name: str, received: Any, remedy: str) -> None:
    """Raise a ``ValueError`` "``name`` is ``received``: ``remedy``" unless ``condition`` is true."""
    if not condition:
        raise ValueError(f"{name} is {received!r}: {remedy}")


def require_kind(condition: bool, name: str, received: Any, remedy: str) -> None:
    """Raise a ``TypeError`` that also names the type of ``received`` unless ``condition`` is true."""
    if not condition:
        raise TypeError(f"{name} is {received!r:.60} ({type(received).__name__}): {remedy}")


def count(name: str, received: Any, remedy: str, least: int = 1, most: float = MOST) -> int:
    """Return ``received`` as an ``int`` if it is a whole number, and no bool, from ``least`` to ``most``."""
    whole = isinstance(received, numbers.Integral) and not isinstance(received, bool)
    require_kind(whole, name, received, f"give a whole number; {remedy}")
    require(least <= received, name, received, remedy)
    require(received <= most, name, received, f"{remedy}, at most {most:,}")
    return int(received)


def number(
    name: str,
    received: Any,
    remedy: str,
    *,
    least: float = -math.inf,
    above: float = -_LARGEST,
    below: float = _LARGEST,
    infinite: bool = False,
) -> float:
    """Return ``received`` as a ``float`` if it is a real number, and no bool, within the limits.

    Args:
        name: What the number is called.
        received: The value to check; NaN is always refused, −∞ and +∞ by the default limits.
        remedy: What to give instead.
        least: The smallest number that is allowed.
        above: A limit that the number must exceed.
        below: A limit that the number must stay below.
        infinite: Whether +∞ is allowed although it is not below ``below``.
    """
    real = isinstance(received, numbers.Real) and not isinstance(received, bool)
    require_kind(real, name, received, f"give a number; {remedy}")
    within = above < received < below or (infinite and received == math.inf)
    require(within and least <= received, name, received, remedy)
    return float(received)


def tensor(name: str, received: Any) -> Tensor:
    """Return ``received`` itself if it is a dense float64 tensor on the CPU; shape and values are not checked."""
    require_kind(isinstance(received, Tensor), name, received, "give torch.as_tensor(…, dtype=torch.float64)")
    values: Tensor = received
    kind = (values.dtype, values.device.type, values.layout)
    remedy = "give float64 on the CPU, dense: ….double().cpu().to_dense()"
    require(kind == (torch.float64, "cpu", torch.strided), f"the kind of {name}", kind, remedy)
    return values


def require_each(condition: Tensor, name: str, values: Tensor, remedy: str) -> None:
    """Raise a ``ValueError`` that names the first entry of ``values`` at which ``condition`` is false, if there is
    one.
    """
    bad = (~condition).nonzero()
    if len(bad):
        where = tuple(bad[0].tolist())
        require(False, f"{name}[{', '.join(map(str, where))}]", values[where].item(), remedy)


def require_finite(name: str, values: Tensor) -> None:
    """Raise a ``ValueError`` if an entry of the tensor ``values`` is NaN or infinite."""
    require_each(torch.isfinite(values), name, values, "give finite numbers")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn a missing module into an ``ImportError`` with the command that installs the extra ``name``."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'fedgo[{name}]'") from error


def on_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` with the CPU as torch's default device during a call, whatever the caller has set."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        # Usually the default device is the CPU already. The context costs time at every operation.
        if torch.get_default_device().type == "cpu":
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return inner
