"""A run whose every party keeps itself in a file before it says anything, killed now and then, and gone on with.

Called with a folder, the kind of setting and a seed; prints how often it was killed.
"""

import os
import random
import signal
import sys
from pathlib import Path

import torch
from federated import setting

from fedgo.beyond import Client, Server, converse
from fedgo.beyond.federation.local import deliver

STEPS = 30


def loaded(role, path, *args):
    """Return what the file at ``path`` says, or a new party, which keeps itself there after each of its steps."""
    party = role.load(path, args[0]) if path.exists() else role(*args)

    def kept(step):
        def taken(*given, **named):
            result = step(*given, **named)
            party.save(path)
            return result

        return taken

    for name in ("tell", "answer") if role is Client else ("begin", "accept", "merge"):
        setattr(party, name, kept(getattr(party, name)))
    return party


def resume(server, clients):
    """Go on where server and clients, loaded from their files, were stopped."""
    deliver(server, clients)
    waits = server.plan.network is not None and not server.started  # until Phase I is over everywhere
    if server.desk.open or (all if waits else any)(client.memory.calling for client in clients):
        converse(server, clients)


def go_on(folder, kind):
    """From what the files say to the end of the run."""
    problem, plan = setting(kind)
    clients = [loaded(Client, folder / f"client{i}.npz", plan, i) for i in range(plan.clients)]
    server = loaded(Server, folder / "server.npz", plan)
    noise = problem.tape(STEPS)
    resume(server, clients)
    for t in range(sum(client.memory.pulls for client in clients), STEPS):
        client = clients[(t if t < plan.length else t - plan.length) % plan.clients]
        arm = client.ask()
        with open(folder / "arms.txt", "a") as file:  # a diary; what was written twice must be the same
            file.write(f"{t} {arm}\n")
        fires = client.tell(arm, float(problem.observe(torch.tensor([[arm]]), noise[:, t : t + 1])))
        if fires if t >= plan.length else t == plan.length - 1:
            converse(server, clients)
    (folder / "scalars.txt").write_text(repr(server.scalars))


def interrupted_at(moment, how="killed"):
    """Kill this process, or let it find the disk full, at the ``moment``-th of the moments of its saves, from 0 on."""
    left = iter(range(moment, -1, -1))
    write, sync, replace = torch.save, os.fsync, Path.replace

    def tick():
        if next(left, 1) == 0:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(28, "No space left on device")

    def written(*arguments):
        tick()  # the new file is empty
        write(*arguments)
        tick()

    def synced(descriptor):
        tick()  # the new file is written, and not in its place; or it is in its place
        sync(descriptor)

    def replaced(*paths):
        tick()
        target = replace(*paths)
        tick()
        return target

    torch.save, os.fsync, Path.replace = written, synced, replaced


def main():
    folder, kind, draw = Path(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    kills = 0
    while not (folder / "scalars.txt").exists():
        point = draw.randrange(1, 200)
        child = os.fork()
        if child == 0:
            interrupted_at(point)
            go_on(folder, kind)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), status
        kills += status == signal.SIGKILL
    print(kills)


if __name__ == "__main__":
    main()
