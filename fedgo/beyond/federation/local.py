"""A federation in one process: the clients pull in turn, letters are handed over, and a whole run gives a trace."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_each, require_kind
from fedgo._streams import generator, uniform_draws
from fedgo.beyond.federation.client import Client
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.server import Server
from fedgo.beyond.federation.wire import Refused
from fedgo.problem import Problem
from fedgo.trace import Trace

Silence = Callable[[int, int], bool]


class Answers(Protocol):
    """Anything that answers the server's letters as a `Client` does, wherever it is."""

    def answer(self, received: bytes) -> bytes | None:
        """Return the answer to the server's letter ``received``, or None if it needs none.

        If the same letter comes again before anything has followed on the answer, it gets the same answer. A letter
        that does not fit is `Refused`.
        """
        ...


def at_random(share: float, seed: int = 0) -> Silence:
    """Return a rule by which each client is silent in each exchange with a given probability.

    Args:
        share: The probability, from 0 to 1.
        seed: The seed of the draws, which are independent, a whole number from 0 on.

    Raises:
        TypeError: ``share`` is not a number.
        ValueError: ``share`` is not from 0 to 1.
    """
    number("share", share, "give a probability", least=0, below=1 + 1e-12)

    def silent(client: int, exchange: int) -> bool:
        draw = generator(seed, exchange, f"silence of client {client}")
        return float(uniform_draws([draw])) < share

    return silent


def converse(server: Server, clients: Sequence[Answers], silent: Silence | None = None) -> dict[int, str]:
    """Make the exchange that is due between the server and N clients: a synchronisation, or the end of Phase I.

    A client that refuses a letter, or whose answer is refused, counts as silent, and the others go on. If no client
    answers in Phase I, Phase I goes on, and the exchange stays open.

    Args:
        server: The server, which begins the exchange unless one is open, and merges the answers.
        clients: The clients 0 to N − 1, or anything that answers letters as they do.
        silent: ``silent(client, number)`` returns whether a client does not answer in the exchange ``number``; it
            receives no letter in it either. None means that all clients answer.

    Returns:
        The reason of the last refusal, by client.

    Raises:
        Refused: The server has used no answer yet, and a client belongs to another federation, as all clients do if the
            server's file is lost. The exchange stays open.
        ValueError: The number of ``clients`` is not N, or `Server.begin` or `Server.merge` refuses.
    """
    server.begin()
    words = deliver(server, clients, silent)
    for i, why in words.items():
        if why.startswith("another federation") and not server.started:
            raise Refused(f"client {i} refuses the letters of a new server, whose file may be lost: {why}")
    if server.started or server.desk.inbox:  # if no client answered, Phase I goes on
        server.merge()
        words |= deliver(server, clients, silent)
    return words


def deliver(server: Server, clients: Sequence[Answers], silent: Silence | None = None) -> dict[int, str]:
    """Hand the server's letters that are due to the N clients, and the clients' answers to the server.

    The arguments and the result are those of `converse`.
    """
    require(len(clients) == server.plan.clients, "the clients", len(clients), f"give {server.plan.clients}")
    words = {}
    for i, letter in server.letters().items():
        try:
            reply = None if silent and silent(i, server.number) else clients[i].answer(letter)
            if reply is not None:
                server.accept(reply, sender=i)
        except Refused as refusal:
            words[i] = str(refusal)
    return words


