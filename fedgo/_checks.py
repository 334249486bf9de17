"""Validation at the public edge: before any work, one error names the argument, the value received and the remedy.

A number that is out of range raises a ``ValueError``. A value of another kind than the argument needs, such as a text
for a number, raises a ``TypeError``.
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
    """Raise a ``ValueError`` with the text "``name`` is ``received``: ``remedy``" unless ``condition`` is true.

    ``name`` is what the checked value is called, ``received`` the value, which is shown by its ``repr``, and ``remedy``
    says what to give instead.
    """
    if not condition:
        raise ValueError(f"{name} is {received!r}: {remedy}")


def require_kind(condition: bool, name: str, received: Any, remedy: str) -> None:
    """Raise a ``TypeError`` with the text "``name`` is ``received`` (its type): ``remedy``" unless ``condition`` is
    true.

    ``name`` is what the checked value is called, and ``remedy`` says what to give instead. At most 60 characters of the
    ``repr`` of the value ``received`` are shown.
    """
    if not condition:
        raise TypeError(f"{name} is {received!r:.60} ({type(received).__name__}): {remedy}")


def count(name: str, received: Any, remedy: str, least: int = 1, most: float = MOST) -> int:
    """Return ``received`` as an ``int``, after a check that it is a whole number in the allowed range.

    Args:
        name: What the number is called in an error.
        received: The value to check.
        remedy: What an error tells the reader to give instead.
        least: The smallest number that is allowed.
        most: The largest number that is allowed; by default 2⁵³, beyond which float64 does not hold every whole number.

    Raises:
        TypeError: ``received`` is not a whole number; a float, a bool and a string are refused too.
        ValueError: ``received`` is below ``least`` or above ``most``.
    """
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
    """Return ``received`` as a ``float``, after a check that it is a real number within the given limits.

    Args:
        name: What the number is called in an error.
        received: The value to check.
        remedy: What an error tells the reader to give instead.
        least: The smallest number that is allowed.
        above: A limit that the number must exceed.
        below: A limit that the number must stay below.
        infinite: Whether +∞ is allowed although it is not below ``below``.

    Raises:
        TypeError: ``received`` is a bool, a string, a tensor, a ``decimal.Decimal`` or anything else that is not a
            ``numbers.Real``.
        ValueError: ``received`` is NaN or outside the limits; the default limits exclude −∞, +∞, and whole numbers and
            fractions that are too large for a ``float``.
    """
    real = isinstance(received, numbers.Real) and not isinstance(received, bool)
    require_kind(real, name, received, f"give a number; {remedy}")
    within = above < received < below or (infinite and received == math.inf)
    require(within and least <= received, name, received, remedy)
    return float(received)


def tensor(name: str, received: Any) -> Tensor:
    """Return the object ``received`` itself, after a check that it is a dense float64 tensor on the CPU.

    ``name`` is what the tensor is called in an error. The shape and the values of the tensor are not checked.

    Raises:
        TypeError: ``received`` is not a tensor.
        ValueError: The tensor has another dtype, is on another device, or is sparse.
    """
    require_kind(isinstance(received, Tensor), name, received, "give torch.as_tensor(…, dtype=torch.float64)")
    values: Tensor = received
    kind = (values.dtype, values.device.type, values.layout)
    remedy = "give float64 on the CPU, dense: ….double().cpu().to_dense()"
    require(kind == (torch.float64, "cpu", torch.strided), f"the kind of {name}", kind, remedy)
    return values


def require_each(condition: Tensor, name: str, values: Tensor, remedy: str) -> None:
    """Raise a ``ValueError`` if ``condition`` is false at some entry of ``values``; the error names the first such
    entry in row-major order, by its index and its value.

    ``condition`` is a boolean tensor of the shape of ``values``, ``name`` is what the values are called in the error,
    and ``remedy`` says what to give instead.
    """
    bad = (~condition).nonzero()
    if len(bad):
        where = tuple(bad[0].tolist())
        require(False, f"{name}[{', '.join(map(str, where))}]", values[where].item(), remedy)


def require_finite(name: str, values: Tensor) -> None:
    """Raise a ``ValueError`` if an entry of the tensor ``values`` is NaN or infinite.

    The error names the first such entry, and ``name`` is what it calls the tensor.
    """
    require_each(torch.isfinite(values), name, values, "give finite numbers")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Make the imports in this context say how to install a library that is missing.

    ``name`` is the extra (the group of optional dependencies) of this package that installs the library, for instance
    "study".

    Raises:
        ImportError: A module is not found. The error takes the place of Python's ``ModuleNotFoundError``; it names the
            module and the command that installs the extra, for instance ``pip install 'fedgo[study]'``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'fedgo[{name}]'") from error


def on_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that does what ``function`` does, with the CPU as the default device of torch.

    Tensors that ``function`` creates without naming a device are therefore on the CPU, whatever default device its
    caller has set. A device that ``function`` names is used.
    """

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        # Usually the default device is the CPU already. The context costs time at every operation.
        if torch.get_default_device().type == "cpu":
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return inner
