"""The encodings: sizes of what is really packed, the same decisions, and every charge counted again."""

from functools import cache, partial

import pytest
import torch
from instances import assert_billed, sample

import fedgo
from fedgo.messages import names_arms, scalars

ENCODINGS = ("dense", "triangle", "rows", "counts", "cheapest")
BRIEF = fedgo.Langevin(rounds=7, step=0.05)


# Messages


def packed(arms, dimension, pulls, vectors=1):
    """What every encoding of the same pulls really sends, as flat arrays."""
    arm = torch.randint(arms, (pulls,), generator=torch.Generator().manual_seed(pulls))
    gradients, residual = sample(arms, dimension)[arm], sample(pulls)
    matrix, vector = gradients.T @ gradients, gradients.T @ residual
    counts = torch.bincount(arm, minlength=arms).double()
    sums = torch.zeros(arms).double().index_add(0, arm, residual)
    upper = matrix[torch.triu(torch.ones_like(matrix)).bool()]
    if vectors == 0:
        short = counts if pulls > arms else arm
        return {"dense": matrix, "triangle": upper, "rows": gradients, "counts": short}
    short = torch.stack([counts, sums]) if pulls > arms else torch.stack([arm.double(), residual])
    return {
        "dense": torch.cat([matrix.flatten(), vector]),
        "triangle": torch.cat([upper, vector]),
        "rows": torch.cat([gradients, residual.unsqueeze(-1)], -1),
        "counts": short,
    }


@pytest.mark.parametrize("vectors", [0, 1])
@pytest.mark.parametrize("pulls", [0, 1, 4, 5, 6, 30])
@pytest.mark.parametrize("dimension", [1, 2, 7])
def test_an_encoding_costs_the_size_of_what_it_packs(dimension, pulls, vectors):
    sizes = {name: part.numel() for name, part in packed(5, dimension, pulls, vectors).items()}
    for name, size in sizes.items():
        assert scalars(name, dimension, pulls, 5, vectors).item() == size, name
    header = 1
    least = min(size for name, size in sizes.items() if name != "dense")
    assert scalars("cheapest", dimension, pulls, 5, vectors).item() == header + least


# The same decisions


STARTED = {"Fed-GO-UCB": fedgo.fed_go_ucb, "One-GO-UCB": fedgo.one_go_ucb, "N-GO-UCB": fedgo.n_go_ucb}
BASELINES = {
    "DisLinUCB": fedgo.dis_lin_ucb,
    "Fed-GLB-UCB": fedgo.fed_glb_ucb,
    "ApproxDisKernelUCB": fedgo.approx_dis_kernel_ucb,
    "Kernel UCB, at once": fedgo.exact_kernel_ucb,
    "UCB1, shared": fedgo.shared_ucb1,
}
EVERY = (*STARTED, *BASELINES)


@cache
def played(name, encoding, d_x=2):
    """Three runs of three clients, which synchronise now and then."""
    network = fedgo.Network(d_x, 25)
    problem = fedgo.realizable(network, 3, arms=6, seed=d_x, sigma=0.3)
    settings = fedgo.Settings(0.1, 0.1, 4.0 if "Kernel" in name else 1.5, encoding)
    if name in BASELINES:
        return BASELINES[name](problem, 3, 29, settings)
    begin = fedgo.private_start if name == "N-GO-UCB" else partial(fedgo.shared_start, encoding=encoding)
    return STARTED[name](begin(problem, network, 3, 8, BRIEF), settings)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS[1:])
@pytest.mark.parametrize("name", EVERY)
def test_an_encoding_changes_what_is_charged_and_nothing_else(name, encoding):
    dense, other = played(name, "dense"), played(name, encoding)
    if name in ("Fed-GO-UCB", "DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB"):
        assert 0.05 < dense.sync.double().mean() < 0.6
    for part in ("arm", "reward", "regret", "sync"):
        assert torch.equal(getattr(other, part), getattr(dense, part)), part
    same = name in ("N-GO-UCB", "UCB1, shared")
    same |= name == "Kernel UCB, at once" and encoding != "counts"  # with d_x = 2 a datum is 3 scalars
    for part in ("up", "down"):
        charged, before = getattr(other, part), getattr(dense, part)
        assert torch.equal(charged > 0, before > 0) and torch.equal(charged, before) == same, part
        assert encoding != "triangle" or (charged <= before).all()


# Every charge counted again, one step after the other


