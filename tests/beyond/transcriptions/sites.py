"""Sites that differ: the covariance of all cells written out, gradients by torch, plans by conditioning all cells."""

import math

import numpy as np
import torch
from scipy.optimize import minimize


def covariance(points, parameters, told=None):
    """Of all cells, site by site, whose ``points`` (N, K, d) are alike for all sites; ``told`` arms have a misfit."""
    sites, arms, features = points.shape
    logs, (category, level, misfit, *output) = parameters[:features], parameters[features:]
    scaled = points[0] / logs.exp()
    kernel = torch.exp(-((scaled[:, None] - scaled[None, :]) ** 2).sum(-1) / 2)
    kernel = kernel + torch.exp(misfit) * torch.diag(
        torch.ones(arms).double() if told is None else told.double()
    )
    shared = torch.exp(-1 / torch.exp(category) ** 2)  # 1 − ρ
    own = kernel * (1 - shared) + torch.exp(level) * torch.ones(arms, arms, dtype=torch.float64)
    blocks = [torch.cat([kernel * shared + own * (i == j) for j in range(sites)], 1) for i in range(sites)]
    return torch.cat(blocks, 0) * (torch.exp(output[0]) if output else 1.0)


def observations(arms, n, total, sigma):
    """All points (N, K, d) in the cube; numbers, values and noise of the cells pulled; the centre and the scale."""
    low, high = arms.min(0).values, arms.max(0).values
    tried = n.sum(0) > 0
    means = total.sum(0)[tried] / n.sum(0)[tried]
    centre, scale = float(means.mean()), float(means.std())
    at = torch.tensor([k for k, pulls in enumerate(n.flatten()) if pulls > 0])
    pulls = n.flatten()[at]
    values, noise = (total.flatten()[at] / pulls - centre) / scale, sigma**2 / scale**2 / pulls
    return ((arms - low) / (high - low)).expand(len(n), -1, -1), at, values, noise, centre, scale


def loss(parameters, points, at, values, noise):
    """−ln of the posterior density of ``parameters`` up to a constant."""
    matrix = covariance(points, parameters)[at][:, at] + torch.diag(noise)
    inverse = torch.linalg.inv(matrix)
    residual = values - (inverse.sum(0) @ values) / inverse.sum()
    features = points.shape[-1]
    logs, (category, level, misfit, *output) = parameters[:features], parameters[features:]
    prior = sum(log + (log - math.sqrt(2) - math.log(len(logs)) / 2) ** 2 / 6 for log in logs)
    prior = prior + sum(each**2 / 2 for each in output)
    prior = prior + (category - 1) ** 2 / 2 + (level + 3) ** 2 / 8 + (misfit - math.log(0.05)) ** 2 / 8
    return residual @ inverse @ residual / 2 + torch.linalg.slogdet(matrix).logabsdet / 2 + prior


def mode(*seen, output=False):
    """Of the density, from the start and within the bounds of the text, perhaps with an ``output`` scale."""
    features = seen[0].shape[-1]

    def both(x):
        parameters = torch.tensor(x, requires_grad=True)
        value = loss(parameters, *seen)
        value.backward()
        return value.item(), parameters.grad.numpy()

    begin = [max(math.sqrt(2) + math.log(features) / 2 - 3, math.log(0.025))] * features + [
        1,
        -3,
        math.log(0.05),
        *[0] * output,
    ]
    bounds = [(math.log(0.025), 12)] * features + [(-2, 6), (-12, 5), (-12, 2), *[(-3, 4)] * output]
    return torch.tensor(minimize(both, begin, jac=True, bounds=bounds).x)


def posterior(arms, n, total, sigma, parameters=None):
    """Mean and covariance of all cells as NumPy arrays; ``parameters`` are at their mode unless given."""
    points, at, values, noise, centre, scale = observations(arms, n, total, sigma)
    parameters = mode(points, at, values, noise) if parameters is None else parameters
    prior = covariance(points, parameters, n.sum(0) > 0).numpy()
    inverse = np.linalg.inv(prior[np.ix_(at, at)] + np.diag(noise))
    gain, constant = prior[:, at] @ inverse, inverse.sum(0) @ values.numpy() / inverse.sum()
    mean = centre + scale * (constant + gain @ (values.numpy() - constant))
    return mean, scale**2 * (prior - gain @ prior[at])


def epoch(mean, cov, n, sigma, pulls, turn, ties, begun=(), retired=(), kappa=3, untried=5):
    """The cells of ``pulls`` pulls in cyclic order from site ``turn``, after the cells ``begun``."""
    sites, arms = n.shape
    planned = list(begun)
    for k in range(len(begun) + pulls):
        if k >= len(begun):
            index, site = {}, (turn + k - len(begun)) % sites
            for x in set(range(arms)) - set(retired):
                cell = site * arms + x
                width = kappa if n[:, x].sum() > 0 else untried
                index[cell] = mean[cell] + width * math.sqrt(max(cov[cell, cell], 0))
            top = max(index.values())
            near = [cell for cell in index if index[cell] >= top - 1e-9 * (top - min(index.values()))]
            planned.append(max(near, key=lambda cell: ties[cell % arms]))
        cell = planned[k]
        cov = cov - np.outer(cov[cell], cov[cell]) / (cov[cell, cell] + sigma**2)
    return planned[len(begun) :]


def play(plan_of, first, reward_of, sites, arms, steps):
    """The arms of all pulls, of ``first`` and ``steps`` more, by N sites in turn: epochs grow by a quarter.

    ``plan_of`` says of counts and sums (N, K), the pulls of an epoch and the site that is first which cells it has;
    ``reward_of(i, x, t)`` is the reward of arm x at site i in step t. Client 0 makes the first step after ``first``.
    """
    n, total = torch.zeros(2, sites, arms, dtype=torch.float64)
    pending, played = [t % sites * arms + x for t, x in enumerate(first)], []
    while len(played) < len(first) + steps:
        for site, arm in (divmod(int(cell), arms) for cell in pending):
            n[site, arm] += 1
            total[site, arm] += reward_of(site, arm, len(played))
            played.append(arm)
        left, made = len(first) + steps - len(played), len(played) - len(first)
        pending = plan_of(n, total, min(max(4, math.ceil(len(played) * 0.25)), max(left, 1)), made % sites)
    return played
