"""Sites that differ: the covariance of all cells written out, gradients by torch, plans by conditioning all cells."""

import math

import numpy as np
import torch
from scipy.optimize import minimize


def covariance(points, parameters):
    """Of all cells, site by site, whose ``points`` (N, K, d) are alike for all sites."""
    *logs, category, level = parameters
    sites, arms = points.shape[:2]
    square = sum(
        (points[0, :, None, q] - points[0, None, :, q]) ** 2 / torch.exp(2 * log)
        for q, log in enumerate(logs)
    )
    rho = 1 - torch.exp(-1 / torch.exp(category) ** 2)
    rows = []
    for i in range(sites):
        row = [torch.exp(-square / 2) * (1 if i == j else 1 - rho) for j in range(sites)]
        row[i] = row[i] + torch.exp(level) * torch.ones(arms, arms, dtype=torch.float64)
        rows.append(torch.cat(row, 1))
    return torch.cat(rows, 0)


def units(n, total):
    """c₀ and s: mean and standard deviation of the mean rewards of the options tried, over all sites."""
    tried = n.sum(0) > 0
    means = total.sum(0)[tried] / n.sum(0)[tried]
    return float(means.mean()), float(means.std())


def observations(arms, n, total, sigma):
    """All points (N, K, d) in the cube, and of the cells pulled their numbers, values and noise."""
    low, high = arms.min(0).values, arms.max(0).values
    points = ((arms - low) / (high - low)).expand(len(n), -1, -1)
    centre, scale = units(n, total)
    at = torch.tensor([k for k, pulls in enumerate(n.flatten()) if pulls > 0])
    pulls = n.flatten()[at]
    return points, at, (total.flatten()[at] / pulls - centre) / scale, sigma**2 / scale**2 / pulls


def loss(parameters, points, at, values, noise):
    """−ln of the posterior density of ``parameters`` up to a constant."""
    matrix = covariance(points, parameters)[at][:, at] + torch.diag(noise)
    inverse = torch.linalg.inv(matrix)
    residual = values - (inverse.sum(0) @ values) / inverse.sum()
    value = residual @ inverse @ residual / 2 + torch.linalg.slogdet(matrix).logabsdet / 2
    *logs, category, level = parameters
    for log in logs:
        value = value + log + (log - math.sqrt(2) - math.log(len(logs)) / 2) ** 2 / 6
    return value + (category - 1) ** 2 / 2 + (level + 3) ** 2 / 8


def mode(points, at, values, noise):
    """Of the density, from the start and within the bounds of the text."""
    features = points.shape[-1]

    def both(x):
        parameters = torch.tensor(x, requires_grad=True)
        value = loss(parameters, points, at, values, noise)
        value.backward()
        return value.item(), parameters.grad.numpy()

    begin = max(math.sqrt(2) + math.log(features) / 2 - 3, math.log(0.025))
    bounds = [(math.log(0.025), 12)] * features + [(-2, 6), (-12, 5)]
    return torch.tensor(minimize(both, [begin] * features + [1, -3], jac=True, bounds=bounds).x)


def posterior(arms, n, total, sigma, parameters=None):
    """Mean and covariance of all cells as NumPy arrays; ``parameters`` are at their mode unless given."""
    points, at, values, noise = observations(arms, n, total, sigma)
    parameters = mode(points, at, values, noise) if parameters is None else parameters
    prior = covariance(points, parameters).numpy()
    gain = prior[:, at] @ np.linalg.inv(prior[np.ix_(at, at)] + np.diag(noise))
    inverse = np.linalg.inv(prior[np.ix_(at, at)] + np.diag(noise))
    constant = inverse.sum(0) @ values.numpy() / inverse.sum()
    centre, scale = units(n, total)
    mean = centre + scale * (constant + gain @ (values.numpy() - constant))
    return mean, scale**2 * (prior - gain @ prior[at])


def epoch(mean, cov, n, sigma, pulls, turn, ties, begun=(), retired=(), kappa=3, untried=5):
    """The cells of ``pulls`` pulls in cyclic order from site ``turn``, after the cells ``begun``."""
    sites, arms = n.shape
    planned = []
    for k in range(len(begun) + pulls):
        if k < len(begun):
            cell = begun[k]
        else:
            site = (turn + k - len(begun)) % sites
            index = {}
            for x in set(range(arms)) - set(retired):
                cell = site * arms + x
                width = kappa if n[:, x].sum() > 0 else untried
                index[cell] = mean[cell] + width * math.sqrt(max(cov[cell, cell], 0))
            top = max(index.values())
            near = [cell for cell in index if index[cell] >= top - 1e-9 * max(1, abs(top))]
            cell = max(near, key=lambda cell: ties[cell % arms])
            planned.append(cell)
        cov = cov - np.outer(cov[cell], cov[cell]) / (cov[cell, cell] + sigma**2)
    return planned


def play(plan_of, first, reward_of, sites, arms, steps):
    """The arms of ``steps`` pulls after those of ``first``, by N sites in turn: epochs grow by 1.6.

    ``plan_of`` says of counts and sums (N, K), the pulls of an epoch and the site that is first which cells it has;
    ``reward_of(i, x, t)`` is the reward of arm x at site i in step t. Client 0 makes the first step after ``first``.
    """
    n, total = torch.zeros(2, sites, arms, dtype=torch.float64)
    for t, arm in enumerate(first):
        n[t % sites, arm] += 1
        total[t % sites, arm] += reward_of(t % sites, arm, t)
    played = []
    while len(played) < steps:
        pulls = max(4, math.ceil(n.sum().item() * (1.6 - 1)))
        for cell in plan_of(n, total, min(pulls, steps - len(played)), len(played) % sites):
            site, arm = divmod(int(cell), arms)
            n[site, arm] += 1
            total[site, arm] += reward_of(site, arm, len(first) + len(played))
            played.append(arm)
    return played