def model(kind):
    """A class F, a problem of it and arms of which there are many or few."""
    network = {"network": fedgo.Network(2, 2), "one unit": fedgo.SingleUnit(2), "line": fedgo.SingleUnit(1)}[
        kind
    ]
    return network, fedgo.realizable(network, 3, arms=4, seed=3, sigma=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", ["network", "line"])
def test_the_bill_of_fed_go_ucb_counted_again(kind, encoding, gamma):
    (network, problem), clients, rounds = model(kind), 4, 12
    start = fedgo.shared_start(problem, network, clients, rounds, BRIEF, encoding=encoding)
    trace = fedgo.fed_go_ucb(start, fedgo.Settings(0.3, 0.5, gamma, encoding))
    first = trace.phase_one
    assert trace.sync.any() and first == 7

    def bill(row, t, fresh):
        up = sum(scalars(encoding, network.size, pulls, 4) for pulls in fresh)
        return up, clients * scalars(encoding, network.size, sum(fresh), 4)

    assert_billed(trace, bill)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("clients", "length"), [(4, 7), (2, 13), (9, 5)])
def test_the_bill_of_phase_one_counted_again(encoding, clients, length):
    network, problem = model("network")
    start = fedgo.shared_start(problem, network, clients, 3, BRIEF, length, encoding)
    up = down = 0
    if encoding in ("counts", "cheapest"):
        for i in range(clients):
            own = len(range(i, length, clients))
            up += 2 * min(own, 4)
    else:
        for _ in range(BRIEF.rounds * clients):
            up, down = up + network.size, down + network.size
    down += clients * network.size
    ledger = start.exploration.ledger
    assert ledger.up.tolist() == [[0] * (length - 1) + [up]] * 3
    assert ledger.down.tolist() == [[0] * (length - 1) + [down]] * 3
    dense = fedgo.shared_start(problem, network, clients, 3, BRIEF, length)
    assert torch.equal(start.w0, dense.w0) and torch.equal(start.loss, dense.loss)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", ["network", "one unit", "line"])
def test_one_go_ucb_sends_every_pull_alone(kind, encoding):
    (network, problem), clients = model(kind), 4
    start = fedgo.shared_start(problem, network, clients, 3, BRIEF, encoding=encoding)
    trace = fedgo.one_go_ucb(start, fedgo.Settings(0.3, 0.5, encoding=encoding))
    each = scalars(encoding, network.size, 1, 4)
    assert (trace.up[:, trace.phase_one :] == each).all()
    assert (trace.down[:, trace.phase_one :] == clients * each).all()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("d_x", [1, 2, 4])
def test_the_bill_of_fed_glb_ucb_counted_again(d_x, encoding):
    problem, clients, arms = fedgo.realizable(fedgo.SingleUnit(d_x), 2, arms=5, seed=3, sigma=0.3), 3, 5
    dense, trace = (
        fedgo.fed_glb_ucb(problem, clients, 60, fedgo.Settings(0.3, 0.5, 2.0, e), "logistic")
        for e in ("dense", encoding)
    )
    assert torch.equal(trace.arm, dense.arm) and 0.02 < trace.sync.double().mean() < 0.9

    def bill(row, t, fresh):
        rounds, left = divmod(int(dense.up[row, t]) - clients * d_x**2, clients * d_x)
        assert rounds >= 1 and left == 0
        # the fit over the star needs ΔA alone; with counts the sums go up as well, and no round follows
        if names_arms(encoding):
            up = sum(scalars("counts", d_x, pulls, arms) for pulls in fresh)
        else:
            up = sum(scalars(encoding, d_x, pulls, arms, 0) + rounds * d_x for pulls in fresh)
        each = scalars(encoding, d_x, sum(fresh), arms, 0) + d_x
        each += d_x if encoding == "dense" else 0  # b, which follows from A and θ
        each += 0 if names_arms(encoding) else rounds * d_x
        return up, clients * each

    assert_billed(trace, bill)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("d_x", [1, 3])
def test_the_bill_of_the_nystroem_kernel_counted_again(d_x, encoding):
    problem, clients, arms = fedgo.realizable(fedgo.SingleUnit(d_x), 2, arms=6, seed=3, sigma=0.3), 3, 6
    dense, trace = (
        fedgo.approx_dis_kernel_ucb(problem, clients, 60, fedgo.Settings(0.3, 0.5, 6.0, e), 0.4, 0.3)
        for e in ("dense", encoding)
    )
    assert torch.equal(trace.arm, dense.arm) and 0.02 < trace.sync.double().mean() < 0.9
    datum = 1 if names_arms(encoding) else d_x

    def bill(row, t, fresh):
        # the dense bill names the m members of the dictionary, N(m d_x + m² + m), and the data drawn for it
        (members,) = (m for m in range(arms + 1) if clients * (m * d_x + m * m + m) == dense.down[row, t])
        drawn, left = divmod(int(dense.up[row, t]) - clients * (members**2 + members), d_x)
        assert left == 0 and members <= drawn <= clients * members
        # in new features all data go again, but counts that are known need not
        every = [len(range(i, t + 1, clients)) for i in range(clients)]
        form, pulls = ("counts", fresh) if names_arms(encoding) else (encoding, every)
        up = datum * drawn + sum(scalars(form, members, k, arms) for k in pulls)
        return up, clients * (datum * members + scalars(form, members, sum(pulls), arms))

    assert_billed(trace, bill)
