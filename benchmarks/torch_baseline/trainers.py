"""MAT, MAPPO and IPPO on simple_spread in PyTorch, written for speed on a CPU.

The algorithms are those of the references: collect a rollout, compute advantages, learn from it in
epochs of minibatches. As in jmarl, minibatches are blocks of worlds in random order, so that
nothing has to be gathered. T steps, E worlds, N agents.
"""

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.utils import clip_grad_norm_

from benchmarks.torch_baseline.losses import (
    ValueNorm,
    gae,
    normalise_advantage,
    policy_loss,
    value_loss,
)
from benchmarks.torch_baseline.policies import ActorCriticPolicy, MatPolicy
from benchmarks.torch_baseline.spread import (
    EPISODE_LENGTH,
    NUM_ACTIONS,
    VectorisedSpread,
    Worlds,
)
from benchmarks.torch_baseline.workers import SubprocessSpread

EVALUATION_SEED = 1_000_003


@dataclass(frozen=True)
class Settings:
    """Options with jmarl's names and meanings."""

    algorithm: Literal["mat", "mappo", "rmappo", "ippo"]
    num_envs: int
    num_agents: int = 3
    rollout_length: int = 25
    epochs: int = 10
    num_minibatches: int = 1
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["relu", "tanh"] = "relu"
    input_norm: bool = True
    layer_norm: bool = True
    n_embd: int = 64
    n_head: int = 1
    n_block: int = 1
    lr: float = 7e-4
    adam_eps: float = 1e-5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_eps: float = 0.2  # for the ratio and, as in the references, the value
    clip_value: bool = True
    value_coef: float = 1.0
    entropy_coef: float = 0.01
    max_grad_norm: float = 10.0
    clip_apart: bool = True  # clip gradients of actor and critic separately; MAT has one norm
    huber_delta: float = 10.0
    value_norm: bool = True
    time_limit: Literal["bootstrap", "terminal", "zero_gae"] = "bootstrap"
    reward: Literal["team_mean", "individual"] = "team_mean"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_envs % self.num_minibatches:
            raise ValueError(
                f"num_minibatches={self.num_minibatches} does not divide num_envs={self.num_envs}."
            )


# Where the references differ from `Settings`: train_mpe.sh of MAT and of on-policy.
REFERENCE = {
    "mat": {"clip_eps": 0.05},
    "mappo": {"activation": "tanh"},
    "rmappo": {"activation": "tanh"},
    "ippo": {"activation": "tanh"},
}


def reference(algorithm: str, num_envs: int, **further: Any) -> Settings:
    """The settings of the references."""
    return Settings(
        **{"algorithm": algorithm, "num_envs": num_envs} | REFERENCE[algorithm] | further
    )


class Batch(NamedTuple):
    """A rollout, [T, E, N, …]; `memory` is that before the first step."""

    obs: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    target: torch.Tensor
    memory: Any
    masks: torch.Tensor | None  # [T, 1, 1]: 0 where an episode begins


def make_policy(settings: Settings, obs_size: int) -> MatPolicy | ActorCriticPolicy:
    sizes = (obs_size, NUM_ACTIONS, settings.num_agents)
    if settings.algorithm == "mat":
        return MatPolicy(*sizes, settings.n_block, settings.n_embd, settings.n_head)
    return ActorCriticPolicy(
        *sizes,
        central=settings.algorithm != "ippo",
        recurrent=settings.algorithm == "rmappo",
        hidden=settings.hidden,
        activation=settings.activation,
        input_norm=settings.input_norm,
        layer_norm=settings.layer_norm,
    )


def losses(policy: Any, batch: Batch, settings: Settings) -> dict[str, torch.Tensor]:
    """Of one minibatch, whose targets are in the values' units."""
    now = policy.evaluate(batch.obs, batch.action, batch.memory, batch.masks)
    clip = settings.clip_eps
    gain, ratio = policy_loss(now.log_prob, batch.log_prob, batch.advantage, clip, None)
    critic = value_loss(
        now.value, batch.value, batch.target, clip, settings.huber_delta, settings.clip_value, None
    )
    entropy = now.entropy.mean()
    return {
        "total_loss": gain - settings.entropy_coef * entropy + settings.value_coef * critic,
        "policy_loss": gain,
        "value_loss": critic,
        "entropy": entropy,
        "ratio": ratio.detach().mean(),
    }


def minibatches(batch: Batch, count: int) -> list[Batch]:
    """Blocks of neighbouring worlds; memories have a world's rows one after the other."""
    if count == 1:
        return [batch]
    columns = []
    for x in batch[:6]:
        columns.append([part.contiguous() for part in x.chunk(count, dim=1)])
    parts = zip(*columns, strict=True)
    memories = [None] * count
    if batch.memory is not None:
        memories = list(zip(*(h.chunk(count) for h in batch.memory), strict=True))
    return [Batch(*part, h, batch.masks) for part, h in zip(parts, memories, strict=True)]


