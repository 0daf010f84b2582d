# SPDX-License-Identifier: Apache-2.0
"""A parameter server: workers read the weights by READs, and send their gradients as messages.

The server adds each gradient to its weights as it comes, and waits for no worker: the steps of the
workers are not in step. It shares the weights, so reading them costs it nothing. Credits bound how
old the weights of a gradient may be.
"""

import asyncio
import pickle
import sys

import numpy as np

import verbena

PORT = 7174
WORKERS, STEPS, FEATURES = 2, 300, 20
AHEAD = 2  # gradients that a worker may send before the server takes them
TRUTH = np.arange(FEATURES, dtype=float)


async def serve() -> None:
    weights = np.zeros(FEATURES)

    async def worker(conn: verbena.peers.PeerConnection) -> None:
        async with conn:
            shown = conn.array(FEATURES)  # this worker's view of the weights
            await conn.send(pickle.dumps(conn.share(shown)))
            async for gradient in conn:
                weights[:] -= 0.05 * np.frombuffer(gradient)
                shown[:] = weights

    async with verbena.listen(PORT, slots=AHEAD) as listener, asyncio.TaskGroup() as tasks:
        for _ in range(WORKERS):
            tasks.create_task(worker(await listener.accept()))
    print("the weights are right:", np.allclose(weights, TRUTH, atol=1e-3))


async def work(host: str, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(size=(500, FEATURES))
    async with verbena.connect(f"{host}:{PORT}", slots=AHEAD) as conn:
        remote = pickle.loads(await conn.recv())
        weights = np.empty(FEATURES)
        for _ in range(STEPS):
            await remote.get(weights)
            await conn.send(samples.T @ (samples @ weights - samples @ TRUTH) / len(samples))
    print("worker", seed, "made", STEPS, "steps")


async def work_all(host: str) -> None:
    await asyncio.gather(*(work(host, seed) for seed in range(WORKERS)))


asyncio.run(work_all(sys.argv[1]) if len(sys.argv) > 1 else serve())
