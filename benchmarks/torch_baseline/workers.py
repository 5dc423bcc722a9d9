"""mpe2's simple_spread in worker processes, as the references run it."""

import itertools
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from benchmarks.torch_baseline import worker
from benchmarks.torch_baseline.spread import EPISODE_LENGTH, Step, observation_size

SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class SubprocessSpread:
    """World i starts with seed + i, as if `env.reset(seed=seed + i)` were called."""

    def __init__(self, num_envs: int, num_agents: int, seed: int, processes: int) -> None:
        self.num_envs, self.num_agents = num_envs, num_agents
        self.obs_size = observation_size(num_agents)
        sizes = (num_envs, num_agents, self.obs_size)
        memory_fd = os.memfd_create("worlds")
        os.ftruncate(memory_fd, worker.size(*sizes))
        shared = worker.arrays(mmap.mmap(memory_fd, worker.size(*sizes)), *sizes)
        self.action, self.reward, self.obs, self.final_obs = (
            torch.from_numpy(shared[name]) for name in worker.layout(*sizes)
        )
        self.steps = 0
        self.sockets: list[socket.socket] = []
        self.processes: list[subprocess.Popen] = []
        bounds = np.linspace(0, num_envs, min(processes, num_envs) + 1).astype(int).tolist()
        for first, last in itertools.pairwise(bounds):
            ours, theirs = socket.socketpair()
            numbers = (memory_fd, theirs.fileno(), first, last, seed, *sizes)
            command = [sys.executable, "-P", str(Path(worker.__file__)), *map(str, numbers)]
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(memory_fd, theirs.fileno()),
                    env=os.environ | SINGLE_THREAD,
                )
            )
            theirs.close()  # so that each side notices the end of the other
            self.sockets.append(ours)
        os.close(memory_fd)
        self._wait()  # until each has reset its worlds

    def reset(self) -> torch.Tensor:
        """Call this only once; the worlds reset themselves."""
        if self.steps:
            raise RuntimeError("These worlds are under way.")
        return self.obs

    def step(self, action: torch.Tensor) -> Step:
        self.action.copy_(action)
        self._ask()
        self._wait()
        self.steps += 1
        over = self.steps % EPISODE_LENGTH == 0
        return Step(self.obs, self.reward, over, self.final_obs if over else None)

    def close(self) -> None:
        for ours in self.sockets:
            ours.close()
        for process in self.processes:
            process.wait()

    def _ask(self) -> None:
        try:
            for ours in self.sockets:
                ours.send(b".")
        except ConnectionError:
            self._lost()

    def _wait(self) -> None:
        try:
            answered = all(ours.recv(1) for ours in self.sockets)
        except ConnectionError:
            answered = False
        if not answered:
            self._lost()

    def _lost(self) -> NoReturn:
        self.close()
        raise RuntimeError("A process with mpe2's worlds has ended.")
