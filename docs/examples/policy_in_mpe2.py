"""Plays a trained policy in mpe2's own environment, with dictionaries by agent."""

import sys

from mpe2 import simple_speaker_listener_v4

import jmarl

policy = jmarl.load_policy(sys.argv[1])  # the directory of a run
world = simple_speaker_listener_v4.parallel_env()
returns = []
for episode in range(int(sys.argv[2]) if len(sys.argv) > 2 else 100):
    observations, _ = world.reset(seed=episode)
    memory, total = None, 0.0  # policies without memory have an empty one
    while world.agents:
        actions, memory = policy.act(observations, memory)
        observations, rewards, *_ = world.step(actions)
        total += sum(rewards.values())
    returns.append(total)
print(f"mean return of {len(returns)} episodes: {sum(returns) / len(returns):.1f}")
