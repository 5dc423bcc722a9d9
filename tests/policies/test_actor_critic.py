"""MAPPO's and IPPO's policy: what it computes once must be what it computed when it acted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.envs.spaces import Box, Discrete, MultiDiscrete
from jmarl.networks.torso import Shape
from jmarl.policies.base import one_decision
from jmarl.types import PolicyInput
from tests.support.parts import FORGETFUL, actor_critic

N, OBS, S, E, T = 3, 4, 5, 6, 7
SPACES = {
    "discrete": Discrete(4),
    "factored": MultiDiscrete((2, 3)),
    "continuous": Box.uniform(0, 1, 2),
}


def make(space="discrete", recurrent=False, obs_sizes=(OBS,) * N, **options):
    shape = Shape(hidden=(8,), head_hidden=(8,), recurrent=recurrent)
    return actor_critic(obs_sizes, S, SPACES[space], shape, **options)


def views(space, seed=0):
    """[T, E, …]: what is seen along a rollout in which episodes begin at random."""
    rng = np.random.default_rng(seed)
    mask = rng.random((T, E, N, SPACES[space].size)) < 0.7
    mask[..., 0] = True
    if space == "factored":
        mask[..., 2] = True  # each head keeps a legal choice
    if space == "continuous":
        mask[:] = True
    return PolicyInput(
        obs=jnp.asarray(rng.normal(size=(T, E, N, OBS)), jnp.float32),
        state=jnp.asarray(rng.normal(size=(T, E, S)), jnp.float32),
        action_mask=jnp.asarray(mask),
        episode_start=jnp.asarray(rng.random((T, E)) < 0.3, jnp.float32),
    )


def play(policy, params, seen, deterministic=False):
    """Decisions `[T, E, …]`, one step after the other."""

    def step(memory, now):
        seen, key = now
        noise = one_decision(policy, jax.random.split(key, E))
        return policy.act(params, noise, memory, seen, deterministic)

    keys = jax.random.split(jax.random.key(2), T)
    return jax.lax.scan(step, policy.memory(E), (seen, keys))[1]


CASES = [
    ("discrete", True, {"agent_id": "features"}),
    ("factored", True, {"critic_input": "own", "agent_id": "obs"}),
    ("continuous", True, {"critic_input": "state"}),
    ("continuous", False, {"critic_input": "all_and_state", "squash_mean": True}),
    ("factored", False, {"obs_sizes": (2, 4, 3), "agent_id": "obs"}),
    ("continuous", False, {"distribution": "tanh"}),
    ("continuous", True, {"distribution": "beta"}),
]


@pytest.mark.parametrize(("space", "recurrent", "options"), CASES)
def test_playing_and_evaluating_agree(space, recurrent, options):
    """Step by step with a memory, or all at once from the memory at the start: ratio 1."""
    policy = make(space, recurrent, **options)
    seen = views(space)
    params = jax.jit(policy.init)(jax.random.key(0))
    played = jax.jit(lambda p, s: play(policy, p, s))(params, seen)
    start = policy.memory(E)
    now = jax.jit(policy.evaluate)(params, start, played.context, seen, played.action)
    np.testing.assert_allclose(now.log_prob, played.log_prob, atol=1e-5)
    np.testing.assert_allclose(now.value, played.value, atol=1e-5)
    assert now.log_prob.shape == (T, E, N, policy.actions.components)
    assert now.value.shape == (T, E, N)
    assert len(np.unique(np.asarray(played.action))) > 1
    if space == "discrete":
        legal = np.take_along_axis(np.asarray(seen.action_mask), played.action[..., None], -1)
        assert legal.all()
    assert policy.recurrent == recurrent
    assert bool(jax.tree.leaves(start)) == recurrent


def test_squashed_means_lie_between_the_bounds():
    space = Box((-2.0, 0.0), (2.0, 0.5))
    policy = actor_critic((OBS,) * N, S, space, Shape(hidden=(8,)), squash_mean=True)
    seen = jax.tree.map(lambda x: x[0], views("continuous"))
    params = jax.tree.map(lambda x: 3 * x, jax.jit(policy.init)(jax.random.key(0)))
    params["actor"]["out"]["kernel"] *= 100

    def act(params, seen):
        noise = one_decision(policy, jax.random.split(jax.random.key(1), E))
        return policy.act(params, noise, FORGETFUL, seen, True)[1].action

    mean = np.asarray(jax.jit(act)(params, seen)).reshape(-1, 2)
    raw = policy.actor.net.apply({"params": params["actor"]}, seen.obs, None, None, None)[0]
    unit = 1 / (1 + np.exp(-np.asarray(raw))).reshape(-1, 2)
    np.testing.assert_allclose(mean, [-2.0, 0.0] + np.array([4.0, 0.5]) * unit, atol=1e-5)
    assert np.ptp(mean, axis=0)[0] > 1


def test_memory_matters_and_ends_with_the_episode():
    """What was seen before changes the logits, but not across the beginning of an episode."""
    policy = make(recurrent=True)
    seen = views("discrete")._replace(episode_start=jnp.zeros((T, E)).at[4].set(1.0))
    other = seen._replace(obs=seen.obs.at[0].add(1.0))
    params = jax.jit(policy.init)(jax.random.key(0))
    params = jax.tree.map(lambda x: x + 0.3, params)
    value = jax.jit(lambda s: play(policy, params, s, deterministic=True).value)
    changed = (np.asarray(value(seen)) != np.asarray(value(other))).any(axis=(1, 2))
    np.testing.assert_array_equal(changed, [True] * 4 + [False] * 3)


def test_sequences_may_start_from_nothing():
    policy, blank = make(recurrent=True), make(recurrent=True, start_state="zero")
    seen = views("discrete")._replace(episode_start=jnp.zeros((T, E)))
    params = jax.jit(policy.init)(jax.random.key(0))
    action = jnp.zeros((T, E, N), int)
    start = jax.tree.map(jnp.ones_like, policy.memory(E))
    evaluate = jax.jit(lambda start: policy.evaluate(params, start, None, seen, action))
    stored, zero = evaluate(start), evaluate(jax.tree.map(jnp.zeros_like, start))
    assert np.abs(stored.value - zero.value).max() > 1e-4
    from_zero = jax.jit(lambda start: blank.evaluate(params, start, None, seen, action))(start)
    np.testing.assert_allclose(from_zero.value, zero.value, atol=1e-6)


@pytest.mark.parametrize("critic_input", ["all", "state", "all_and_state"])
def test_a_joint_view_is_valued_once_for_all(critic_input):
    """One row for the team gives what a row for every agent would."""
    policy = make(critic_input=critic_input, agent_id="features")
    seen = jax.tree.map(lambda x: x[0], views("discrete"))
    params = jax.jit(policy.init)(jax.random.key(0))
    value = jax.jit(policy.value)(params, jax.random.key(1), FORGETFUL, seen)
    parts = {"all": [seen.obs.reshape(E, -1)], "state": [seen.state]}
    parts["all_and_state"] = parts["all"] + parts["state"]
    joint = jnp.concatenate(parts[critic_input], axis=-1)
    rows = jnp.broadcast_to(joint[:, None], (E, N, joint.shape[-1]))
    expected, _ = jax.jit(policy.critic.net.apply)(
        {"params": params["critic"]}, rows, jnp.eye(N), None, None
    )
    np.testing.assert_allclose(value, expected[..., 0], atol=1e-6)
    assert (np.ptp(np.asarray(value), axis=-1) > 1e-4).all()  # ids tell agents apart


@pytest.mark.parametrize("critic_input", ["own", "all"])
def test_an_agent_with_padding_is_served_as_by_a_narrow_network(critic_input):
    """Whatever stands in the padding: its net is the shared one without the padded inputs. A joint
    critic reads all agents' real features, and nothing else."""
    sizes = (2, OBS, 3)
    policy = make(obs_sizes=sizes, critic_input=critic_input)
    seen = jax.tree.map(lambda x: x[0], views("discrete"))
    params = jax.jit(policy.init)(jax.random.key(0))
    params = jax.tree.map(lambda x: x + 0.1 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), params)
    action = jnp.zeros((E, N), int)
    evaluate = jax.jit(lambda seen: policy.evaluate(params, FORGETFUL, None, seen, action))
    padding = np.arange(OBS) >= np.array(sizes)[:, None]
    junk = evaluate(seen._replace(obs=jnp.where(padding[None], 7.0, seen.obs)))
    now = evaluate(seen)
    jax.tree.map(np.testing.assert_array_equal, junk, now)
    if critic_input == "all":
        joint = jnp.concatenate([seen.obs[:, i, :size] for i, size in enumerate(sizes)], -1)
        assert params["critic"]["dense_0"]["kernel"].shape[0] == sum(sizes)
        apply = jax.jit(policy.critic.net.apply)
        expected, _ = apply({"params": params["critic"]}, joint[:, None], None, None, None)
        np.testing.assert_allclose(now.value, jnp.broadcast_to(expected[..., 0], (E, N)), atol=1e-5)
        return
    for i, size in enumerate(sizes):
        narrow = make(obs_sizes=(size,), critic_input="own")
        own = jax.tree.map(lambda x: x, params)
        for net in own.values():
            net["input_norm"] = {k: x[:size] for k, x in net["input_norm"].items()}
            net["dense_0"] = {**net["dense_0"], "kernel": net["dense_0"]["kernel"][:size]}
        mine = seen._replace(
            obs=seen.obs[:, i : i + 1, :size], action_mask=seen.action_mask[:, i : i + 1]
        )
        alone = jax.jit(narrow.evaluate)(own, FORGETFUL, None, mine, action[:, i : i + 1])
        for ours, theirs in zip(now, alone, strict=True):
            np.testing.assert_allclose(ours[:, i], theirs[:, 0], atol=1e-5)


