"""A critic of one's own: linear in the global state."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build


@dataclass(frozen=True)
class LinearCritic:
    """V = w·s + b, the same for all agents."""

    state_size: int
    num_agents: int
    recurrent: bool = False
    reads_state: bool = True
    value_head: tuple[str, ...] = ()

    def init(self, key):
        return {"kernel": jnp.zeros((self.state_size, 1)), "bias": jnp.zeros(1)}

    def memory(self, num_envs):
        return ()

    def __call__(self, params: Any, memory: Any, seen: Any) -> Any:
        value = seen.state @ params["kernel"] + params["bias"].sum()
        return memory, jnp.broadcast_to(value, (*value.shape[:-1], self.num_agents))


def trained(algorithm, updates, **ppo):
    """Its own critic in place of MAPPO's."""
    values = {"algorithm": algorithm, "env": "probe/observation", "num_envs": 64}
    options = {"lr": 0.02, "num_minibatches": 1, "lr_schedule": "constant"} | ppo
    config = build(values | {"rollout_length": 4, "net": {"hidden": [8]}, "ppo": options})
    trainer, hyper = make_trainer(config)
    (player,), (learner,) = trainer.players, trainer.learners
    critic = LinearCritic(trainer.env.spec.state_size, len(player.agents))
    policy = replace(player.policy, critic=critic)
    trainer = replace(
        trainer,
        players=(player._replace(policy=policy),),
        learners=(replace(learner, policy=policy),),
    )
    state = jax.jit(trainer.init)(jax.random.key(0))
    step = jax.jit(trainer.step_alike)
    for _ in range(updates):
        state, _ = step(state, hyper)
    return trainer, state


def test_an_own_critic_learns_values():
    """The reward is told by the state, whatever is done; PopArt finds the head by its path."""
    trainer, state = trained("mappo", 60, value_norm="popart")
    timestep, (policy,) = state.timestep, state.policies
    _, value = trainer.players[0].policy.critic(policy.params["critic"], (), timestep)
    known = np.asarray(state.learners[0].value_norm.denormalise(value))
    bit = np.asarray(timestep.obs[..., 1]) > 0
    np.testing.assert_allclose(known, np.where(bit, 1.0, -1.0), atol=0.15)


def test_an_own_critic_without_memory_serves_a_recurrent_actor():
    trainer, state = trained("rmappo", 1)
    policy = trainer.players[0].policy
    assert policy.recurrent
    assert state.memory[0]["critic"] == ()
    assert state.memory[0]["actor"].any()
