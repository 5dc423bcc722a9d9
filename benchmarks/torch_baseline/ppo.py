"""Continuous PPO in PyTorch, on gymnasium's vector environments.

Tanh networks, a Gaussian with state-independent standard deviation, normalised observations and
rewards, early stopping by KL. E worlds, T steps, B = T·E rows.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.utils import RunningMeanStd
from torch import nn


@dataclass(frozen=True)
class Options:
    """Options with jmarl's names."""

    num_envs: int = 16
    rollout_length: int = 128
    total_steps: int = 200_000
    lr: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    epochs: int = 10
    num_minibatches: int = 32
    clip_eps: float = 0.2
    clip_value: bool = True
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5
    target_kl: float = 0.02
    eval_episodes: int = 50
    evaluations: int = 150


def layer(n_in: int, n_out: int, gain: float) -> nn.Linear:
    linear = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


def mlp(n_in: int, hidden: tuple[int, ...], n_out: int, gain: float) -> nn.Sequential:
    sizes, layers = (n_in, *hidden), []
    for before, after in itertools.pairwise(sizes):
        layers += [layer(before, after, 2**0.5), nn.Tanh()]
    return nn.Sequential(*layers, layer(sizes[-1], n_out, gain))


class Agent(nn.Module):
    def __init__(
        self,
        obs_size: int,
        action_size: int,
        actor_hidden: tuple[int, ...] = (64, 64),
        critic_hidden: tuple[int, ...] = (64, 64),
    ) -> None:
        super().__init__()
        self.actor_mean = mlp(obs_size, actor_hidden, action_size, 0.01)
        self.actor_logstd = nn.Parameter(torch.zeros(1, action_size))
        self.critic = mlp(obs_size, critic_hidden, 1, 1.0)

    def policy(self, obs: torch.Tensor) -> torch.distributions.Normal:
        mean = self.actor_mean(obs)
        return torch.distributions.Normal(mean, self.actor_logstd.exp().expand_as(mean))

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs)[..., 0]


class Rows(NamedTuple):
    """The rows of a rollout, (B, …)."""

    obs: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    target: torch.Tensor


def losses(agent: Agent, rows: Rows, options: Options) -> dict[str, torch.Tensor]:
    """The losses of one minibatch."""
    policy, value = agent.policy(rows.obs), agent.value(rows.obs)
    log_ratio = policy.log_prob(rows.action).sum(-1) - rows.log_prob
    ratio, clip = log_ratio.exp(), options.clip_eps
    advantage = (rows.advantage - rows.advantage.mean()) / (rows.advantage.std() + 1e-8)
    policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
    error = (value - rows.target) ** 2
    if options.clip_value:
        near = rows.value + (value - rows.value).clamp(-clip, clip)
        error = torch.max(error, (near - rows.target) ** 2)
    value_loss, entropy = 0.5 * error.mean(), policy.entropy().sum(-1).mean()
    total = policy_loss - options.entropy_coef * entropy + options.value_coef * value_loss
    with torch.no_grad():
        return {
            "total_loss": total,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "old_approx_kl": (-log_ratio).mean(),
            "approx_kl": (ratio - 1 - log_ratio).mean(),
            "clipfrac": ((ratio - 1).abs() > clip).float().mean(),
        }


def learn(
    agent: Agent,
    optimiser: torch.optim.Optimizer,
    rows: Rows,
    orders: Iterator[np.ndarray],
    options: Options,
) -> dict[str, float]:
    """Epochs over the rows in the given orders; stops after an epoch that exceeds the target KL."""
    last: dict[str, torch.Tensor] = {}
    done = 0
    while done < options.epochs:
        done += 1
        for picked in np.split(next(orders), options.num_minibatches):
            index = torch.as_tensor(picked)
            parts = losses(agent, Rows(*(x[index] for x in rows)), options)
            optimiser.zero_grad()
            parts["total_loss"].backward()
            norm = nn.utils.clip_grad_norm_(agent.parameters(), options.max_grad_norm)
            optimiser.step()
            last = parts | {"grad_norm": norm}
        if options.target_kl > 0 and last["approx_kl"] > options.target_kl:
            break
    return {name: float(x.detach()) for name, x in last.items()} | {"epochs": done}


class Normaliser:
    """One running mean and variance for all worlds; rewards are scaled by that of their sum."""

    def __init__(self, obs_size: int, num_envs: int, gamma: float) -> None:
        self.obs = RunningMeanStd(shape=(obs_size,))
        self.sum, self.gamma = np.zeros(num_envs), gamma
        self.reward = RunningMeanStd(shape=())

    def normalise_obs(self, obs: np.ndarray) -> torch.Tensor:
        scaled = (obs - self.obs.mean) / np.sqrt(self.obs.var + 1e-8)
        return torch.as_tensor(scaled.clip(-10, 10), dtype=torch.float32)

    def normalise_reward(self, reward: np.ndarray, terminated: np.ndarray) -> np.ndarray:
        self.sum = self.sum * self.gamma * (1 - terminated) + reward
        self.reward.update(self.sum)
        return (reward / np.sqrt(self.reward.var + 1e-8)).clip(-10, 10)