class Trainer:
    """Plain torch: on one core, MAT with 128 worlds gained nothing from torch.compile."""

    def __init__(self, settings: Settings, worlds: Worlds) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.worlds = settings, worlds
        self.policy = make_policy(settings, worlds.obs_size)
        self.norm = ValueNorm() if settings.value_norm else None
        parameters = list(self.policy.parameters())
        self.optimiser = torch.optim.Adam(
            parameters, lr=settings.lr, eps=settings.adam_eps, fused=True
        )
        self.clipped = [parameters]
        if isinstance(self.policy, ActorCriticPolicy) and settings.clip_apart:
            nets = (self.policy.actor, self.policy.critic)
            self.clipped = [list(net.parameters()) for net in nets]
        length, agents = settings.rollout_length, (settings.num_envs, settings.num_agents)
        self.obs = torch.zeros(length + 1, *agents, worlds.obs_size)
        self.action = torch.zeros(length, *agents, 1, dtype=torch.int64)
        self.log_prob, self.value, self.next_value = torch.zeros(3, length, *agents, 1)
        self.reward = torch.zeros(length, *agents)
        self.episode_start, self.truncated = [True] * (length + 1), [False] * length
        self.memory = self.start_memory = self.policy.begin(settings.num_envs)
        self.obs[-1] = worlds.reset()

    @torch.inference_mode()
    def rollout(self) -> None:
        """T steps of all worlds, into the buffer."""
        length, ends = self.settings.rollout_length, {}
        self.obs[0], self.episode_start[0] = self.obs[-1], self.episode_start[-1]
        self.start_memory = self.memory
        for t in range(length):
            did = self.policy.act(self.obs[t], self.memory, self.episode_start[t])
            self.action[t], self.log_prob[t], self.value[t] = did.action, did.log_prob, did.value
            self.memory = did.memory
            step = self.worlds.step(did.action[..., 0])
            self.obs[t + 1], self.reward[t] = step.obs, step.reward
            self.episode_start[t + 1] = self.truncated[t] = step.truncated
            if step.truncated:
                ends[t] = self.policy.value(step.final_obs, self.memory)
        self.next_value[:-1] = self.value[1:]
        if not self.truncated[-1]:
            self.next_value[-1] = self.policy.value(self.obs[-1], self.memory)
        for t, value in ends.items():
            self.next_value[t] = value

    def batch(self) -> Batch:
        """Advantages, normalised over all, and returns in the rewards' units."""
        settings, value, ahead = self.settings, self.value, self.next_value
        if self.norm is not None:
            value, ahead = self.norm.denormalize(value), self.norm.denormalize(ahead)
        reward = self.reward
        if settings.reward == "team_mean":
            reward = reward.mean(-1, keepdim=True).expand_as(reward)
        advantage, target = gae(
            reward.unsqueeze(-1),
            value,
            ahead,
            self.truncated,
            settings.gamma,
            settings.gae_lambda,
            settings.time_limit,
        )
        masks = memory = None
        if self.start_memory is not None:
            masks = 1.0 - torch.tensor(self.episode_start[:-1], dtype=torch.float32).view(-1, 1, 1)
            memory = tuple(h.clone() for h in self.start_memory)
        return Batch(
            self.obs[:-1],
            self.action,
            self.log_prob,
            self.value,
            normalise_advantage(advantage),
            target,
            memory,
            masks,
        )

    def update(self) -> dict[str, float]:
        """Epochs over the last rollout; metrics are means over the minibatches."""
        with torch.no_grad():
            parts = minibatches(self.batch(), self.settings.num_minibatches)
        sums: dict[str, Any] = defaultdict(float)
        for _ in range(self.settings.epochs):
            for i in torch.randperm(len(parts)).tolist():
                for name, x in self.learn(parts[i]).items():
                    sums[name] += x.detach()
        count = self.settings.epochs * len(parts)
        means = {name: float(x) / count for name, x in sums.items()}
        return means | {"reward": float(self.reward.mean())}

    def learn(self, part: Batch) -> dict[str, torch.Tensor]:
        """One step of Adam, after the value statistics are updated with the minibatch."""
        if self.norm is not None:
            self.norm.update(part.target)
            part = part._replace(target=self.norm.normalize(part.target))
        found = losses(self.policy, part, self.settings)
        self.optimiser.zero_grad(set_to_none=True)
        found["total_loss"].backward()
        norms = [
            clip_grad_norm_(parameters, self.settings.max_grad_norm, foreach=True)
            for parameters in self.clipped
        ]
        self.optimiser.step()
        return found | {"grad_norm": torch.linalg.vector_norm(torch.stack(norms))}

    @torch.inference_mode()
    def evaluate(self, episodes: int) -> float:
        """Mean return of greedy play in as many worlds, summed over agents."""
        worlds = VectorisedSpread(episodes, self.settings.num_agents, EVALUATION_SEED)
        obs, memory = worlds.reset(), self.policy.begin(episodes)
        total = torch.zeros(())
        for t in range(EPISODE_LENGTH):
            did = self.policy.act(obs, memory, episode_start=t == 0, greedy=True)
            memory = did.memory
            obs, reward, *_ = worlds.step(did.action[..., 0])
            total += reward.sum()
        return float(total / episodes)

    def close(self) -> None:
        self.worlds.close()


def make_trainer(
    settings: Settings,
    worlds: Literal["subprocess", "vectorised"],
    *,
    processes: int | None = None,
) -> Trainer:
    """`processes` play mpe2's worlds; by default one for each core that may be used.

    More gain nothing: measured on one core, a step of 16 worlds took 1.1 to 1.2 times the
    processor's time with 4 processes that it took with 2, and 1.2 to 1.6 times with 16 (medians of
    two measurements); with 128 worlds the three were equal within noise.
    """
    size = (settings.num_envs, settings.num_agents, settings.seed)
    if worlds == "vectorised":
        return Trainer(settings, VectorisedSpread(*size))
    count = len(os.sched_getaffinity(0)) if processes is None else processes
    return Trainer(settings, SubprocessSpread(*size, processes=count))
