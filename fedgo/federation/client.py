"""One client of Algorithm 1, without a transport: ask for an arm, tell its reward, answer the server's letters.

In the order of a step::

    arm = client.ask()                       # line 3, or a uniform pull of Phase I
    if client.tell(arm, reward): ...         # lines 4–6: the event fires, ask the server for a synchronisation
    reply = client.answer(letter)            # lines 7–10

It holds its own rewards, and never a true mean. What it plays by is a `fedgo.federation.model.Model`.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedgo import _files
from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo.confidence import Tally
from fedgo.federation.model import Estimate, Model, around, in_epochs
from fedgo.federation.plan import Plan
from fedgo.federation.wire import Kind, Letter, decode, must, pack, unpack


class Memory(NamedTuple):
    """All that a client's file holds. Counts and sums are (2, K), of residuals around ŵ₀, with a surrogate of rewards.

    Each of its own pulls is in one of three parts, ``unsent``, ``sent`` and ``used``, until a ``NEWS`` brings it back
    within ``base``.
    """

    weights: Tensor  # (n,), with which its model begins: ŵ₀, or those of a surrogate's last fit; empty before
    base: Tensor  # what it has been sent: the pulls of all
    unsent: Tensor  # its own that no letter has carried; in Phase I all of them
    sent: Tensor  # its own that its last answer carries
    used: Tensor  # its own that the server says it has used, while the news of them were lost
    retired: Tensor  # (K,) bool
    reply: Tensor  # the bytes of its last answer, uint8
    pulls: int  # rewards that it was told, Phase I included
    answered: int  # the last exchange with an answer
    applied: int  # the exchange of the last START or NEWS
    calling: bool  # whether the event has fired, or Phase I is done here, and no letter came since

    @property
    def own(self) -> Tensor:
        """All of its own that is not in ``base``."""
        return self.unsent + self.sent + self.used


_ARRAYS = ("weights", "base", "unsent", "sent", "used", "retired", "reply")


class Client:
    """Client ``me`` (0 to N − 1) of ``plan``."""

    memory: Memory
    _model: Model | None = None  # in Phase I there is none

    @on_cpu
    def __init__(self, plan: Plan, me: int = 0) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        self.plan = plan
        remedy = f"number the clients 0 to {plan.clients - 1}"
        self.me = count("me", me, remedy, least=0, most=plan.clients - 1)
        nothing = torch.zeros(2, len(plan.arms), dtype=torch.float64)
        self._remember(
            Memory(
                weights=torch.zeros(0, dtype=torch.float64),
                base=nothing,
                unsent=nothing,
                sent=nothing,
                used=nothing,
                retired=torch.zeros(len(plan.arms), dtype=torch.bool),
                reply=torch.zeros(0, dtype=torch.uint8),
                pulls=0,
                answered=plan.known_exchange,
                applied=plan.known_exchange,
                calling=False,
            )
        )

    # asking and telling

    @property
    def exploring(self) -> bool:
        """Whether Phase I is not over: ŵ₀, or with a surrogate what all have seen, is not known yet."""
        return self._model is None

    @property
    def calling(self) -> bool:
        """Whether this client waits for the server to begin an exchange."""
        return self.memory.calling

    @property
    def pulls(self) -> int:
        """How many rewards it was told, Phase I included."""
        return self.memory.pulls

    @on_cpu
    def ask(self) -> int:
        """The arm to pull next; the same one until ``tell`` is called. A ``RuntimeError`` between the two phases."""
        if self._model is not None:
            return self._model.best(self.memory.retired, self.plan.order_of_ties[self.me])
        uniform = self.plan.uniform_pulls(self.me)
        if self.pulls >= len(uniform):
            raise RuntimeError(
                "Phase I is done here, and its end has not come: let the client answer the server"
            )
        return int(uniform[self.pulls])

    @on_cpu
    def tell(self, arm: int, reward: float) -> bool:
        """Learn that ``arm`` gave ``reward``; whether to ask the server for an exchange: the event of line 6 fires.

        In Phase I it is true once this client's share of the pulls is done. Any arm may be told, not only the one
        that was asked for, except in Phase I, which is uniform.
        """
        self._require_arm(arm)
        remedy = "give a finite number"
        require(abs(number("reward", reward, remedy)) < float("inf"), "reward", reward, remedy)
        pull, residual = torch.tensor(arm), torch.tensor(reward, dtype=torch.float64)
        memory, model = self.memory, self._model
        if model is None:
            asked = self.ask()
            require(arm == asked, "arm", arm, f"Phase I is uniform: tell of the arm asked for, {asked}")
            fires = self.pulls + 1 == len(self.plan.uniform_pulls(self.me))
        else:
            fires = model.fires(pull)
            self._model = model.learned(pull, residual)
            residual = residual - model.offsets[pull]
        unsent = Tally(*memory.unsent).record(pull, residual, torch.ones_like(residual))
        calling = memory.calling or fires
        self.memory = memory._replace(unsent=torch.stack(unsent), pulls=self.pulls + 1, calling=calling)
        return fires

    def retire(self, arm: int, retired: bool = True) -> None:
        """Do not ask for ``arm`` again, or (``retired`` false) again after all; one arm has to remain."""
        self._require_arm(arm)
        mask = self.memory.retired.index_fill(0, torch.tensor(arm), retired)
        require(not bool(mask.all()), "the arms that remain", 0, "keep at least one")
        self.memory = self.memory._replace(retired=mask)

    def _require_arm(self, arm: int) -> None:
        last = len(self.plan.arms) - 1
        count("arm", arm, f"give the number of an arm, 0 to {last}", least=0, most=last)

    @property
    def known(self) -> Tally:
        """Pulls of every arm and sums of their rewards, its own and what it was sent of the others'; (K,) each.

        Those of Phase I are among them while it goes on, and with a surrogate for good."""
        counts, sums = self.memory.base + self.memory.own
        return Tally(counts, sums if self._model is None else sums + counts * self._model.offsets)

    @property
    def estimate(self) -> Estimate | None:
        """What this client's model says of every arm; None in Phase I."""
        return None if self._model is None else self._model.estimate()

    def notes(self, arm: int) -> dict[str, Tensor]:
        """Of a pull of ``arm`` a guard's ``certificate``, and whether it is the one ``proposed``; else nothing."""
        return {} if self._model is None else self._model.notes(torch.tensor(arm))

    @on_cpu
    def extended(self, plan: Plan) -> "Client":
        """This client under ``plan``, which has more arms and is else the same; allowed once ŵ₀ is known."""
        remedy = "its pulls are drawn from the arms that there were: add later"
        require(not self.exploring, "the phase", "I", remedy)
        self.plan.require_extended_by(plan)
        client, memory, more = Client(plan, self.me), self.memory, (0, len(plan.arms) - len(self.plan.arms))
        client._remember(
            memory._replace(
                base=pad(memory.base, more),
                unsent=pad(memory.unsent, more),
                sent=pad(memory.sent, more),
                used=pad(memory.used, more),
                retired=pad(memory.retired, more),
            )
        )
        return client

    # letters

    @on_cpu
    def answer(self, received: bytes) -> bytes | None:
        """The answer to a letter of the server, or None where it wants none; ``Refused`` changes nothing.

        A letter that comes twice gets the same answer again and changes nothing.
        """
        letter, memory = decode(received, self.plan.fingerprint), self.memory
        number, kind = letter.number, letter.kind
        asks = kind in (Kind.REPORT, Kind.SYNCHRONISE)
        tells = kind in (Kind.START, Kind.NEWS)
        must(asks or tells, f"kind {kind.name}: a client sends it, and gets none")
        must(letter.client == self.me, f"for client {letter.client}: this is client {self.me}")
        if tells and number <= memory.applied:
            return None
        must(number >= memory.answered, f"out of order: exchange {number}, and {memory.answered} is answered")
        if tells:
            self._remember(self._started(letter) if kind == Kind.START else self._told(letter))
            return None
        if number > memory.answered:
            self.memory = self._explored(letter) if kind == Kind.REPORT else self._synchronised(letter)
        return bytes(self.memory.reply.numpy())

    @property
    def _takes_part(self) -> bool:
        """Whether it has what its counts and sums are of: nothing more, or ŵ₀."""
        return self.plan.network is None or not self.exploring

    def _explored(self, letter: Letter) -> Memory:
        """The memory with the answer at the end of Phase I: counts and sums of rewards."""
        plan, memory = self.plan, self.memory
        must(plan.network is not None, "REPORT has no place here")
        must(self.exploring, "out of order: REPORT, and ŵ₀ is known")
        must(self.pulls == len(plan.uniform_pulls(self.me)), "too early: Phase I goes on here")
        return self._replied(memory, letter.number, Kind.EXPLORED, pack(memory.unsent))

    def _synchronised(self, letter: Letter) -> Memory:
        """The memory with the answer of lines 7–8: counts and sums since the last one that the server has used."""
        memory = self.memory
        if not self._takes_part:
            return self._replied(memory, letter.number, Kind.STATISTICS, torch.zeros(0).double())
        if letter.since >= memory.answered > memory.applied:
            memory = memory._replace(used=memory.used + memory.sent)
        else:
            memory = memory._replace(unsent=memory.unsent + memory.sent)
        memory = memory._replace(sent=memory.unsent, unsent=torch.zeros_like(memory.sent))
        return self._replied(memory, letter.number, Kind.STATISTICS, pack(memory.sent))

    def _replied(self, memory: Memory, exchange: int, kind: Kind, numbers: Tensor) -> Memory:
        letter = Letter(kind, self.me, exchange, memory.applied, numbers).encode(self.plan.fingerprint)
        reply = torch.frombuffer(bytearray(letter), dtype=torch.uint8)
        return memory._replace(reply=reply, answered=exchange, calling=False)

    def _started(self, letter: Letter) -> Memory:
        """The memory with ŵ₀."""
        network, size = self.plan.network, len(letter.numbers)
        out_of_order = f"out of order: START of exchange {letter.number}, and ŵ₀ is known"
        must(network is not None and self.exploring, out_of_order)
        assert network is not None
        must(size == network.size, f"wrong shape: {size} numbers of START, not {network.size}")
        return self._with_weights(letter.number, letter.numbers)

    def _told(self, letter: Letter) -> Memory:
        """The memory after the news of an exchange in which this client took part."""
        memory = self.memory
        of_this = letter.number == memory.answered and letter.since == memory.applied
        reason = f"out of order: news of exchange {letter.number} on {letter.since}, "
        reason += f"and this client answered {memory.answered} on {memory.applied}"
        must(self._takes_part and of_this, reason)
        return self._with_news(letter.number, unpack(letter.numbers, len(self.plan.arms)))

    def _with_weights(self, exchange: int, w0: Tensor) -> Memory:
        """Phase I has done its part, and from now on residuals are summed."""
        memory = self.memory._replace(weights=w0, unsent=torch.zeros_like(self.memory.unsent))
        return memory._replace(answered=exchange, applied=exchange, calling=False)

    def _with_news(self, exchange: int, news: Tensor) -> Memory:
        memory, nothing = self.memory, torch.zeros_like(news)
        weights = memory.weights if self._model is None else self._model.weights
        memory = memory._replace(weights=weights, base=memory.base + news, applied=exchange)
        return memory._replace(sent=nothing, used=nothing)

    @on_cpu
    def absorb_own(self) -> None:
        """What a server would do for its only client: fit ŵ₀, or make its own pulls everybody's."""
        plan, exchange = self.plan, self.memory.applied + 1
        require(plan.clients == 1, "clients", plan.clients, "a client among several needs a server")
        left = len(plan.uniform_pulls(0)) - self.pulls if self.exploring else 0
        require(left == 0, "the pulls of Phase I that are left", left, "make them first")
        if self._takes_part:
            memory = self._with_news(exchange, self.memory.own)
            nothing = torch.zeros_like(memory.unsent)
            self._remember(memory._replace(unsent=nothing, answered=exchange, calling=False))
        else:
            self._remember(self._with_weights(exchange, plan.oracle(self.memory.unsent)))

    # the file

    def save(self, path: str | Path, **also: Any) -> None:
        """Write all that this client knows, and what ``also`` names, to one file, whole or not at all."""
        numbers = self.memory._asdict()
        arrays = {name: numbers.pop(name) for name in _ARRAYS}
        about = {"client": self.me, "plan": self.plan.fingerprint}
        _files.write(path, "the client", about | numbers | also, arrays)

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Client":
        """The client of ``plan`` that ``save`` wrote; a ``ValueError`` that names the file where it is another's."""
        with _files.refused_by_name(path, "the client", "a saved Client of this plan"):
            about, arrays = _files.read(path, "the client", _ARRAYS)
            same = about["plan"] == plan.fingerprint
            require(same, "the plan", about["plan"], "the file is of another plan")
            client, content = cls(plan, about["client"]), about | arrays
            client._remember(Memory(**{name: content[name] for name in Memory._fields}))
        return client

    def _remember(self, memory: Memory) -> None:
        """Take over ``memory``, and the model that follows from it."""
        plan = self.plan
        if plan.length and memory.applied == plan.known_exchange:
            model = None
        elif plan.fitting is None:
            model = around(plan, memory.weights, memory.base, self._model).after(memory.own)
        else:
            syncs = memory.applied - 2  # exchange 1 counts as made before, and 2 ended Phase I
            model = in_epochs(plan, plan.fitting, self.me, memory.weights, memory.base, syncs)
            model = model.after(memory.own)
        self.memory, self._model = memory, model
