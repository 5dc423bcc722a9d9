"""Policies: MAT acts agent by agent, MAPPO and IPPO simultaneously. E worlds, N agents, T steps."""

from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.torch_baseline.actor_critic_networks import Critic, DiscreteActor
from benchmarks.torch_baseline.mat_networks import Decoder, Encoder


class PolicyOutput(NamedTuple):
    """Arrays [E, N, 1]."""

    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    memory: Any  # for the next step


class Evaluation(NamedTuple):
    """Arrays [T, E, N, 1] for recorded actions."""

    log_prob: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor


def choose(logits: torch.Tensor, greedy: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample an action [..., 1]; returns it and its log-probability. p/Exp(1) is greatest at k with
    probability p_k."""
    log_prob = logits.log_softmax(-1)
    score = log_prob if greedy else log_prob.exp() / torch.empty_like(logits).exponential_()
    action = score.argmax(-1, keepdim=True)
    return action, log_prob.gather(-1, action)


def judge(logits: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """log π of recorded actions, and the entropy; [..., 1]."""
    log_prob = logits.log_softmax(-1)
    entropy = -(log_prob.exp() * log_prob).sum(-1, keepdim=True)
    return log_prob.gather(-1, action), entropy


class MatPolicy(nn.Module):
    def __init__(
        self,
        obs_size: int,
        num_actions: int,
        num_agents: int,
        n_block: int,
        n_embd: int,
        n_head: int,
    ) -> None:
        super().__init__()
        shape = (num_agents, n_block, n_embd, n_head)
        self.num_agents, self.token_size = num_agents, num_actions + 1
        self.encoder = Encoder(obs_size, *shape)
        self.decoder = Decoder(obs_size, num_actions, *shape, discrete=True)

    def begin(self, num_envs: int) -> None:
        """No memory."""

    def act(
        self, obs: torch.Tensor, memory: None, episode_start: bool, greedy: bool = False
    ) -> PolicyOutput:
        """Run the decoder for every agent, over the agents up to it."""
        value, rep = self.encoder(obs)
        tokens = self._tokens(obs)
        chosen = []
        for i in range(self.num_agents):
            up_to = slice(i + 1)
            last = self.decoder.trunk(tokens[:, up_to], rep[:, up_to])[:, i]
            action, log_prob = choose(self.decoder.head(last), greedy)
            chosen.append((action, log_prob))
            if i + 1 < self.num_agents:
                tokens[:, i + 1].scatter_(-1, action + 1, 1.0)
        action, log_prob = (torch.stack(x, 1) for x in zip(*chosen, strict=True))
        return PolicyOutput(action, log_prob, value, None)

    def value(self, obs: torch.Tensor, memory: None) -> torch.Tensor:
        return self.encoder(obs)[0]

    def evaluate(
        self, obs: torch.Tensor, action: torch.Tensor, memory: None, masks: None
    ) -> Evaluation:
        """All agents in one pass."""
        times, rows = obs.shape[:2], obs.flatten(0, 1)
        value, rep = self.encoder(rows)
        tokens = self._tokens(rows)
        tokens[:, 1:].scatter_(-1, action.flatten(0, 1)[:, :-1] + 1, 1.0)
        logits = self.decoder(tokens, rep, rows)
        log_prob, entropy = judge(logits.unflatten(0, times), action)
        return Evaluation(log_prob, value.unflatten(0, times), entropy)

    def _tokens(self, obs: torch.Tensor) -> torch.Tensor:
        """[..., N, A+1]: the start token for the first agent, zeros for the others."""
        tokens = obs.new_zeros(*obs.shape[:-1], self.token_size)
        tokens[..., 0, 0] = 1.0
        return tokens


class ActorCriticPolicy(nn.Module):
    """Networks that all agents share. `central`: the critic sees all observations; all agents then
    have the same value, so it is computed once per world."""

    def __init__(
        self,
        obs_size: int,
        num_actions: int,
        num_agents: int,
        central: bool,
        recurrent: bool,
        hidden: tuple[int, ...],
        activation: str,
        input_norm: bool,
        layer_norm: bool,
    ) -> None:
        super().__init__()
        self.num_agents, self.central, self.recurrent = num_agents, central, recurrent
        self.width, self.critic_rows = hidden[-1], 1 if central else num_agents
        form = (hidden, activation, recurrent, input_norm, layer_norm)
        self.actor = DiscreteActor(obs_size, num_actions, *form)
        self.critic = Critic(obs_size * (num_agents if central else 1), *form)

    def begin(self, num_envs: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """States of both GRUs, [E·rows, H]."""
        if not self.recurrent:
            return None
        rows = (self.num_agents, self.critic_rows)
        actor, critic = (torch.zeros(num_envs * n, self.width) for n in rows)
        return actor, critic

    def act(
        self, obs: torch.Tensor, memory: Any, episode_start: bool, greedy: bool = False
    ) -> PolicyOutput:
        if not self.recurrent:
            action, log_prob = choose(self.actor(obs)[0], greedy)
            return PolicyOutput(action, log_prob, self.value(obs, None), None)
        masks = torch.full((1, 1, 1), 0.0 if episode_start else 1.0)
        logits, actor_memory = self._run(self.actor, obs[None], memory[0], masks)
        value, critic_memory = self._run(self.critic, self._view(obs[None]), memory[1], masks)
        action, log_prob = choose(logits[0], greedy)
        value = value[0].expand(*obs.shape[:-1], 1)
        return PolicyOutput(action, log_prob, value, (actor_memory, critic_memory))

    def value(self, obs: torch.Tensor, memory: Any) -> torch.Tensor:
        if not self.recurrent:
            return self.critic(self._view(obs))[0].expand(*obs.shape[:-1], 1)
        value, _ = self._run(self.critic, self._view(obs[None]), memory[1], torch.ones(1, 1, 1))
        return value[0].expand(*obs.shape[:-1], 1)

    def evaluate(
        self, obs: torch.Tensor, action: torch.Tensor, memory: Any, masks: torch.Tensor | None
    ) -> Evaluation:
        if self.recurrent:
            logits, _ = self._run(self.actor, obs, memory[0], masks)
            value, _ = self._run(self.critic, self._view(obs), memory[1], masks)
        else:
            logits, value = self.actor(obs)[0], self.critic(self._view(obs))[0]
        log_prob, entropy = judge(logits, action)
        return Evaluation(log_prob, value.expand(*obs.shape[:-1], 1), entropy)

    def _view(self, obs: torch.Tensor) -> torch.Tensor:
        """[..., 1 or N, D]: the critic's input."""
        return obs.flatten(-2).unsqueeze(-2) if self.central else obs

    def _run(self, net: nn.Module, x: torch.Tensor, memory: torch.Tensor, masks: Any) -> tuple:
        """[T, E, rows, D] → [T, E, rows, out], and the last state."""
        out, memory = net(x.flatten(1, 2), memory, masks)
        return out.unflatten(1, x.shape[1:3]), memory