@on_cpu
def play(
    problem: Problem | Sequence[Problem],
    plan: Plan,
    steps: int,
    turns: Tensor | None = None,
    silent: Silence | None = None,
    together: bool = False,
) -> Trace:
    """Play one run of ``plan`` by N clients and a server in this process, and return its trace.

    If all clients face one problem, the plan has its run and seed, and ``turns``, ``silent`` and ``together`` are not
    given, then with a network the arms, rewards, synchronisations and scalars are those of `fedgo.fed_go_ucb`. With a
    fitting, unless its clients differ, they are those of `fedgo.beyond.method.epochs.surrogate_ucb` with a joint plan,
    except for the scalars: here the server sends its plans.

    Args:
        problem: A problem of one run, which all clients face; or N problems with the same arms, run and seed, one for
            each client. The regret of a pull then counts from the best arm of the client that makes it.
        plan: The public plan, made with the problem's arms.
        steps: The number of steps of Phase II, which follow on the T₀ steps of Phase I.
        turns: The number of the client that makes each step of Phase II, (steps,) int64; None means round robin.
        silent: As in `converse`, for the exchanges of Phase II.
        together: Whether the clients synchronise only at the end of a round of N steps, if any of them has asked for an
            exchange since the last one; if not, they do so right after the step.

    Returns:
        The trace. Its ``sync`` marks the exchanges of Phase II, also those in which no client answered.

    Raises:
        TypeError: A problem is not a `Problem`, ``turns`` is not an int64 tensor, or ``steps`` is not a whole number.
        ValueError: The problems do not fit the plan or each other; ``steps`` is below 1; ``turns`` has another shape or
            a number that is not from 0 to N − 1; `Server.merge` or `Client.tell` refuses; or the index of an arm is
            NaN.
        RuntimeError: A client refuses ŵ₀, because the network's gradients are so large, or λ so small, that rounding
            would decide which arm is pulled.
    """
    problems = list(problem) if isinstance(problem, Sequence) else [problem] * plan.clients
    require(len(problems) == plan.clients, "the number of problems", len(problems), "give one for each")
    for one in problems:
        require_kind(isinstance(one, Problem), "problem", one, "give a Problem, or one for each client")
        require(len(one.runs) == 1, "the number of runs", len(one.runs), "give one: problem.only(0)")
        require(torch.equal(one.arms[0], plan.arms), "the arms", "others", "give the plan of this problem")
        same = (one.runs, one.seed) == (problems[0].runs, problems[0].seed)  # they determine the noise
        require(same, "the run and seed", (one.runs, one.seed), "give all problems the same")
    count("steps", steps, "give at least one step of Phase II")
    clients, server = [Client(plan, i) for i in range(plan.clients)], Server(plan)
    first, total = plan.length, plan.length + steps
    turns = torch.arange(steps) % plan.clients if turns is None else turns
    whole = isinstance(turns, Tensor) and turns.dtype == torch.int64
    require_kind(whole, "turns", turns, "give int64, the client of every step")
    require(turns.shape == (steps,), "the shape of turns", tuple(turns.shape), f"give ({steps},)")
    require_each((turns >= 0) & (turns < plan.clients), "turns", turns, f"give 0 to {plan.clients - 1}")
    turns = torch.cat([torch.arange(first) % plan.clients, turns])
    noise = problems[0].tape(total)
    arms, rewards = torch.zeros(1, total, dtype=torch.int64), torch.zeros(1, total, dtype=torch.float64)
    sync, due, bills = torch.zeros(1, total, dtype=torch.bool), False, [server.scalars]
    for t, i in enumerate(turns.tolist()):
        arm = clients[i].ask()
        reward = float(problems[i].observe(torch.tensor([[arm]]), noise[:, t : t + 1]))
        arms[0, t], rewards[0, t] = arm, reward
        due = clients[i].tell(arm, reward) or due
        ends = not together or (t + 1 - first) % plan.clients == 0
        if t == first - 1 or (t >= first and due and ends):
            refused = converse(server, clients, silent if t >= first else None)
            if refused:
                raise RuntimeError(f"letters are refused, by client: {refused}")
            sync[0, t], due = t >= first, False
        bills.append(server.scalars)
    regret = torch.cat([one.regret(arms) for one in problems]).gather(0, turns.unsqueeze(0))
    up, down = torch.tensor(bills).diff(dim=0).T.unsqueeze(1)
    name = f"{type(plan.fitting.surrogate).__name__}, joint" if plan.fitting else "Fed-GO-UCB"
    return Trace(name, problems[0].name, plan.clients, first, arms, rewards, regret, up, down, sync)
