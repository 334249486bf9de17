"""One client of a federation, without a transport. It proposes an arm, is given its reward, and answers the server.

The methods are called in this order (the lines are those of the paper's Algorithm 1)::

    arm = client.ask()                       # line 3, or a pull of Phase I
    if client.tell(arm, reward): ...         # lines 4–6: the event fires, ask the server for a synchronisation
    reply = client.answer(letter)            # lines 7–10

A client holds its own rewards, and never a true mean. It plays the paper's algorithm by the class
`fedgo.phase_two.EventTriggered` of the simulator. In Phase I, and if the server plans, it plays its share of a public
plan. If the server plans and the share is used up, the client goes on from the beginning of the share.

Save the client before its answer is sent. A client that was restored from a file older than its last answer that the
server used refuses the server's letters, because its pulls would be counted twice. If the file is lost, ``Client(plan,
me)`` can begin anew at any moment. The server then sends it ŵ₀ and the data of all clients or, if it plans, a share of
the plan. The pulls that only the file had, which no answer had carried, are then lost. A warning says
so if the server has used an answer of the lost client.
"""

import secrets
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.beyond._files import refused_by_name
from fedgo.beyond.federation import files, wire
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.states import ClientState, Step
from fedgo.beyond.federation.wire import NEVER, Exchange, Kind, Letter, Refused, must
from fedgo.confidence import Posterior, Tally, compress
from fedgo.phase_two import EventState, EventTriggered
from fedgo.simulation import largest


class Memory(NamedTuple):
    """The state of a client, which its file holds.

    Counts and sums are (2, K) for K arms, float64. The sums are those of rewards y; with the paper's network, after
    Phase I, they are those of residuals y − f_x(ŵ₀), where ŵ₀ is the parameter that the server fits after Phase I and
    sends by ``START``. ``NEWS`` carries the data of all clients, and ``PLAN`` a new share of a plan.

    Each of the client's own pulls is contained in ``unsent``, in ``reply`` or in ``used``, until ``NEWS`` or a ``PLAN``
    brings it into ``base``. With the network, the pulls of Phase I do not enter ``base``. They are removed by
    ``START``, or by the client's answer if others have ended Phase I without it.

    Args:
        share: The arms of this client in Phase I or by the last ``PLAN``, (n,) int64.
        calls: The number of pulls with this share after which the client asks for an exchange.
        applied: The exchange of the last ``START``, ``NEWS`` or ``PLAN`` that the client applied; before there is one,
            the plan's `Plan.known_exchange`.
        start: The number that the client drew at random when it began without a file.
        base: The counts and sums of all clients that this client has received. If the server plans, those of its own
            pulls that the server used.
        unsent: The counts and sums of its own pulls that no answer has carried.
        used: The counts and sums of its own pulls that the server has used, although the ``NEWS`` or ``PLAN`` that
            follows on them was lost.
        retired: Whether each arm is not to be pulled any more, (K,) bool.
        weights: ŵ₀, (d_w,); empty before it is known, and without a network.
        reply: The last answer, until ``START``, ``NEWS`` or a ``PLAN`` follows on it, or None.
        confirmed: The last exchange of which the client knows that its answer was used, or ``NEVER``.
        federation: The number that the server drew when it began, or 0 before it is known.
        pulls: The number of rewards that the client has stored, Phase I included.
        begun: The number of these before the client received its share.
        calling: Whether the client asks for an exchange: from the event of line 6 of Algorithm 1, or the ``calls``-th
            pull with its share, until it handles a letter.
    """

    share: Tensor
    calls: int
    applied: Exchange
    start: int
    base: Tensor
    unsent: Tensor
    used: Tensor
    retired: Tensor
    weights: Tensor = torch.zeros(0).double()
    reply: Letter | None = None
    confirmed: Exchange = NEVER
    federation: int = 0
    pulls: int = 0
    begun: int = 0
    calling: bool = False

    @property
    def sent(self) -> Tensor:
        """The counts and sums of the client's own pulls that its ``reply`` carries."""
        if self.reply is None:
            return torch.zeros_like(self.unsent)
        return wire.unpack(self.reply.numbers, self.unsent.shape[1])

    @property
    def own(self) -> Tensor:
        """The counts and sums of the client's own pulls that are not in ``base``."""
        return self.unsent + self.sent + self.used

    @property
    def answered(self) -> Exchange:
        """The last exchange that this client answered, or whose result it applied after that answer."""
        return self.applied if self.reply is None else self.reply.exchange