class Progress(NamedTuple):
    steps: int
    seconds: float  # of training, without evaluations
    eval_return: float
    returns: tuple[float, ...] = ()  # of the episodes that have ended in training


class Returns:
    """Sums of rewards by world, and the returns of the episodes that have ended."""

    def __init__(self, num_envs: int) -> None:
        self.running, self.ended = np.zeros(num_envs), []

    def add(self, reward: np.ndarray, over: np.ndarray) -> None:
        self.running += reward
        if over.any():
            self.ended += self.running[over].tolist()
            self.running[over] = 0.0


def make_worlds(name: str, count: int) -> SyncVectorEnv:
    return SyncVectorEnv(
        [lambda: gym.make(name) for _ in range(count)], autoreset_mode=AutoresetMode.SAME_STEP
    )


def evaluate(agent: Agent, normaliser: Normaliser, worlds: SyncVectorEnv, seed: int) -> float:
    """Mean return of the first episodes of fixed initial states, without exploring."""
    obs, _ = worlds.reset(seed=seed)
    low, high = worlds.single_action_space.low, worlds.single_action_space.high
    total, running = np.zeros(worlds.num_envs), np.ones(worlds.num_envs)
    while running.any():
        with torch.inference_mode():
            action = agent.actor_mean(normaliser.normalise_obs(obs)).numpy()
        obs, reward, terminated, truncated, _ = worlds.step(action.clip(low, high))
        total += reward * running
        running *= 1 - (terminated | truncated)
    return float(total.mean())


def train(
    name: str, options: Options, seed: int, report: Callable[[Progress], bool] = lambda p: False
) -> Agent:
    """Train until the budget is spent or `report` returns True."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    worlds, judges = make_worlds(name, options.num_envs), make_worlds(name, options.eval_episodes)
    low, high = worlds.single_action_space.low, worlds.single_action_space.high
    obs_size = int(np.prod(worlds.single_observation_space.shape or ()))
    action_size = int(np.prod(worlds.single_action_space.shape or ()))
    agent = Agent(obs_size, action_size)
    optimiser = torch.optim.Adam(agent.parameters(), lr=options.lr, eps=1e-5)
    normaliser = Normaliser(obs_size, options.num_envs, options.gamma)
    length, per_update = options.rollout_length, options.num_envs * options.rollout_length
    updates = options.total_steps // per_update
    orders = (rng.permutation(per_update) for _ in itertools.count())
    obs, _ = worlds.reset(seed=seed)
    normaliser.obs.update(obs)
    spent, every = 0.0, max(1, updates // options.evaluations)
    returns = Returns(options.num_envs)
    for done in range(updates):
        started = time.perf_counter()
        optimiser.param_groups[0]["lr"] = options.lr * (1 - done / updates)
        steps: list[tuple] = []
        for _ in range(length):
            normalised = normaliser.normalise_obs(obs)
            with torch.inference_mode():
                policy, value = agent.policy(normalised), agent.value(normalised)
                action = policy.sample()
                log_prob = policy.log_prob(action).sum(-1)
            obs, reward, terminated, truncated, info = worlds.step(action.numpy().clip(low, high))
            normaliser.obs.update(obs)
            returns.add(reward, terminated | truncated)
            final = torch.zeros(options.num_envs)
            if truncated.any():
                last = np.stack(info["final_obs"][truncated])
                with torch.inference_mode():
                    final[torch.as_tensor(truncated)] = agent.value(normaliser.normalise_obs(last))
            scaled_reward = normaliser.normalise_reward(reward, terminated)
            ends = torch.as_tensor(terminated), torch.as_tensor(truncated)
            steps.append(
                (normalised, action, log_prob, value, torch.as_tensor(scaled_reward), *ends, final)
            )
        with torch.inference_mode():
            ahead = agent.value(normaliser.normalise_obs(obs))
        rows = _rows(steps, ahead, options)
        learn(agent, optimiser, rows, orders, options)
        spent += time.perf_counter() - started
        if (done + 1) % every == 0 or done + 1 == updates:
            score = evaluate(agent, normaliser, judges, seed + 10_000)
            ended = tuple(returns.ended)
            if report(Progress((done + 1) * per_update, spent, score, ended)):
                break
    worlds.close()
    judges.close()
    return agent


def _rows(steps: list[tuple], ahead: torch.Tensor, options: Options) -> Rows:
    """Generalised advantages, backwards; where time ran out they bootstrap from the last value."""
    normalised, action, log_prob, value, reward, terminated, truncated, final = (
        torch.stack(column).clone() for column in zip(*steps, strict=True)
    )
    advantage, g = torch.zeros_like(value), torch.zeros_like(ahead)
    for t in reversed(range(len(steps))):
        following = torch.where(truncated[t], final[t], ahead)
        delta = reward[t] + options.gamma * following * ~terminated[t] - value[t]
        g = delta + options.gamma * options.gae_lambda * g * ~(terminated[t] | truncated[t])
        advantage[t], ahead = g, value[t]
    columns = (normalised, action, log_prob, value, advantage, advantage + value)
    return Rows(*(x.flatten(0, 1).float() for x in columns))
