"""Plates for a client of a federation, whose options are those of a laboratory's table.

The plan is `fedgo.beyond.federation.plan.Plan.of` these options, so that an arm is an option.
"""

from copy import copy
from typing import Any

from fedgo.beyond.federation.client import Client
from fedgo.beyond.study.cells import FAILED
from fedgo.beyond.study.table import Options, read, refuse


def plate(client: Client, options: Options, size: int) -> Any:
    """Return the next trials of a client as a pandas frame with the owner's columns and an empty one for results.

    Args:
        client: The client, which is not changed.
        options: The options of its plan.
        size: The most trials. There are fewer if the client's share is smaller.
    """
    return options.plate([options.names[arm] for arm in client.upcoming(size)])


def tell_plate(client: Client, options: Options, table: Any, lower_is_better: bool = False) -> bool:
    """Tell a client all results in a table, or none, and return whether to ask the server for an exchange.

    Args:
        client: The client.
        options: The options of its plan.
        table: The path of a file or a pandas frame, as `fedgo.beyond.study.study.Study.tell_plate` takes it. An option
            that has "failed" is retired at this client.
        lower_is_better: Whether lower results are better, so that a reward is the result with the other sign.

    Raises:
        TypeError: ``table`` is neither a path nor a frame.
        ValueError: A row does not fit the options, or the client refuses a result. Nothing is changed.
    """
    number, after, fires = {name: arm for arm, name in enumerate(options.names)}, copy(client), False
    rows = read(table, known=options, result=options.result).results
    refuse([f"row {row}: the plan has no option {name!r}" for row, name, _ in rows if name not in number])
    for _, name, result in rows:
        if result == FAILED:
            after.retire(number[name])
        else:
            fires = after.tell(number[name], -float(result) if lower_is_better else float(result)) or fires
    vars(client).update(vars(after))
    return fires
