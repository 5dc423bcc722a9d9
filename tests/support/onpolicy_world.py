"""on-policy's particle worlds in plain numpy, written from their equations: one world, loops.

The reference for `dialect="onpolicy"`: velocity before position, summed rewards, actions 1 and 2
as +x and -x, an agent that counts as touching itself.
"""

import numpy as np

RADIUS = {"simple_spread": 0.15, "simple_reference": 0.05, "simple_speaker_listener": 0.075}


class OnPolicyWorld:
    def __init__(self, scenario, pos, landmarks, goal):
        self.scenario, self.goal = scenario, goal
        self.pos, self.landmarks = pos.copy(), landmarks
        self.vel = np.zeros_like(pos)
        self.message = np.zeros((2, {"simple_reference": 10}.get(scenario, 3)))

    def step(self, moves, words):
        """moves [N] in 0..4, words [N] or None; returns the reward that every agent gets."""
        force = np.zeros_like(self.pos)
        for i, move in enumerate(moves):
            if self.scenario == "simple_speaker_listener" and i == 0:
                continue
            axis, sign = {1: (0, 1), 2: (0, -1), 3: (1, 1), 4: (1, -1)}.get(move, (0, 0))
            force[i, axis] += 5.0 * sign
        if self.scenario == "simple_spread":
            for i in range(len(self.pos)):
                for j in range(len(self.pos)):
                    if i != j:
                        force[i] += self.contact(self.pos[i] - self.pos[j])
        self.vel = 0.75 * self.vel + 0.1 * force
        self.pos = self.pos + 0.1 * self.vel
        if words is not None:
            self.message = np.eye(self.message.shape[1])[words]
        return self.reward()

    def contact(self, delta):
        d = np.sqrt((delta**2).sum())
        depth = 1e-3 * np.logaddexp(0, (2 * RADIUS[self.scenario] - d) / 1e-3)
        return 100.0 * depth * delta / d

    def reward(self):
        if self.scenario == "simple_reference":
            return -sum(
                ((self.pos[1 - i] - self.landmarks[self.goal[i]]) ** 2).sum() for i in range(2)
            )
        if self.scenario == "simple_speaker_listener":
            return -2 * ((self.pos[1] - self.landmarks[self.goal[0]]) ** 2).sum()
        total = 0.0
        for agent in self.pos:
            for mark in self.landmarks:
                total -= min(np.linalg.norm(other - mark) for other in self.pos)
            total -= sum(np.linalg.norm(other - agent) < 0.3 for other in self.pos)
        return total

    def observations(self):
        if self.scenario == "simple_speaker_listener":
            colour = np.full(3, 0.15)
            colour[self.goal[0]] = 0.65
            to_marks = (self.landmarks - self.pos[1]).ravel()
            return [colour, np.concatenate([self.vel[1], to_marks, self.message[0]])]
        seen = []
        for i in range(len(self.pos)):
            to_marks = (self.landmarks - self.pos[i]).ravel()
            if self.scenario == "simple_reference":
                colour = np.full(3, 0.25)
                colour[self.goal[i]] = 0.75
                seen.append(np.concatenate([self.vel[i], to_marks, colour, self.message[1 - i]]))
            else:
                rest = np.delete(self.pos, i, axis=0) - self.pos[i]
                quiet = np.zeros(2 * len(rest))
                seen.append(
                    np.concatenate([self.vel[i], self.pos[i], to_marks, rest.ravel(), quiet])
                )
        return seen
