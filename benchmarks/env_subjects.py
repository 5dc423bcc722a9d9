"""The worlds of `python -m benchmarks.envs`: programs and functions that play them with random
actions."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jmarl
from benchmarks.report import Compiled, compile_program
from jmarl.envs.adapters.jaxmarl import import_jaxmarl
from jmarl.evaluation.mpe2 import VERSIONS

SCENARIOS = VERSIONS  # → mpe2's modules, whose names JaxMARL's worlds have too
EPISODE_LENGTH = 25
MPE2_STEPS = 100


def steps_per_run(num_envs: int) -> int:
    """Whole episodes: enough for timing, few enough to finish soon."""
    return EPISODE_LENGTH * max(2, min(40, 2048 // num_envs))


def sample_actions(key, num_envs: int, choices: np.ndarray):
    """[E, N] integers, those of agent i in 0 … choices[i]-1; the same code for both JAX
    subjects."""
    unit = jax.random.uniform(key, (num_envs, len(choices)))
    return jnp.floor(unit * choices[None]).astype(jnp.int32)


def play(num_envs: int, choices: np.ndarray, reset, step) -> Compiled:
    """A program that resets, plays random actions and returns the last result of `step`."""

    def program(key):
        reset_key, key = jax.random.split(key)

        def body(carry, key):
            act_key, step_key = jax.random.split(key)
            return step(step_key, carry, sample_actions(act_key, num_envs, choices)), None

        keys = jax.random.split(key, steps_per_run(num_envs))
        return lax.scan(body, reset(reset_key), keys)[0]

    return compile_program(program, jax.random.key(0))


def made(scenario: str):
    return jmarl.make(f"mpe/{scenario}", actions="discrete", episode_length=EPISODE_LENGTH)


def native(scenario: str, num_envs: int) -> Compiled:
    env = made(scenario)
    choices = np.array([space.size for space in env.spec.action_spaces])

    def step(key, carry, action):
        state, _ = carry
        return env.step(key, state, action)

    return play(num_envs, choices, lambda key: env.reset(key, num_envs), step)


def jaxmarl(scenario: str, num_envs: int) -> Compiled:
    # JaxMARL's episodes last one step longer than max_steps.
    env = import_jaxmarl().make(f"MPE_{SCENARIOS[scenario]}", max_steps=EPISODE_LENGTH - 1)
    return vmapped(env, num_envs)


def vmapped(env, num_envs: int) -> Compiled:
    """A world with JaxMARL's interface: its own, or a view of one of jmarl's."""
    choices = np.array([env.action_space(agent).n for agent in env.agents])

    def step(key, carry, action):
        actions = {agent: action[:, i] for i, agent in enumerate(env.agents)}
        keys = jax.random.split(key, num_envs)
        obs, state, reward, done, _ = jax.vmap(env.step)(keys, carry[0], actions)
        return state, obs, reward, done

    def reset(key):
        obs, state = jax.vmap(env.reset)(jax.random.split(key, num_envs))
        still = jnp.zeros((num_envs, len(env.agents)), jnp.int32)
        _, _, *given = jax.eval_shape(lambda: step(jax.random.key(0), (state,), still))
        return state, obs, *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), given)

    return play(num_envs, choices, reset, step)


def mpe2(scenario: str):
    env = importlib.import_module(f"mpe2.{SCENARIOS[scenario]}").parallel_env(
        max_cycles=EPISODE_LENGTH
    )
    return parallel(env)


def parallel(env):
    """Plays MPE2_STEPS steps of one world with PettingZoo's interface: mpe2's, or a view."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    choices = {agent: env.action_space(agent).n for agent in env.possible_agents}

    def run():
        for _ in range(MPE2_STEPS):
            if not env.agents:
                env.reset()
            env.step({agent: int(rng.integers(n)) for agent, n in choices.items()})

    return run


def vector(env):
    """Plays as many steps as a compiled program in a vector of worlds with Gymnasium's
    interface."""
    rng, choices = np.random.default_rng(0), env.single_action_space.n
    env.reset(seed=0)

    def run():
        for _ in range(steps_per_run(env.num_envs)):
            env.step(rng.integers(choices, size=env.num_envs))

    return run
