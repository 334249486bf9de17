"""One client of Algorithm 1, without a transport: ask for an arm, tell its reward, answer the server's letters.

In the order of a step::

    arm = client.ask()                       # line 3, or a uniform pull of Phase I
    if client.tell(arm, reward): ...         # lines 4–6: the event fires, ask the server for a synchronisation
    reply = client.answer(letter)            # lines 7–10, and the rounds of the oracle

It holds its own rewards, and never a true mean. What it plays by is a model of `fedgo.federation.model`. Its own data
are in three parts, of which each pull is in one until a ``NEWS`` brings it back within the base: what no letter has
carried, what the last one carries, and what the server has said that it used while the news of it were lost.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedgo import _files
from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo.confidence import Tally
from fedgo.federation.model import Epochal, Estimate, Linearised, Model, after, carried
from fedgo.federation.plan import Plan, tallied
from fedgo.federation.wire import Kind, Letter, decode, must
from fedgo.simulation import largest

_DOWN = {Kind.WEIGHTS, Kind.REPORT, Kind.SYNCHRONISE, Kind.START, Kind.NEWS}


class Memory(NamedTuple):
    """All that a client's file holds: the pulls of Phase I that fit ŵ₀, ŵ₀ (empty before it is known), what a
    surrogate's fit begins from, the statistics that it downloaded, its own data in their three parts (2, K), the
    log-ratio of the event, and where the exchanges stand."""

    arm: Tensor
    reward: Tensor
    w0: Tensor
    warm: Tensor
    base: Tensor
    unsent: Tensor
    sent: Tensor
    used: Tensor
    gain: Tensor
    retired: Tensor  # (K,) bool
    reply: Tensor  # the bytes of the last answer, uint8
    pulls: int = 0
    answered: int = 0  # the last exchange with an answer
    applied: int = 0  # the exchange of the last START or NEWS
    carried: int = 0  # the exchange whose answer carries ``sent``; 0 where there is none
    calling: bool = False  # whether the event has fired, or Phase I is done here, and no letter came since


class Client:
    """Client ``me`` (0 to N − 1) of ``plan``."""

    memory: Memory
    _model: Model | None  # None in Phase I

    def __init__(self, plan: Plan, me: int = 0) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        self.plan = plan
        self.me = count(
            "me", me, f"number the clients 0 to {plan.clients - 1}", least=0, most=plan.clients - 1
        )
        arms = len(plan.arms)
        empty, none = torch.zeros(0, dtype=torch.float64), torch.zeros(2, arms, dtype=torch.float64)
        first = Memory(
            *(torch.zeros(0, dtype=torch.int64), empty, empty, empty, plan.blank(), none, none, none),
            *(torch.zeros((), dtype=torch.float64), torch.zeros(arms, dtype=torch.bool)),
            torch.zeros(0, dtype=torch.uint8),
        )
        if plan.network is None:
            first = first._replace(w0=torch.zeros(plan.dimension, dtype=torch.float64), answered=1, applied=1)
        self._remember(first)

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
        if self._model is None:
            mine = self.plan.pulls[self.me :: self.plan.clients]
            if self.pulls >= len(mine):
                raise RuntimeError(
                    "Phase I is done here and ŵ₀ has not come: let the client answer the server"
                    if self.plan.fitting is None
                    else "Phase I is done here and the news of it have not come: let the client answer the server"
                )
            return int(mine[self.pulls])
        order = self.plan.order_of_ties[self.me]
        return int(largest(self._model.index(self.memory.retired, order), order))

    @on_cpu
    def tell(self, arm: int, reward: float) -> bool:
        """Learn that ``arm`` gave ``reward``; whether to ask the server for an exchange: the event of line 6 fires.

        In Phase I it is true once this client's share of the pulls is done. Any arm may be told, not only the one
        that was asked for, except in Phase I, which is uniform.
        """
        arms = len(self.plan.arms)
        count("arm", arm, f"give the number of an arm, 0 to {arms - 1}", least=0, most=arms - 1)
        number("reward", reward, "give a finite number")
        y = torch.tensor(reward, dtype=torch.float64)
        require(bool(y.isfinite()), "reward", reward, "give a finite number")
        memory, pull, model = self.memory, torch.tensor(arm), self._model
        if model is None:
            require(
                arm == self.ask(), "arm", arm, f"Phase I is uniform: tell of the arm asked for, {self.ask()}"
            )
            fires = self.pulls + 1 == len(self.plan.pulls[self.me :: self.plan.clients])
        else:
            fires = model.fires(pull)
        new = memory._replace(pulls=self.pulls + 1, calling=memory.calling or fires)
        if model is None and self.plan.fitting is None:
            new = new._replace(
                arm=torch.cat([memory.arm, pull[None]]), reward=torch.cat([memory.reward, y[None]])
            )
        else:
            residual = y - model.around.learner.offsets[pull] if isinstance(model, Linearised) else y
            unsent = Tally(*memory.unsent).record(pull, residual, torch.ones_like(y))
            new = new._replace(unsent=torch.stack(list(unsent)))
        learnt = None if model is None else model.learned(pull, y)
        if learnt is not None:
            new = new._replace(gain=learnt.gain)
        self._remember(new, None if learnt is None or learnt.stale else learnt)
        return fires

    def retire(self, arm: int, retired: bool = True) -> None:
        """Do not ask for ``arm`` again, or (``retired`` false) again after all; one arm has to remain."""
        arms = len(self.plan.arms)
        count("arm", arm, f"give the number of an arm, 0 to {arms - 1}", least=0, most=arms - 1)
        mask = self.memory.retired.clone()
        mask[arm] = retired
        require(not bool(mask.all()), "the arms that remain", 0, "keep at least one")
        self.memory = self.memory._replace(retired=mask)

    @property
    def known(self) -> Tally:
        """Pulls of every arm and sums of their rewards: its own, and with packed letters everybody's; (K,) each.

        Those of Phase I are among them while it goes on, and with a surrogate for good."""
        memory, model = self.memory, self._model
        if model is None and self.plan.fitting is None:
            return tallied(memory.arm, memory.reward, len(self.plan.arms))
        base = memory.base.view(2, -1) if self.plan.packed else 0.0
        counts, residuals = base + memory.unsent + memory.sent + memory.used
        offsets = model.around.learner.offsets if isinstance(model, Linearised) else 0.0
        return Tally(counts, residuals + counts * offsets)

    @property
    def estimate(self) -> Estimate | None:
        """What this client's model says of every arm; None in Phase I."""
        return None if self._model is None else self._model.estimate()

    def notes(self, arm: int) -> dict[str, Tensor]:
        """Of a pull of ``arm`` a guard's ``certificate``, and whether it is the one ``proposed``; else nothing."""
        if not isinstance(self._model, Epochal):
            return {}
        return {name: said.squeeze() for name, said in self._model.notes(torch.tensor(arm)).items()}

    @on_cpu
    def extended(self, plan: Plan) -> "Client":
        """This client under ``plan``, which has more arms and is else the same; allowed once ŵ₀ is known."""
        require(
            self._model is not None,
            "the phase",
            "I",
            "its pulls are drawn from the arms that there were: add later",
        )
        self.plan.require_extended_by(plan)
        client, memory = Client(plan, self.me), self.memory
        more = (0, len(plan.arms) - len(self.plan.arms))
        parts: dict[str, Any] = {
            name: pad(getattr(memory, name), more) for name in ("unsent", "sent", "used", "retired")
        }
        client._remember(memory._replace(base=self.plan.grown(memory.base, plan), **parts))
        return client

    # letters

    @on_cpu
    def answer(self, received: bytes) -> bytes | None:
        """The answer to a letter of the server, or None where it wants none; ``Refused`` changes nothing.

        A letter that comes twice gets the same answer again and changes nothing.
        """
        letter = decode(received, self.plan.fingerprint)
        must(letter.kind in _DOWN, f"kind {letter.kind.name}: a client sends it, and gets none")
        must(letter.client == self.me, f"for client {letter.client}: this is client {self.me}")
        memory = self.memory
        if letter.kind in (Kind.START, Kind.NEWS):
            if letter.number > memory.applied:
                self._remember(self._started(letter) if letter.kind == Kind.START else self._told(letter))
            return None
        must(
            letter.number >= memory.answered,
            f"out of order: exchange {letter.number}, and {memory.answered} is answered",
        )
        if letter.number > memory.answered:
            memory = self._answered(letter)
            self._remember(memory)
        return bytes(memory.reply.numpy())

    def _answered(self, letter: Letter) -> Memory:
        """The memory after a request, with the answer in it."""
        memory, since, own = self.memory, letter.since, self.memory.applied
        kind, numbers = Kind.STATISTICS, torch.zeros(0, dtype=torch.float64)
        if letter.kind in (Kind.WEIGHTS, Kind.REPORT):
            kind, numbers = self._explored(letter)
        elif self.plan.network is None or isinstance(self._model, Linearised):
            part = "used" if memory.carried and since >= memory.carried else "unsent"
            memory = memory._replace(**{part: getattr(memory, part) + memory.sent})
            around = self._model.around if isinstance(self._model, Linearised) else None
            numbers = self.plan.pack(self.plan.vector(around, Tally(*memory.unsent)))
            blank = torch.zeros_like(memory.unsent)
            memory = memory._replace(sent=memory.unsent, unsent=blank, carried=letter.number)
        data = Letter(kind, self.me, letter.number, own, numbers).encode(self.plan.fingerprint)
        reply = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return memory._replace(reply=reply, answered=letter.number, calling=False)

    def _explored(self, letter: Letter) -> tuple[Kind, Tensor]:
        """The answer in Phase I: the gradient at w, or the pulls and sums of rewards."""
        plan, memory, network = self.plan, self.memory, self.plan.network
        must(
            network is not None and plan.packed == (letter.kind == Kind.REPORT),
            f"{letter.kind.name} has no place here",
        )
        must(self.exploring, f"out of order: {letter.kind.name}, and ŵ₀ is known")
        must(len(memory.arm) == len(plan.pulls[self.me :: plan.clients]), "too early: Phase I goes on here")
        if plan.packed:
            return Kind.EXPLORED, plan.pack(torch.cat(self.known))
        _sized(letter, plan.dimension)
        assert network is not None
        x, mask = plan.arms[memory.arm], torch.ones_like(memory.reward)
        return Kind.GRADIENT, network.squared_loss(letter.numbers, x, memory.reward, mask)[1]

    def _started(self, letter: Letter) -> Memory:
        """The memory after ŵ₀ came; what was learnt around another one cannot be kept."""
        must(
            self.exploring and self.plan.network is not None,
            f"out of order: START of exchange {letter.number}, and ŵ₀ is known",
        )
        _sized(letter, self.plan.dimension)
        number = letter.number
        return self.memory._replace(w0=letter.numbers, answered=number, applied=number, calling=False)

    def _told(self, letter: Letter) -> Memory:
        """The memory after the news of an exchange in which this client took part."""
        memory = self.memory
        must(
            letter.number == memory.carried and letter.since == memory.applied,
            f"out of order: news of exchange {letter.number} on {letter.since}, "
            f"and this client answered {memory.carried} on {memory.applied}",
        )
        base, none = memory.base + self.plan.unpack(letter.numbers), torch.zeros_like(memory.sent)
        memory = memory._replace(base=base, sent=none, used=none, carried=0, applied=letter.number)
        if isinstance(self._model, Epochal):
            memory = memory._replace(warm=carried(self._model.fit))
        if not isinstance(self._model, Linearised):
            return memory
        # the log-ratio of the data that the news do not have: pulled between the answer and the news
        blank = Tally.blank(len(self.plan.arms))
        around = self._model.around
        model = Linearised.of(self.plan, around, base, blank, torch.zeros_like(memory.gain))
        return memory._replace(gain=after(model, Tally(*memory.unsent), around.learner.offsets).gain)

    # the file

    def save(self, path: str | Path, **also: Any) -> None:
        """Write all that this client knows, and what ``also`` names, to one file, whole or not at all."""
        about = {"client": self.me, "plan": self.plan.fingerprint} | also
        arrays = {name: torch.as_tensor(part) for name, part in self.memory._asdict().items()}
        _files.write(path, "the client", about, arrays)

    @classmethod
    def load(cls, path: str | Path, plan: Plan) -> "Client":
        """The client of ``plan`` that ``save`` wrote; a ``ValueError`` that names the file where it is another's."""
        with _files.refused_by_name(path, "the client", "a saved Client of this plan"):
            about, arrays = _files.read(path, "the client", Memory._fields)
            require(
                about["plan"] == plan.fingerprint, "the plan", about["plan"], "the file is of another plan"
            )
            client = cls(plan, about["client"])
            parts = {name: arrays[name] for name in Memory._fields}
            plain = {
                name: type(client.memory._asdict()[name])(parts[name]) for name in Memory._field_defaults
            }
            client._remember(Memory(**(parts | plain)))
        return client

    def _remember(self, memory: Memory, model: Model | None = None) -> None:
        """Take over ``memory``, and the ``model`` that follows from it."""
        known, plan = getattr(self, "_model", None), self.plan
        own = Tally(*(memory.unsent + memory.sent + memory.used))
        if model is None and plan.fitting is not None and memory.applied > 1:
            model = Epochal.of(plan, self.me, memory.base, own, memory.applied, memory.warm, known)
        elif model is None and plan.fitting is None and len(memory.w0):
            around = known.around if isinstance(known, Linearised) else plan.around(memory.w0)
            model = Linearised.of(plan, around, memory.base, own, memory.gain)
        self._model, self.memory = model, memory


def _sized(letter: Letter, size: int) -> None:
    must(
        len(letter.numbers) == size,
        f"wrong shape: {len(letter.numbers)} numbers of {letter.kind.name}, not {size}",
    )
