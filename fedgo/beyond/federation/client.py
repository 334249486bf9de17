"""One client of Algorithm 1, without a transport: ask for an arm, tell its reward, answer the server's letters.

In the order of a step::

    arm = client.ask()                       # line 3, or a pull of Phase I
    if client.tell(arm, reward): ...         # lines 4–6: the event fires, ask the server for a synchronisation
    reply = client.answer(letter)            # lines 7–10

It holds its own rewards, and never a true mean. It plays the paper's algorithm by a
`fedgo.beyond.federation.model.ClientModel`. In Phase I, and where the server plans, it plays its share of a public
plan; once the share is used up, it goes on from the beginning of the share.
Save it before an answer leaves: a client from an older file is refused by name, as its pulls would be counted twice.
Who has lost the file begins anew with ``Client(plan, me)``, at any moment: the server gives it all that is known. What
only the file knew, the pulls that no answer had carried, is lost, and a warning says so.
"""

import secrets
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo.beyond.federation import files, wire
from fedgo.beyond.federation.model import ClientModel
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.states import CLIENT, ClientState
from fedgo.beyond.federation.wire import HUGE, NEVER, Exchange, Kind, Letter, Refused, must
from fedgo.confidence import Tally


class Memory(NamedTuple):
    """All that a client's file holds. Counts and sums are (2, K), of residuals around ŵ₀, without a network of rewards.

    Each of its own pulls is in one of three fields, ``unsent``, ``sent`` and ``used``, until ``NEWS`` or a ``PLAN``
    bring it within ``base``.
    """

    share: Tensor  # (n,) int64: its arms, in Phase I or by the last PLAN
    calls: int  # after how many pulls with this share it calls
    answered: Exchange  # the last one with an answer
    applied: Exchange  # that of the last START, NEWS or PLAN
    start: int  # the number drawn when it began without a file, which no other start of this client has
    base: Tensor  # what it has been sent, the pulls of all; where the server plans, its own that were used
    unsent: Tensor  # its own that no letter has carried; in Phase I all of them
    sent: Tensor  # its own that its last answer carries
    used: Tensor  # its own that the server says it has used, while the news of them were lost
    retired: Tensor  # (K,) bool
    weights: Tensor = torch.zeros(0).double()  # ŵ₀ (d_w,), empty before it is known
    reply: bytes = b""  # its last answer
    confirmed: Exchange = NEVER  # the last one of which it knows that its answer was used
    federation: int = 0
    pulls: int = 0  # rewards that it was told, Phase I included
    begun: int = 0  # of these, those before it got its share
    calling: bool = False  # whether the event has fired, or Phase I is done here, and no letter came since

    @property
    def own(self) -> Tensor:
        """All of its own pulls that are not in ``base``."""
        return self.unsent + self.sent + self.used


_FULL = "no answer may carry more: let this client answer, or begin a plan with more rounds"
_OLDER = "it is late, or this side or the server is from an older file: load the last one, or begin anew without a file"


