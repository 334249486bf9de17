"""One client of Algorithm 1, without a transport: ask for an arm, tell its reward, answer the server's letters.

In the order of a step::

    arm = client.ask()                       # line 3, or a pull of Phase I
    if client.tell(arm, reward): ...         # lines 4–6: the event fires, ask the server for a synchronisation
    reply = client.answer(letter)            # lines 7–10

It holds its own rewards, and never a true mean. It plays the paper's algorithm by a
`fedgo.beyond.federation.model.ClientModel`. In Phase I, and where the server plans, it plays its share of a public
plan; once the share is used up, it goes on from the beginning of the share.
Save it before an answer leaves: a client from an older file is refused by name, as its pulls would be counted twice.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo import _files
from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo.beyond.federation.model import ClientModel
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.wire import (
    HUGE,
    Kind,
    Letter,
    Refused,
    checksum,
    decode,
    must,
    number_of,
    pack,
    unpack,
)
from fedgo.confidence import Tally


class Memory(NamedTuple):
    """All that a client's file holds. Counts and sums are (2, K), of residuals around ŵ₀, without a network of rewards.

    Each of its own pulls is in one of three parts, ``unsent``, ``sent`` and ``used``, until ``NEWS`` or a ``PLAN``
    bring it within ``base``. Exchanges are as in letters, 0 where there was none.
    """

    weights: Tensor  # ŵ₀ (d_w,), empty before it is known
    base: Tensor  # what it has been sent, the pulls of all; where the server plans, its own that were used
    unsent: Tensor  # its own that no letter has carried; in Phase I all of them
    sent: Tensor  # its own that its last answer carries
    used: Tensor  # its own that the server says it has used, while the news of them were lost
    retired: Tensor  # (K,) bool
    reply: bytes  # its last answer
    share: Tensor  # (n,) int64: its arms, in Phase I or by the last PLAN
    calls: int  # after how many pulls with this share it calls
    answered: int  # the last exchange with an answer
    applied: int  # the exchange of the last START, NEWS or PLAN; 0 until it has the ŵ₀ that it needs
    confirmed: int = 0  # the last exchange of which it knows that its answer was used
    federation: int = 0
    pulls: int = 0  # rewards that it was told, Phase I included
    begun: int = 0  # of these, those before it got its share
    calling: bool = False  # whether the event has fired, or Phase I is done here, and no letter came since

    @property
    def own(self) -> Tensor:
        """All of its own that is not in ``base``."""
        return self.unsent + self.sent + self.used


_OLDER = "it is late, or this side or the server is from an older file: load the last one"


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
        fixed = (torch.zeros(0).double(), nothing, nothing, nothing, nothing, nothing[0].bool(), b"")
        share, known = plan.first_share(self.me), plan.known_exchange
        self._remember(Memory(*fixed, *share, answered=known, applied=known))

    # asking and telling

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
        """The answer to a letter of the server, or None where it wants none; ``Refused`` changes nothing.

        A letter that comes twice gets the same answer again and changes nothing.
        """
        memory = self.memory
        letter = decode(received, self.plan.fingerprint, memory.federation)
        kind, exchange = letter.kind, number_of(letter.exchange)
        must(kind != Kind.STATISTICS, f"kind {kind.name}: a client sends it, and gets none")
        tells = kind != Kind.SYNCHRONISE
        must(letter.client == self.me, f"for client {letter.client}: this is client {self.me}")
        applied, answered = number_of(memory.applied), number_of(memory.answered)
        if tells and (letter.exchange == memory.applied or exchange < applied):
            return None
        must(exchange >= answered, f"out of order: exchange {exchange}, and {answered} is answered; {_OLDER}")
        must(exchange > applied, f"out of order: exchange {exchange}, and its news are here; {_OLDER}")
        if tells:
            memory = self._started(letter) if kind == Kind.START else self._told(letter)
            try:
                self._remember(memory)
            except (ValueError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
                raise Refused(f"no model of these numbers: {error}") from error
        elif letter.exchange != memory.answered:
            known = memory.pulls == 0 or letter.since == memory.confirmed or self._is_used(letter)
            reason = f"client {self.me} is out of order: exchange {exchange}, and {answered} is answered; "
            reason += f"the server used its answer to {number_of(letter.since)}, which this file may not know"
            must(known and letter.exchange > memory.answered, f"{reason}; {_OLDER}")
            self.memory = self._synchronised(letter)
        self.memory = self.memory._replace(federation=letter.federation)
        return None if tells else self.memory.reply

    def _is_used(self, letter: Letter) -> bool:
        """Whether a request says that the last answer was used, while the news of it were lost."""
        memory = self.memory
        last = number_of(letter.since) == number_of(memory.answered) > number_of(memory.applied)
        return last and letter.used == checksum(memory.reply)

    def _synchronised(self, letter: Letter) -> Memory:
        """The memory with the answer of lines 7–8: counts and sums since the last one that the server has used.

        Without ŵ₀ they are those of Phase I, at its end, and none later."""
        memory, exchange, numbers = self.memory, letter.exchange, torch.zeros(0).double()
        if memory.applied > 0:
            if self._is_used(letter):
                memory = memory._replace(used=memory.used + memory.sent)
            else:
                memory = memory._replace(unsent=memory.unsent + memory.sent)
            memory = memory._replace(sent=memory.unsent, unsent=torch.zeros_like(memory.sent))
            numbers = pack(memory.sent)
        elif number_of(exchange) == 1:
            must(self.pulls == len(memory.share), "too early: Phase I goes on here")
            numbers = pack(memory.unsent)
        answer = Letter(Kind.STATISTICS, self.me, exchange, memory.applied, numbers, letter.federation)
        reply = answer.encode(self.plan.fingerprint)
        return memory._replace(reply=reply, answered=exchange, confirmed=letter.since, calling=False)

    def _started(self, letter: Letter) -> Memory:
        """The memory with ŵ₀: Phase I has done its part, and from now on residuals are summed."""
        weights, size = getattr(self.plan.network, "size", 0), len(letter.numbers)
        out_of_order = f"out of order: START of exchange {number_of(letter.exchange)}, and ŵ₀ is known"
        must(self.memory.applied == 0, out_of_order)
        must(size == weights, f"wrong shape: {size} numbers of START, not {weights}")
        memory = self.memory._replace(weights=letter.numbers, unsent=torch.zeros_like(self.memory.unsent))
        return memory._replace(answered=letter.exchange, applied=letter.exchange, calling=False)

    def _told(self, letter: Letter) -> Memory:
        """The memory after the news of an exchange in which this client took part."""
        memory, plan, (exchange, since) = self.memory, self.plan, map(number_of, letter[2:4])
        of_this = exchange == number_of(memory.answered) and letter.since == memory.applied
        reason = f"out of order: news of exchange {exchange} on {since}, "
        reason += f"and this client answered {number_of(memory.answered)} on {number_of(memory.applied)}"
        must(memory.applied > 0 and of_this, reason)
        reason = f"out of order: the server used another answer to exchange {exchange}; {_OLDER}"
        must(letter.used == checksum(memory.reply), reason)
        wanted = Kind.PLAN if plan.fitting else Kind.NEWS
        must(letter.kind == wanted, f"kind {letter.kind.name}: this plan has {wanted.name}")
        if wanted == Kind.NEWS:
            news = unpack(letter.numbers, len(plan.arms))
        else:
            news, share, calls = memory.used + memory.sent, letter.numbers[:-1], letter.numbers[-1:]
            whole = (letter.numbers == letter.numbers.floor()).all() & (letter.numbers >= 0).all()
            fits = len(share) > 0 and bool(whole & (share < len(plan.arms)).all() & (calls >= 1).all())
            must(fits, f"no plan: give arms below {len(plan.arms)}, and a number of pulls")
            memory = memory._replace(share=share.long(), calls=int(calls), begun=memory.pulls)
        nothing = torch.zeros_like(news)
        memory = memory._replace(base=memory.base + news, sent=nothing, used=nothing)
        return memory._replace(applied=letter.exchange, answered=letter.exchange, confirmed=letter.exchange)

    # the file

    def save(self, path: str | Path) -> None:
        """Write all that this client knows to one file, whole or not at all."""
        _files.keep(path, "the client", self.plan.fingerprint, (self.me, self.memory))

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Client":
        """The client of ``plan`` that ``save`` wrote; a ``ValueError`` that names the file where it is another's."""
        me, memory = _files.kept(path, "the client", plan.fingerprint, [Memory, bytes])
        client = cls(plan, me)
        client._remember(memory)
        return client

    def _remember(self, memory: Memory) -> None:
        """Take over ``memory``, and the model that follows from it."""
        if len(memory.weights) > 0:
            model = self._model or ClientModel.around(self.plan, memory.weights)
            self._model = model.knowing(memory.base, memory.own)
        self.memory = memory
