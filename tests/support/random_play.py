"""Worlds under random actions."""

import jax


def played(env, num_envs, steps, seed=0):
    """Random play: the first time step, those of all steps, and the actions."""

    def play(key):
        reset_key, key = jax.random.split(key)
        state, first = env.reset(reset_key, num_envs)

        def step(state, key):
            action = env.spec.action_space.sample(key, (num_envs, env.spec.num_agents))
            state, timestep = env.step(key, state, action)
            return state, (timestep, action)

        _, (later, action) = jax.lax.scan(step, state, jax.random.split(key, steps))
        return first, later, action

    return jax.device_get(jax.jit(play)(jax.random.key(seed)))
