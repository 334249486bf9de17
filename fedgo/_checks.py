"""Validation at the public edge: one error that names the value received and the remedy, before any work.

A value of the right kind that is out of range is a ``ValueError``, a value of another kind a ``TypeError``.
"""

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
MOST = 2**53  # counts beyond this are no longer exact in float64, and their products leave int64


def require(condition: bool, name: str, received: Any, remedy: str) -> None:
    """Raise a ``ValueError`` "``name`` is ``received``: ``remedy``" unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{name} is {received!r}: {remedy}")


def require_kind(condition: bool, name: str, received: Any, remedy: str) -> None:
    """Raise a ``TypeError`` "``name`` is ``received`` (its type): ``remedy``" unless ``condition`` holds."""
    if not condition:
        shown = repr(received)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise TypeError(f"{name} is {shown} ({type(received).__name__}): {remedy}")


def count(name: str, received: Any, remedy: str, least: int = 1, most: float = MOST) -> int:
    """``received`` as an ``int`` from ``least`` to ``most``; a float, a bool or a string is refused."""
    try:
        value = operator.index(received)
    except TypeError:
        value = None
    if value is None or isinstance(received, bool | Tensor):
        require_kind(False, name, received, f"give a whole number; {remedy}")
    assert value is not None
    require(least <= value <= most, name, received, remedy)
    return value


def number(name: str, received: Any, remedy: str) -> float:
    """``received`` as a ``float`` (perhaps infinite, never NaN); a bool, a string or a tensor is refused."""
    plain = isinstance(received, int | float) and not isinstance(received, bool)
    value = float(received) if plain or _is_numpy_number(received) else math.nan
    require_kind(plain or _is_numpy_number(received), name, received, f"give a number; {remedy}")
    require(not math.isnan(value), name, received, remedy)
    return value


def _is_numpy_number(received: Any) -> bool:
    return type(received).__module__ == "numpy" and getattr(received, "ndim", 1) == 0 and _real(received)


def _real(received: Any) -> bool:
    return getattr(received.dtype, "kind", "") in "iuf"


def tensor(name: str, received: Any) -> Tensor:
    """``received`` if it is a dense float64 tensor on the CPU; anything else is refused with what to give instead."""
    instead = "give torch.as_tensor(…, dtype=torch.float64)"
    require_kind(isinstance(received, Tensor), name, received, instead)
    require(received.dtype == torch.float64, f"the dtype of {name}", received.dtype, "give float64")
    require(
        received.device.type == "cpu",
        f"the device of {name}",
        str(received.device),
        "everything here is computed on the CPU: give …cpu()",
    )
    require(
        received.layout == torch.strided,
        f"the layout of {name}",
        received.layout,
        "give a dense tensor: …to_dense()",
    )
    values: Tensor = received
    return values


def require_each(condition: Tensor, name: str, values: Tensor, remedy: str) -> None:
    """Raise a ``ValueError`` that names the first entry of ``values`` where ``condition`` (of its shape) fails."""
    bad = (~condition).nonzero()
    if len(bad):
        where = tuple(bad[0].tolist())
        require(False, f"{name}[{', '.join(map(str, where))}]", values[where].item(), remedy)


def require_finite(name: str, values: Tensor) -> None:
    """Raise a ``ValueError`` that names the first entry of ``values`` that is NaN or infinite."""
    require_each(torch.isfinite(values), name, values, "give finite numbers")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around the imports of a library that fedgo[``name``] brings: an ``ImportError`` says so where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'fedgo[{name}]'") from error


def on_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` under the default device "cpu", whatever ``torch.set_default_device`` says."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        if (
            torch.get_default_device().type == "cpu"
        ):  # the usual case: the context would cost time at every operation
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return inner
