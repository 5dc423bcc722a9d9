"""A world written in numpy, with PettingZoo's interface: a lookout sees where the treasure is and
calls a word, a runner hears the word and moves. Run as a script, it trains both."""

import sys

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
WORDS = 4


class Hunt(ParallelEnv):
    metadata = {"name": "hunt", "render_modes": []}  # noqa: RUF012 (as PettingZoo declares it)
    possible_agents = ["lookout", "runner"]  # noqa: RUF012

    def __init__(self, size=5, max_cycles=20):
        self.size, self.max_cycles, self.agents = size, max_cycles, []
        self.observation_spaces = {
            "lookout": Box(-1, 1, (2,)),  # the way from the runner to the treasure
            "runner": Box(0, 1, (2 + WORDS,)),  # where it is, and the last word
        }
        self.action_spaces = {"lookout": Discrete(WORDS), "runner": Discrete(len(MOVES))}

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        self.runner, self.treasure = self.random.integers(self.size, size=(2, 2))
        self.word = np.zeros(WORDS)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.runner = np.clip(self.runner + MOVES[actions["runner"]], 0, self.size - 1)
        self.word = np.eye(WORDS)[actions["lookout"]]
        self.steps += 1
        found = (self.runner == self.treasure).all()
        late = self.steps == self.max_cycles and not found

        def of_each(x):
            return dict.fromkeys(self.possible_agents, x)

        self.agents = [] if found or late else self.agents
        reward = 1.0 if found else -0.1
        infos = {agent: {} for agent in self.possible_agents}
        return self._seen(), of_each(reward), of_each(bool(found)), of_each(bool(late)), infos

    def _seen(self):
        way, place = self.treasure - self.runner, self.runner / self.size
        return {
            "lookout": (way / self.size).astype(np.float32),
            "runner": np.concatenate([place, self.word]).astype(np.float32),
        }


parallel_env = Hunt  # what `pettingzoo/numpy_world` makes


if __name__ == "__main__":
    import jmarl

    outcome = jmarl.train(
        algorithm="mappo",
        env="pettingzoo/numpy_world",
        env_options={"size": 5},
        num_envs=32,
        total_steps=int(sys.argv[1]) if len(sys.argv) > 1 else 200_000,
        eval_episodes=32,
        quiet=True,
    )
    print("greedy return:", outcome.evaluations["absolute/return_mean"][-1])
