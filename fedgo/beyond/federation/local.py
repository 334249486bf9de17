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
    """The interface of anything that answers the server's letters (messages) as a `Client` does, wherever it is."""

    def answer(self, received: bytes) -> bytes | None:
        """Return the answer to the server's letter ``received``, as bytes, or None if the letter needs none.

        If the same letter comes again before anything has followed on the answer, it gets the same answer.

        Raises:
            Refused: The letter is damaged, or does not fit this client or its state; nothing has changed.
        """
        ...


def at_random(share: float, seed: int = 0) -> Silence:
    """Return a rule by which each client is silent in each exchange with a given probability.

    The draws are independent, and the same ``seed`` gives the same draws.

    Args:
        share: The probability, from 0 to 1.
        seed: The seed of the draws, a whole number from 0 on. It is not checked here. The function that is returned
            raises a ``ValueError`` if the seed is negative, and a ``TypeError`` if it is a float.

    Returns:
        A function of the client's number and the exchange's number, in this order, which returns whether the client is
        silent.

    Raises:
        TypeError: ``share`` is not a number.
        ValueError: ``share`` is not from 0 to 1.
    """
    number("share", share, "give a probability", least=0, below=1 + 1e-12)

    def silent(client: int, exchange: int) -> bool:
        """Return whether the client with the number ``client`` is silent in the exchange with the number ``exchange``.

        It is so if a uniform number in [0, 1), which the seed and these two numbers determine, is below ``share``.
        """
        draw = generator(seed, exchange, f"silence of client {client}")
        return float(uniform_draws([draw])) < share

    return silent


def converse(server: Server, clients: Sequence[Answers], silent: Silence | None = None) -> dict[int, str]:
    """Make the exchange that is due between the server and N clients: a synchronisation, or the end of Phase I.

    The server asks the clients for their data, merges the answers, and sends the clients what follows on them.

    Args:
        server: The server, which begins the exchange unless one is open, and merges the answers.
        clients: The clients 0 to N − 1, or anything that answers letters (messages as bytes) as they do.
        silent: ``silent(client, number)`` returns whether a client does not answer in the exchange ``number``; it
            receives no letter in it either. None means that all clients answer.

    Returns:
        The reason of the last refusal, by client. If a client refuses a letter, or its answer is refused, it counts as
        silent, and the others go on. If no client answers in Phase I, Phase I goes on, and the exchange stays open.

    Raises:
        Refused: The server has used no answer yet, and a client belongs to another federation, as all clients do if the
            server's file is lost. The exchange stays open.
        ValueError: The number of ``clients`` is not N, the oracle (Algorithm 2) finds no parameter ŵ₀ of the network at
            the end of Phase I, or the number of the exchange would exceed 2³¹ − 1.
        ImportError: A library that the fit of the surrogate needs is missing.
        MemoryError: That fit needs more memory than there is.

    Warns:
        UserWarning: A fit of the surrogate fails; or a client has begun anew after it lost its file, and the server has
            used an answer of the lost client.
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

    Args:
        server: The server.
        clients: The clients 0 to N − 1, or anything that answers letters (messages as bytes) as they do.
        silent: ``silent(client, number)`` returns whether a client receives no letter in the exchange ``number``. None
            means that all clients receive theirs.

    Returns:
        The reason of each refusal, by client: the client refuses its letter, or the server refuses its answer. The
        others go on.

    Raises:
        ValueError: The number of ``clients`` is not N.

    Warns:
        UserWarning: A client has begun anew after it lost its file, and the server has used an answer of the lost
            client.
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
        problem: A problem of one run, which all clients face; or a sequence of N problems with the same arms, run and
            seed, one for each client. The regret of a pull then counts from the best arm of the client that makes it.
        plan: The public plan, made with the problem's arms. Its type is not checked.
        steps: The number of steps of Phase II, which follow on the T₀ steps of Phase I.
        turns: The number of the client that makes each step of Phase II, (steps,) int64; None means round robin.
        silent: ``silent(client, number)`` returns whether a client does not answer in the exchange ``number`` of Phase
            II. None means that all clients answer.
        together: Whether the clients synchronise only at the end of a round of N steps, if any of them has asked for an
            exchange (`Client.tell`) since the last one. Otherwise they synchronise right after the step at which a
            client asks.

    Returns:
        The trace of the T₀ + ``steps`` steps of the run. Its ``sync`` marks the exchanges of Phase II, also those in
        which no client answered.

    Raises:
        TypeError: A problem is not a `Problem`, ``turns`` is not an int64 tensor, or ``steps`` is not a whole number.
        ValueError: A sequence does not have N problems; a problem has several runs or other arms than the plan; the
            problems differ in run or seed; ``steps`` is below 1; ``turns`` has another shape or contains a number that
            is not from 0 to N − 1; the oracle (Algorithm 2) finds no parameter ŵ₀ of the network at the end of Phase I;
            a reward is not between −10¹⁰⁰ and 10¹⁰⁰; the index of an arm is NaN; or so many pulls of a silent client
            wait that no answer may carry one more.
        RuntimeError: With a network, a client refuses ŵ₀, because the network's gradients are so large, or the
            regularisation weight λ so small, that rounding would decide which arm is pulled. The message says so.
        ImportError: A library that the fit of the surrogate needs is missing.
        MemoryError: That fit needs more memory than there is.

    Warns:
        UserWarning: A fit of the surrogate fails.
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
