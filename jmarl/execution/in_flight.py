"""Limits how far the host runs ahead of the devices.

A call of a compiled program returns immediately, and the program waits in a queue. On a CPU with
several devices, a long queue deadlocks. XLA launches and runs programs on one pool of threads, one
per core, and admits 32 programs per device. The thread that launches the 33rd program of a device
waits for a slot. The other threads wait in an all-reduce for a device that has no thread left to
run on. After a minute XLA aborts the process ("Termination timeout for all reduce"; seen with
jaxlib 0.10.2 and 0.11.2). Therefore the host waits for the oldest update when several are queued. A
queue of eight is long enough to hide the host's work between updates.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import jax

LIMIT = 8  # updates


class Bounded:
    """A train step that blocks while more than `LIMIT` updates of the calling thread are queued."""

    def __init__(self, step: Callable[..., tuple[Any, Any]]) -> None:
        self.step = step
        self._queues = threading.local()

    def __call__(self, *given: Any) -> tuple[Any, Any]:
        state, metrics = self.step(*given)
        if not hasattr(self._queues, "metrics"):
            self._queues.metrics = deque()
        queue = self._queues.metrics
        queue.append(metrics)
        if len(queue) > LIMIT:
            jax.block_until_ready(queue.popleft())
        return state, metrics
