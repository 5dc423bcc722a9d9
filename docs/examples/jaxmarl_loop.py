"""A training script in the form of JaxMARL's: IPPO with one network for all agents. It runs on
jmarl's worlds and on JaxMARL's own; `make_world` has the line that differs."""

import argparse
from typing import NamedTuple

import distrax
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

import jmarl


def make_world(library):
    if library == "jaxmarl":
        import jaxmarl

        return jaxmarl.make("MPE_simple_spread_v3")
    return jmarl.to_jaxmarl(jmarl.make("mpe/simple_spread"))


class ActorCritic(nn.Module):
    actions: int

    @nn.compact
    def __call__(self, obs):
        def hidden(x):
            for _ in range(2):
                x = nn.tanh(nn.Dense(64, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
            return x

        logits = nn.Dense(self.actions, kernel_init=nn.initializers.orthogonal(0.01))(hidden(obs))
        return distrax.Categorical(logits), nn.Dense(1)(hidden(obs))[..., 0]


class Transition(NamedTuple):
    obs: jax.Array  # [agents · worlds, …]; in a rollout [T, agents · worlds, …]
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


def batchify(by_agent, agents):
    """One row for each agent of each world."""
    return jnp.concatenate([by_agent[agent] for agent in agents])


def unbatchify(rows, agents):
    return dict(zip(agents, jnp.split(rows, len(agents)), strict=True))


def advantages(rollout, last_value, config):
    """Generalised advantage estimation."""

    def back(carry, step):
        advantage, next_value = carry
        goes_on = 1.0 - step.done
        delta = step.reward + config["GAMMA"] * goes_on * next_value - step.value
        advantage = delta + config["GAMMA"] * config["GAE_LAMBDA"] * goes_on * advantage
        return (advantage, step.value), advantage

    start = jnp.zeros_like(last_value), last_value
    return jax.lax.scan(back, start, rollout, reverse=True)[1]


def ppo_loss(params, apply, minibatch, config):
    step, advantage, target = minibatch
    chosen, value = apply(params, step.obs)
    ratio = jnp.exp(chosen.log_prob(step.action) - step.log_prob)
    clipped = jnp.clip(ratio, 1 - config["CLIP_EPS"], 1 + config["CLIP_EPS"])
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    actor = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    critic = 0.5 * jnp.square(value - target).mean()
    return actor + config["VF_COEF"] * critic - config["ENT_COEF"] * chosen.entropy().mean()


def make_train(config, env):
    agents, num_envs = env.agents, config["NUM_ENVS"]
    rows = len(agents) * num_envs

    def _env_step(runner_state, _):
        train_state, env_state, last_obs, rng = runner_state
        rng, act_rng, step_rng = jax.random.split(rng, 3)
        obs = batchify(last_obs, agents)
        chosen, value = train_state.apply_fn(train_state.params, obs)
        action, log_prob = chosen.sample_and_log_prob(seed=act_rng)
        next_obs, env_state, reward, done, _ = jax.vmap(env.step)(
            jax.random.split(step_rng, num_envs), env_state, unbatchify(action, agents)
        )
        transition = Transition(
            *(obs, action, log_prob, value),
            *(batchify(reward, agents), batchify(done, agents).astype(jnp.float32)),
        )
        return (train_state, env_state, next_obs, rng), transition

    def _update_minibatch(train_state, minibatch):
        loss, gradient = jax.value_and_grad(ppo_loss)(
            train_state.params, train_state.apply_fn, minibatch, config
        )
        return train_state.apply_gradients(grads=gradient), loss

    def _update_epoch(train_state, rng, batch):
        order = jax.random.permutation(rng, rows * config["NUM_STEPS"])

        def shuffled(x):
            x = x.reshape(-1, *x.shape[2:])[order]
            return x.reshape(config["NUM_MINIBATCHES"], -1, *x.shape[1:])

        return jax.lax.scan(_update_minibatch, train_state, jax.tree.map(shuffled, batch))

    def _update_step(runner_state, _):
        runner_state, rollout = jax.lax.scan(_env_step, runner_state, None, config["NUM_STEPS"])
        train_state, env_state, last_obs, rng = runner_state
        _, last_value = train_state.apply_fn(train_state.params, batchify(last_obs, agents))
        advantage = advantages(rollout, last_value, config)
        batch = rollout, advantage, advantage + rollout.value
        rng, epoch_rng = jax.random.split(rng)
        train_state, _ = jax.lax.scan(
            lambda state, rng: _update_epoch(state, rng, batch),
            train_state,
            jax.random.split(epoch_rng, config["UPDATE_EPOCHS"]),
        )
        return (train_state, env_state, last_obs, rng), rollout.reward.mean()

    def train(rng):
        rng, net_rng, reset_rng = jax.random.split(rng, 3)
        network = ActorCritic(env.action_space(agents[0]).n)
        obs, env_state = jax.vmap(env.reset)(jax.random.split(reset_rng, num_envs))
        train_state = TrainState.create(
            apply_fn=network.apply,
            params=network.init(net_rng, batchify(obs, agents)),
            tx=optax.chain(optax.clip_by_global_norm(0.5), optax.adam(config["LR"], eps=1e-5)),
        )
        runner_state = train_state, env_state, obs, rng
        return jax.lax.scan(_update_step, runner_state, None, config["NUM_UPDATES"])

    return train


CONFIG = {
    "NUM_ENVS": 64,
    "NUM_STEPS": 25,
    "NUM_UPDATES": 400,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "LR": 1e-3,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "VF_COEF": 0.5,
    "ENT_COEF": 0.01,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=["jmarl", "jaxmarl"], default="jmarl")
    parser.add_argument("--updates", type=int, default=CONFIG["NUM_UPDATES"])
    options = parser.parse_args()
    train = make_train(CONFIG | {"NUM_UPDATES": options.updates}, make_world(options.library))
    _, reward = jax.jit(train)(jax.random.PRNGKey(0))  # an agent's reward per step, by update
    print(f"{options.library}: reward {reward[0]:.3f} at first, {reward[-1]:.3f} at last")
