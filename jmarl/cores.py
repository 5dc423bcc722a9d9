"""A CPU's cores as devices of their own.

As one device a CPU shares every single operation among its cores, which then wait for each other;
as several, each plays and learns from worlds of its own, in its own caches, and they meet once a
minibatch. That is 1.2 to 2.1 times as fast where there is enough to do for each (two cores; MAT and
MAPPO with 8 and 16 worlds, 25 steps, one minibatch).
"""

import os

import jax

from jmarl.batching import cores
from jmarl.config import Config

ENOUGH = 100  # views of all agents in a core's part of a minibatch
FORCED = "xla_force_host_platform_device_count"


def make_devices(config: Config) -> None:
    """Before jax is used for anything: as many devices as cores where that is faster, unless the
    user has said how many. Accelerators, if there are any, are not affected."""
    if pays(config, cores()) and FORCED not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", cores())


def pays(config: Config, count: int) -> bool:
    """Several seeds fill the cores as they are; permuted rows would be learned from by all cores
    alike; several processes have their own devices."""
    ppo, hosts = config.ppo, config.hosts
    elsewhere = hosts.join or hosts.coordinator is not None
    if config.devices is not None or config.seeds > 1 or ppo.shuffle == "rows" or elsewhere:
        return False
    even = config.num_envs % (count * ppo.num_minibatches) == 0
    return even and config.steps_per_update >= ENOUGH * count * ppo.num_minibatches
