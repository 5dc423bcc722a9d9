"""A process that steps some of mpe2's worlds for `workers`. It never loads torch.

Observations, rewards and actions are in shared memory; one byte requests a step, one answers. When
the other side has closed its pipe, the process ends.
"""

import mmap
import os
import sys

import numpy as np


def layout(num_envs: int, num_agents: int, obs_size: int) -> dict[str, tuple]:
    """Name → type and shape of each shared array, one after the other."""
    agents = (num_envs, num_agents)
    return {
        "action": (np.int64, agents),
        "reward": (np.float32, agents),
        "obs": (np.float32, (*agents, obs_size)),
        "final_obs": (np.float32, (*agents, obs_size)),
    }


def size(num_envs: int, num_agents: int, obs_size: int) -> int:
    fields = layout(num_envs, num_agents, obs_size).values()
    return sum(np.dtype(kind).itemsize * int(np.prod(shape)) for kind, shape in fields)


def arrays(memory: mmap.mmap, num_envs: int, num_agents: int, obs_size: int) -> dict:
    found, offset = {}, 0
    for name, (kind, shape) in layout(num_envs, num_agents, obs_size).items():
        found[name] = np.ndarray(shape, kind, buffer=memory, offset=offset)
        offset += found[name].nbytes
    return found


def play(memory_fd: int, pipe: int, first: int, last: int, seed: int, sizes: list[int]) -> None:
    """Step worlds `first` to `last - 1`; world i starts with seed + i."""
    from mpe2 import simple_spread_v3

    shared = arrays(mmap.mmap(memory_fd, size(*sizes)), *sizes)
    action, reward, obs, final = (shared[name][first:last] for name in layout(*sizes))
    envs = [simple_spread_v3.parallel_env(N=sizes[1]) for _ in range(first, last)]
    for i, env in enumerate(envs):
        observations, _ = env.reset(seed=seed + first + i)
        obs[i] = list(observations.values())
    while _asked(pipe):
        for i, env in enumerate(envs):
            observations, rewards, *_ = env.step(
                dict(zip(env.agents, action[i].tolist(), strict=True))
            )
            reward[i] = list(rewards.values())
            if env.agents:
                obs[i] = list(observations.values())
            else:  # the time limit
                final[i] = list(observations.values())
                observations, _ = env.reset()
                obs[i] = list(observations.values())


def _asked(pipe: int) -> bool:
    """Tell that all is played; whether there is a further step. Not when the other side has gone,
    before or after this byte."""
    try:
        os.write(pipe, b".")
        return bool(os.read(pipe, 1))
    except ConnectionError:
        return False


if __name__ == "__main__":
    memory_fd, pipe, first, last, seed, *sizes = map(int, sys.argv[1:])
    play(memory_fd, pipe, first, last, seed, sizes)
