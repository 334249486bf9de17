"""Validation at the public edge: before any work, one error names the argument, the value received and the remedy.

A value of the right kind that is out of range raises a ``ValueError``, a value of another kind a ``TypeError``.
"""

import math
import numbers
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
    """Raise a ``TypeError`` "``name`` is ``received`` (its type): ``remedy``" unless ``condition`` holds.

    At most 60 characters of ``received`` are shown.
    """
    if not condition:
        raise TypeError(f"{name} is {received!r:.60} ({type(received).__name__}): {remedy}")


def count(name: str, received: Any, remedy: str, least: int = 1, most: float = MOST) -> int:
    """Return ``received`` as an ``int`` if it is a whole number from ``least`` to ``most``.

    A float, a bool and a string are refused with a ``TypeError``, a number out of range with a ``ValueError``.
    """
    whole = isinstance(received, numbers.Integral) and not isinstance(received, bool)
    require_kind(whole, name, received, f"give a whole number; {remedy}")
    require(least <= received <= most, name, received, remedy)
    return int(received)


def number(
    name: str,
    received: Any,
    remedy: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    infinite: bool = False,
) -> float:
    """Return ``received`` as a ``float`` if it is a number within the given limits.

    NaN, a bool, a string and a tensor are refused. ``infinite`` says whether ∞ is allowed; ``least`` is allowed itself,
    ``above`` and ``below`` are not.
    """
    real = isinstance(received, numbers.Real) and not isinstance(received, bool)
    require_kind(real, name, received, f"give a number; {remedy}")
    within = above < received < below or (infinite and received == math.inf)
    require(within and least <= received, name, received, remedy)
    return float(received)


def tensor(name: str, received: Any) -> Tensor:
    """Return ``received`` if it is a dense float64 tensor on the CPU.

    Another tensor raises a ``ValueError``, anything else a ``TypeError``; both say what to give instead.
    """
    require_kind(isinstance(received, Tensor), name, received, "give torch.as_tensor(…, dtype=torch.float64)")
    values: Tensor = received
    kind = (values.dtype, values.device.type, values.layout)
    remedy = "give float64 on the CPU, dense: ….double().cpu().to_dense()"
    require(kind == (torch.float64, "cpu", torch.strided), f"the kind of {name}", kind, remedy)
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
    """Turn the error of a missing library, imported in this context, into one that says which extra installs it.

    The ``ImportError`` names the library and the command ``pip install 'fedgo[name]'``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'fedgo[{name}]'") from error


def on_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` decorated so that its tensors are on the CPU, whatever torch's default device is."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        # usually the default is the CPU already; the context would cost time at every operation
        if torch.get_default_device().type == "cpu":
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return inner