def test_an_agent_apart_still_sees_its_team():
    """A central critic of one agent reads the team's observations, its actor only its own."""
    policy = make(obs_sizes=(OBS,), team_obs_sizes=(OBS, 2, 3))
    params = jax.jit(policy.init)(jax.random.key(0))
    seen = jax.tree.map(lambda x: x[0], views("discrete"))
    seen = seen._replace(
        obs=seen.obs[:, :1], action_mask=seen.action_mask[:, :1], team_obs=seen.obs
    )
    action = jnp.zeros((E, 1), int)
    evaluate = jax.jit(lambda seen: policy.evaluate(params, FORGETFUL, None, seen, action))
    now = evaluate(seen)
    moved = evaluate(seen._replace(team_obs=seen.team_obs.at[:, 1, 0].add(1.0)))
    assert (now.value != moved.value).all()
    np.testing.assert_array_equal(now.log_prob, moved.log_prob)
    padding = evaluate(seen._replace(team_obs=seen.team_obs.at[:, 1, 2:].add(1.0)))
    np.testing.assert_array_equal(now.value, padding.value)


def test_central_critics_see_others_and_own_ones_do_not():
    seen = jax.tree.map(lambda x: x[0], views("discrete"))
    moved = seen._replace(obs=seen.obs.at[:, 2].add(1.0))
    for critic_input, others_seen in (("own", False), ("all", True)):
        policy = make(critic_input=critic_input)
        params = jax.jit(policy.init)(jax.random.key(0))
        value = jax.jit(
            lambda s, policy=policy, params=params: policy.value(params, None, FORGETFUL, s)
        )
        assert (value(seen)[:, 0] != value(moved)[:, 0]).all() == others_seen