_FULL = "no answer may carry more: let this client answer, or begin a plan with more rounds"
_OLDER = "it is late, or this side or the server is from an older file: load the last one, or begin anew without a file"


class Client:
    """The client number ``me`` of a federation: it proposes arms, learns rewards and answers the server's letters.

    Its ``memory`` is all that it knows (`Memory`).

    Args:
        plan: The public plan of the federation.
        me: The number of this client, 0 to N − 1 for the N clients of the plan.

    Raises:
        TypeError: ``plan`` is not a `Plan`, or ``me`` is not a whole number.
        ValueError: ``me`` is not from 0 to N − 1.
    """

    # A learner for one run and this client alone, and its state. There is no learner in Phase I or if the server plans.
    _model: tuple[EventTriggered, EventState[Posterior]] | None = None

    @on_cpu
    def __init__(self, plan: Plan, me: int = 0) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        remedy = f"number the clients 0 to {plan.clients - 1}"
        self.plan, self.me = plan, count("me", me, remedy, least=0, most=plan.clients - 1)
        (share, calls), nothing = plan.first_share(self.me), torch.zeros(2, len(plan.arms)).double()
        drawn, retired = 1 + secrets.randbits(63), torch.zeros(len(plan.arms), dtype=torch.bool)
        self.memory = Memory(share, calls, plan.known_exchange, drawn, nothing, nothing, nothing, retired)

    # asking and telling

    @property
    def state(self) -> ClientState:
        """The state of this client, by which it looks up in the table `CLIENT` what to do with a letter."""
        if self.plan.network is not None and len(self.memory.weights) == 0:
            return ClientState.EXPLORING
        return ClientState.PULLING if self.memory.reply is None else ClientState.ANSWERED

    @on_cpu
    def ask(self) -> int:
        """Return the number of the arm to pull next, which is not a retired one.

        With a network, after Phase I, it is the arm with the largest optimistic index (line 3 of Algorithm 1).
        Otherwise it is the next arm of the client's share that is not retired, or the first of all arms that is not. It
        stays the same until `tell`, `answer` or `retire` changes what the client knows.

        Raises:
            RuntimeError: The plan has a network, this client has made its pulls of Phase I, and ŵ₀ has not come.
            ValueError: An index is NaN.
        """
        return self.upcoming(1)[0]

    @on_cpu
    def upcoming(self, size: int) -> list[int]:
        """Return the arms of the next pulls, at most ``size``, as far as they depend on no reward that is not told.

        With a network, after Phase I, that is one arm, otherwise at most the client's share. The first one and the
        errors are those of `ask`.
        """
        memory = self.memory
        if self._model is not None:
            learner, state = self._model
            index = learner.index(state)[0, 0].masked_fill(memory.retired, -torch.inf)
            return [int(largest(index, self.plan.order_of_ties[self.me]))]
        if self.plan.network is not None and memory.pulls >= len(memory.share):
            raise RuntimeError("the pulls of Phase I are made: let this client answer until it receives ŵ₀")
        place = (memory.pulls - memory.begun) % len(memory.share)
        left = len(memory.share) - place if self.plan.network is not None else len(memory.share)
        arms = memory.share.roll(-place)[:left]
        if memory.retired[arms].all():
            arms = torch.arange(len(self.plan.arms))
        return [int(arm) for arm in arms[~memory.retired[arms]][:size]]

    @on_cpu
    def tell(self, arm: int, reward: float) -> bool:
        """Store the ``reward`` of a pull of ``arm``, and return whether to ask the server for an exchange.

        With the paper's network, the result is True after a pull that fulfils line 6 of Algorithm 1, or that is this
        client's last one of Phase I. With a fitting, it is True from the ``Memory.calls``-th pull with a share until
        the next share. The arm may be another than the one that `ask` returned, and may be retired, except in Phase I
        with a network.

        Args:
            arm: The number of the arm, 0 to K − 1.
            reward: Its reward, above −10¹⁰⁰ and below 10¹⁰⁰.

        Raises:
            TypeError: ``arm`` is not a whole number, or ``reward`` is not a number.
            ValueError: The reward is NaN or out of its range; the arm does not exist, or is not the one that `ask`
                returns in Phase I with a network; or as many pulls of this client wait for the server as an answer may
                carry (`Plan.due`).
            RuntimeError: The plan has a network, this client has made its pulls of Phase I, and ŵ₀ has not come.
        """
        self._require_arm(arm)
        value = wire.checked_reward(reward)
        memory = self.memory
        waiting = int((memory.unsent + memory.sent)[0].sum())
        require(waiting < self.plan.due, "the number of pulls that the server has not used", waiting, _FULL)
        pull, residual = torch.tensor([[int(arm)]]), torch.tensor([[value]], dtype=torch.float64)
        turn = torch.ones_like(residual)
        if self._model is None:
            asked = arm if self.plan.network is None else self.ask()
            require(arm == asked, "arm", arm, f"in Phase I, tell of the arm that was asked for, {asked}")
            fires = memory.pulls + 1 - memory.begun >= memory.calls
        else:
            learner, state = self._model
            fires = bool(learner.fires(state, pull))
            self._model = learner, learner.learn(state, pull, residual, turn)
            residual = residual - learner.offsets[..., int(arm)]
        unsent = memory.unsent.index_add(1, pull[0], torch.cat([turn, residual]))
        self.memory = memory._replace(unsent=unsent, pulls=memory.pulls + 1, calling=memory.calling or fires)
        return fires

    @on_cpu
    def retire(self, arm: int, retired: bool = True) -> None:
        """Exclude ``arm`` from what `ask` returns, or include it again if ``retired`` is False.

        Args:
            arm: The number of the arm, 0 to K − 1 for K arms.
            retired: Whether the arm is not to be pulled any more.

        Raises:
            TypeError: ``arm`` is not a whole number.
            ValueError: The arm does not exist, or no arm would remain.
        """
        self._require_arm(arm)
        mask = self.memory.retired.index_fill(0, torch.tensor(int(arm)), retired)
        require(not bool(mask.all()), "the number of arms that remain", 0, "keep at least one")
        self.memory = self.memory._replace(retired=mask)

    def _require_arm(self, arm: int) -> None:
        """Refuse an ``arm`` that is no number of an arm."""
        last = len(self.plan.arms) - 1
        count("arm", arm, f"give the number of an arm, 0 to {last}", least=0, most=last)

    # letters

    @on_cpu
    def answer(self, received: bytes) -> bytes | None:
        """Return the answer to a letter of the server, or None if the letter needs none.

        A request that comes again before anything has followed on the answer gets the same answer. ŵ₀, the data of all
        clients and a plan are applied and need no answer; if they come again, they change nothing. The table `CLIENT`
        says which method handles which letter. A ``UserWarning`` says if this client has begun anew after it lost its
        file, and the server has used an answer of the lost client.

        Args:
            received: The letter, as bytes.

        Raises:
            Refused: The letter is none that `decode` accepts; it is for another client; it does not follow in this
                state or on the last exchange, for instance because the server or this client was restored from an older
                file; or its numbers are out of range or allow no model. Then nothing has changed.
        """
        memory, plan, answered = self.memory, self.plan, self.memory.answered
        letter = wire.decode(received, plan.fingerprint, memory.federation)
        kind, exchange, asked = letter.kind, letter.exchange, letter.kind == Kind.SYNCHRONISE
        must(kind not in (Kind.STATISTICS, Kind.SUMS), f"kind {kind.name}: a client sends it, and gets none")
        must(letter.client == self.me, f"for client {letter.client}: this is client {self.me}")
        if asked and memory.reply is not None and exchange == answered:
            return plan.encoded(memory.reply)
        if not asked and self._is_over(letter):
            return None
        step, first = CLIENT.get((self.state, kind)), answered.number + asked
        if step is None or exchange.number < first:
            reason = f"out of order: {kind.name} of exchange {exchange.number}, and client {self.me} is {self.state}"
            raise Refused(f"{reason} after exchange {answered.number}; {_OLDER}")
        memory = step.handler(self, letter)._replace(federation=letter.federation, calling=False)
        if not asked:
            self._model = self._model_of(memory)
        self.memory = memory
        return None if memory.reply is None else plan.encoded(memory.reply)

    def _is_over(self, letter: Letter) -> bool:
        """Return whether the exchange of a ``letter`` has been applied, or is for an earlier start of this client."""
        memory, exchange = self.memory, letter.exchange
        earlier = letter.kind != Kind.START and letter.start not in (0, memory.start)
        over = exchange == memory.applied or exchange.number < memory.applied.number
        return over or (earlier and memory.confirmed == NEVER)

    def _is_of_last_answer(self, letter: Letter) -> bool:
        """Return whether ``letter`` says that the server has used this client's ``Memory.reply``."""
        reply = self.memory.reply
        if reply is None or letter.start != self.memory.start:
            return False
        return letter.used == wire.checksum(self.plan.encoded(reply))

    def _answer_early(self, letter: Letter) -> Memory:
        """Answer with the counts and sums of Phase I, or with none if others have ended Phase I."""
        if letter.exchange.number > 1:
            return self._answered(letter, self.memory, torch.zeros_like(self.memory.unsent))
        must(self.memory.pulls == len(self.memory.share), "too early: Phase I goes on here")
        return self._answered(letter, self.memory, self.memory.unsent)

    def _answer_since(self, letter: Letter) -> Memory:
        """Answer with the counts and sums of all pulls that the server has not used (lines 7–8)."""
        memory = self.memory
        if self._is_of_last_answer(letter):  # the news of this answer were lost
            return self._answered(letter, memory._replace(used=memory.used + memory.sent), memory.unsent)
        return self._answered(letter, memory, memory.unsent + memory.sent)

    def _answered(self, letter: Letter, memory: Memory, data: Tensor) -> Memory:
        """Return the memory in which ``data`` (2, K) is this client's answer to ``letter``, and no pull is unsent."""
        me, confirmed = f"client {self.me}", letter.since
        agreed = letter.since == memory.confirmed or self._is_of_last_answer(letter)
        if letter.start not in (0, memory.start):
            agreed, confirmed = memory.confirmed == NEVER, NEVER
        reason = f"{me} is out of order: the server used its answer to exchange {letter.since.number}"
        must(agreed, f"{reason}, which this file may not know; {_OLDER}")
        if confirmed != letter.since:
            lost = "begins anew, as its file is lost: what no answer had carried is not counted"
            warnings.warn(f"{me} {lost}", stacklevel=5)
        reply = letter._replace(kind=Kind.STATISTICS, since=memory.applied, used=0, start=memory.start)
        reply, nothing = reply._replace(numbers=wire.pack(data)), torch.zeros_like(data)
        return memory._replace(reply=reply, unsent=nothing, confirmed=confirmed)

    def _start(self, letter: Letter) -> Memory:
        """Take over ŵ₀, and sum residuals around ŵ₀ from now on."""
        size, weights = len(letter.numbers), getattr(self.plan.network, "size", 0)
        must(size == weights, f"wrong shape: {size} numbers of START, not {weights}")
        memory = self.memory._replace(weights=letter.numbers, reply=None, applied=letter.exchange)
        return memory._replace(unsent=torch.zeros_like(memory.unsent))

    def _learn(self, letter: Letter) -> Memory:
        """Return the memory with the counts and sums in ``letter`` added; they are those of all clients together."""
        return self._informed(letter, wire.unpack(letter.numbers, len(self.plan.arms)))

    def _follow(self, letter: Letter) -> Memory:
        """Begin the client's new share of the plan in ``letter``, and keep the pulls since the client's answer."""
        memory, numbers, arms = self.memory, letter.numbers, len(self.plan.arms)
        informed = self._informed(letter, memory.used + memory.sent)
        share, calls = numbers[:-1], numbers[-1:]
        whole = (numbers == numbers.floor()).all() & (numbers >= 0).all()
        fits = 0 < len(share) <= self.plan.due and bool(whole & (share < arms).all() & (calls >= 1).all())
        must(fits, f"no plan: give arms below {arms}, and a number of pulls")
        return informed._replace(share=share.long(), calls=int(calls), begun=memory.pulls)

    def _informed(self, letter: Letter, news: Tensor) -> Memory:
        """Return the memory with ``news`` (2, K) in its base, after the server used this client's last answer."""
        memory, exchange = self.memory, letter.exchange
        other = (letter.kind == Kind.PLAN) != (self.plan.fitting is not None)
        must(not other, f"kind {letter.kind.name}: this plan has the other of NEWS and PLAN")
        reason = f"out of order: news of exchange {exchange.number} on {letter.since.number}, "
        reason += f"and this client answered {memory.answered.number} on {memory.applied.number}"
        must(exchange.number == memory.answered.number and letter.since == memory.applied, reason)
        reason = f"out of order: the server used another answer to exchange {exchange.number}; {_OLDER}"
        must(self._is_of_last_answer(letter), reason)
        known = memory._replace(base=memory.base + news, used=torch.zeros_like(news), reply=None)
        return known._replace(applied=exchange, confirmed=exchange)

    # the file

    def save(self, path: str | Path) -> None:
        """Write all that this client knows to the file ``path``, whole or not at all.

        Raises:
            ValueError: ``path`` is a folder or something else that is no file.
            OSError: The file cannot be written.
        """
        files.keep(path, "the client", self.plan.fingerprint, (self.me, self.memory))

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Client":
        """Return the client of ``plan`` that `save` wrote to the file ``path``.

        Raises:
            ValueError: The file is damaged, too large, from an earlier version of fedgo, a server's, or of another
                plan, the numbers in it allow no client, or ``plan`` is not a `Plan`; the message names the file.
            OSError: The file does not exist or cannot be read.
        """
        me, memory = files.kept(path, "the client", plan, [Memory])
        with refused_by_name(path, "the client", "the file that the client saved"):
            client, share = cls(plan, me), memory.share
            fits = len(share) > 0 and bool(((share >= 0) & (share < len(plan.arms))).all())
            require(fits, "share", share, f"an arm is a number from 0 to {len(plan.arms) - 1}")
            for name, value, fresh in zip(Memory._fields, memory, client.memory, strict=True):
                fits = isinstance(value, Letter | None if name == "reply" else type(fresh))
                if fits and isinstance(value, Tensor) and isinstance(fresh, Tensor):
                    alike = value.ndim == 1 if name in ("share", "weights") else value.shape == fresh.shape
                    fits = alike and value.dtype == fresh.dtype and bool(value.isfinite().all())
                require_kind(fits, name, value, "it has another kind or shape, or is not finite")
            client.memory, client._model = memory, client._model_of(memory)
        return client

    def _model_of(self, memory: Memory) -> tuple[EventTriggered, EventState[Posterior]] | None:
        """Return the learner, linearised at ŵ₀, and its state that follows from ``memory``, or None without ŵ₀."""
        # single rewards are not stored, so each of the client's own pulls is learned with the mean reward of its arm
        plan, network, own = self.plan, self.plan.network, memory.own
        if network is None or len(memory.weights) == 0:
            return None
        try:
            if self._model is not None:
                learner, _ = self._model
            else:
                features = compress(network.gradients(memory.weights, plan.arms)).features[None, None]
                offsets = network.values(memory.weights, plan.arms)[None, None]
                learner = EventTriggered(1, features, offsets, network.size, plan.settings)
            state = learner.resume(Tally(*memory.base.unsqueeze(1)))
            means = learner.offsets[0, 0] + own[1] / own[0]
            for arm in wire.each_pull(own[0]).view(-1, 1, 1):
                state = learner.learn(state, arm, means[arm], torch.ones_like(means[arm]))
            return learner, state
        except (ValueError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            raise Refused(f"no model of these numbers: {error}") from error


CLIENT: Mapping[tuple[ClientState, Kind], Step] = {
    (ClientState.EXPLORING, Kind.SYNCHRONISE): Step(Client._answer_early, ClientState.EXPLORING),
    (ClientState.EXPLORING, Kind.START): Step(Client._start, ClientState.PULLING),
    (ClientState.PULLING, Kind.SYNCHRONISE): Step(Client._answer_since, ClientState.ANSWERED),
    (ClientState.ANSWERED, Kind.SYNCHRONISE): Step(Client._answer_since, ClientState.ANSWERED),
    (ClientState.ANSWERED, Kind.NEWS): Step(Client._learn, ClientState.PULLING),
    (ClientState.ANSWERED, Kind.PLAN): Step(Client._follow, ClientState.PULLING),
}
