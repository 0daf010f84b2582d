# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training: each rank has a part of the data, and all sum their gradients.

Every rank computes the gradient of a linear model for its own samples; after the all-reduce all
ranks have the same sum, and make the same step.
"""

import sys

import numpy as np

from verbena.collectives import sync

SAMPLES, FEATURES, STEPS = 4000, 50, 200

with sync.join() as group:
    # Rank 0 makes the data and hands each rank its samples.
    truth = np.arange(FEATURES, dtype=float)
    data = None
    if group.rank == 0:
        data = np.random.default_rng(1).normal(size=(SAMPLES, FEATURES))
        data = data.reshape(group.size, -1, FEATURES)
    mine = group.scatter(data, np.empty((SAMPLES // group.size, FEATURES)))
    expected = mine @ truth
    weights = np.zeros(FEATURES)
    for _ in range(STEPS):
        gradient = mine.T @ (mine @ weights - expected)
        weights -= 0.5 / SAMPLES * group.all_reduce(gradient)
    error = np.abs(weights - truth).max()
    sys.stdout.write(f"largest error below 1e-6: {error < 1e-6}\n")