class Client:
    """Client ``me`` (0 to N − 1) of ``plan``."""

    memory: Memory
    _model: ClientModel | None = None  # in Phase I there is none, and none where the server plans

    @on_cpu
    def __init__(self, plan: Plan, me: int = 0) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        self.plan = plan
        remedy = f"number the clients 0 to {plan.clients - 1}"
        self.me = count("me", me, remedy, least=0, most=plan.clients - 1)
        nothing = torch.zeros(2, len(plan.arms), dtype=torch.float64)
        share, calls = plan.first_share(self.me)
        known, start = plan.known_exchange, 1 + secrets.randbits(63)
        memory = Memory(
            share, calls, known, known, start, nothing, nothing, nothing, nothing, nothing[0].bool()
        )
        self._remember(memory)

    # asking and telling

    @property
    def state(self) -> ClientState:
        """The state of this client, which decides what it makes of a letter (`fedgo.beyond.federation.states`)."""
        memory = self.memory
        if self.plan.network is not None and len(memory.weights) == 0:
            return ClientState.EXPLORING if memory.answered == NEVER else ClientState.EXPLORED
        if memory.answered != memory.applied:
            return ClientState.ANSWERED
        return ClientState.CALLING if memory.calling else ClientState.PULLING

    @property
    def exploring(self) -> bool:
        """Whether Phase I is not over: ŵ₀, or what the server plans, is not known yet."""
        return self.memory.applied == self.plan.known_exchange

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
        """The arm to pull next; the same one until ``tell`` is called. With a network a ``RuntimeError`` between the
        two phases."""
        memory = self.memory
        if self._model is not None:
            return self._model.best(memory.retired, self.plan.order_of_ties[self.me])
        if self.plan.network is not None and self.pulls >= len(memory.share):
            raise RuntimeError("Phase I is done here, and its end has not come: let this client answer")
        place = (self.pulls - memory.begun) % len(memory.share)
        arms = torch.cat([memory.share.roll(-place), torch.arange(len(self.plan.arms))])
        return int(arms[~memory.retired[arms]][0])

    @on_cpu
    def tell(self, arm: int, reward: float) -> bool:
        """Learn that ``arm`` gave ``reward``; whether to ask the server for an exchange: the event of line 6 fires.

        With a share of a plan it is true once the epoch has to end, and from then on. Any arm may be told, not only the
        one that was asked for, except in Phase I with a network, which is uniform.
        """
        self._require_arm(arm)
        remedy = f"give a finite number, within ±{HUGE:g}"
        value = number("reward", reward, remedy, above=-HUGE, below=HUGE)
        waiting = int((self.memory.unsent + self.memory.sent)[0].sum())
        require(waiting < self.plan.due, "the number of pulls that the server has not used", waiting, _FULL)
        pull, residual = torch.tensor(int(arm)), torch.tensor(value, dtype=torch.float64)
        memory, model = self.memory, self._model
        if model is None:
            asked = arm if self.plan.network is None else self.ask()
            require(arm == asked, "arm", arm, f"Phase I is uniform: tell of the arm asked for, {asked}")
            fires = self.pulls + 1 - memory.begun >= memory.calls
        else:
            fires = model.fires(pull)
            model, offset = model.learned(pull, residual), model.offsets[pull]
            residual = residual - offset
        unsent = Tally(*memory.unsent).record(pull, residual, torch.ones_like(residual))
        calling = memory.calling or fires
        self.memory = memory._replace(unsent=torch.stack(unsent), pulls=self.pulls + 1, calling=calling)
        self._model = model
        return fires

    @on_cpu
    def retire(self, arm: int, retired: bool = True) -> None:
        """Do not ask for ``arm`` again, or (``retired`` false) again after all; one arm has to remain."""
        self._require_arm(arm)
        mask = self.memory.retired.index_fill(0, torch.tensor(int(arm)), retired)
        require(not bool(mask.all()), "the arms that remain", 0, "keep at least one")
        self.memory = self.memory._replace(retired=mask)

    def _require_arm(self, arm: int) -> None:
        last = len(self.plan.arms) - 1
        count("arm", arm, f"give the number of an arm, 0 to {last}", least=0, most=last)

    # letters

    @on_cpu
    def answer(self, received: bytes) -> bytes | None:
        """Return the answer to a letter of the server, or None if the letter wants none.

        A letter that comes twice gets the same answer again and changes nothing. So does a plan, or news, for an
        earlier start of this client, whose file is lost. What follows on all others is in the table
        `fedgo.beyond.federation.states.CLIENT`.

        Raises:
            Refused: If the letter does not fit; then nothing has changed.
        """
        memory, me = self.memory, f"client {self.me}"
        letter = wire.decode(received, self.plan.fingerprint, memory.federation)
        kind, number, asked = letter.kind, letter.exchange.number, letter.kind == Kind.SYNCHRONISE
        must(kind != Kind.STATISTICS, f"kind {kind.name}: a client sends it, and gets none")
        must(letter.client == self.me, f"for client {letter.client}: this is {me}")
        if not asked and self._is_over(letter):
            return None
        answered, applied = memory.answered.number, memory.applied.number
        must(number >= answered, f"out of order: exchange {number}, and {answered} is answered; {_OLDER}")
        must(number > applied, f"out of order: exchange {number}, and its news are here; {_OLDER}")
        if asked and letter.exchange == memory.answered:
            return memory.reply
        step, reason = CLIENT.get((self.state, kind)), f"out of order: {kind.name} of exchange {number}"
        if step is None:
            raise Refused(f"{reason}, and {me} is {self.state}; {_OLDER}")
        memory = getattr(self, step.handler)(letter)._replace(federation=letter.federation)
        if asked:
            self.memory = memory
            return self.memory.reply
        try:
            self._remember(memory)
        except (ValueError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            raise Refused(f"no model of these numbers: {error}") from error
        return None

    def _is_over(self, letter: Letter) -> bool:
        """Return whether ``START``, ``NEWS`` or a ``PLAN`` came before, or is for an earlier start of this client."""
        memory, exchange = self.memory, letter.exchange
        if exchange == memory.applied or exchange.number < memory.applied.number:
            return True
        earlier = letter.start not in (0, memory.start) and memory.confirmed == NEVER
        return earlier and letter.kind != Kind.START

    def _is_used(self, letter: Letter) -> bool:
        """Return whether a request says that the last answer was used, while the news of it were lost."""
        memory = self.memory
        last = letter.since.number == memory.answered.number > memory.applied.number
        return last and letter.start == memory.start and letter.used == wire.checksum(memory.reply)

    def _answer_early(self, letter: Letter) -> Memory:
        """Answer without ŵ₀: with the counts and sums of Phase I in the first exchange, and with none later."""
        if letter.exchange.number > 1:
            return self._answered(letter, self.memory, torch.zeros(0).double())
        must(self.pulls == len(self.memory.share), "too early: Phase I goes on here")
        return self._answered(letter, self.memory, wire.pack(self.memory.unsent))

    def _answer_since(self, letter: Letter) -> Memory:
        """Answer by lines 7–8: with the counts and sums of all pulls since the last answer that the server has used."""
        memory = self.memory
        if self._is_used(letter):
            memory = memory._replace(used=memory.used + memory.sent)
        else:
            memory = memory._replace(unsent=memory.unsent + memory.sent)
        memory = memory._replace(sent=memory.unsent, unsent=torch.zeros_like(memory.sent))
        return self._answered(letter, memory, wire.pack(memory.sent))

    def _answered(self, letter: Letter, memory: Memory, numbers: Tensor) -> Memory:
        """Return ``memory`` with an answer of ``numbers``, if what the server has used is what this client knows of.

        If the server knows another start of a client that has never heard of a used answer, that start's file is lost.
        """
        number, answered = letter.exchange.number, memory.answered.number
        anew, confirmed = letter.start not in (0, memory.start), memory.confirmed
        agreed = letter.since == confirmed or self._is_used(letter)
        if anew:
            agreed = confirmed == NEVER
        reason = f"client {self.me} is out of order: exchange {number}, and {answered} is answered; "
        used = letter.since.number
        reason += f"the server used its answer to {used}, which this file may not know; {_OLDER}"
        must(agreed and number > answered, reason)
        if anew:
            lost = "begins anew, as its file is lost: what no answer had carried is not counted"
            warnings.warn(f"client {self.me} {lost}", stacklevel=5)
        else:
            confirmed = letter.since
        answer = Letter(Kind.STATISTICS, self.me, letter.exchange, memory.applied, numbers, letter.federation)
        reply = answer._replace(start=memory.start).encode(self.plan.fingerprint)
        return memory._replace(reply=reply, answered=letter.exchange, confirmed=confirmed, calling=False)

    def _start(self, letter: Letter) -> Memory:
        """Return the memory with ŵ₀: Phase I has served its purpose, and from now on residuals are summed."""
        size, weights = len(letter.numbers), getattr(self.plan.network, "size", 0)
        must(size == weights, f"wrong shape: {size} numbers of START, not {weights}")
        memory = self.memory._replace(weights=letter.numbers, unsent=torch.zeros_like(self.memory.unsent))
        return memory._replace(answered=letter.exchange, applied=letter.exchange, calling=False)

    def _learn(self, letter: Letter) -> Memory:
        """Return the memory with the counts and sums of ``NEWS``."""
        must(self.plan.fitting is None, "kind NEWS: this plan has PLAN")
        return self._informed(letter, wire.unpack(letter.numbers, len(self.plan.arms)))

    def _follow(self, letter: Letter) -> Memory:
        """Return the memory with the share of a ``PLAN``, and with this client's own pulls that the server has used."""
        must(self.plan.fitting is not None, "kind PLAN: this plan has NEWS")
        memory, arms = self.memory, len(self.plan.arms)
        share, calls = letter.numbers[:-1], letter.numbers[-1:]
        whole = (letter.numbers == letter.numbers.floor()).all() & (letter.numbers >= 0).all()
        fits = 0 < len(share) <= self.plan.due and bool(whole & (share < arms).all() & (calls >= 1).all())
        must(fits, f"no plan: give arms below {arms}, and a number of pulls")
        informed = self._informed(letter, memory.used + memory.sent)
        return informed._replace(share=share.long(), calls=int(calls), begun=memory.pulls)

    def _informed(self, letter: Letter, news: Tensor) -> Memory:
        """Return the memory with the ``news`` (2, K) of an exchange, if this client's last answer was used in it."""
        memory, number = self.memory, letter.exchange.number
        reason = f"out of order: news of exchange {number} on {letter.since.number}, "
        reason += f"and this client answered {memory.answered.number} on {memory.applied.number}"
        must(number == memory.answered.number and letter.since == memory.applied, reason)
        reason = f"out of order: the server used another answer to exchange {number}; {_OLDER}"
        must(letter.start == memory.start and letter.used == wire.checksum(memory.reply), reason)
        nothing, exchange = torch.zeros_like(news), letter.exchange
        memory = memory._replace(base=memory.base + news, sent=nothing, used=nothing)
        return memory._replace(applied=exchange, answered=exchange, confirmed=exchange)

    # the file

    def save(self, path: str | Path) -> None:
        """Write all that this client knows to one file, whole or not at all."""
        files.keep(path, "the client", self.plan.fingerprint, (self.me, self.memory))

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Client":
        """Return the client of ``plan`` that ``save`` wrote.

        Raises:
            ValueError: If the file is damaged, an earlier fedgo's, a server's, or of another plan; it names the file.
        """
        kinds = [Exchange, Memory, bytes]
        me, memory = files.kept(path, "the client", plan.fingerprint, kinds, plan.file_size)
        client = cls(plan, me)
        client._remember(memory)
        return client

    def _remember(self, memory: Memory) -> None:
        """Take over ``memory``, and the model that follows from it."""
        if len(memory.weights) > 0:
            model = self._model or ClientModel.around(self.plan, memory.weights)
            self._model = model.knowing(memory.base, memory.own)
        self.memory = memory
