"""The native particle worlds beyond their agreement with mpe2."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jmarl
from jmarl.envs.mpe import SCENARIOS
from jmarl.envs.mpe.env import MpeState
from jmarl.envs.mpe.simple_spread import SimpleSpread
from jmarl.envs.mpe.world import World, others
from jmarl.envs.spaces import Discrete, MultiDiscrete
from jmarl.errors import ConfigError

ALL = sorted(SCENARIOS)


def play(env, num_envs, num_steps, seed=0, act=None):
    """Stacked time steps [T, …] of random play, or of what `act(key)` chooses."""
    act = act or (lambda key: env.spec.action_space.sample(key, (num_envs, env.spec.num_agents)))

    def program(key):
        reset_key, play_key = jax.random.split(key)

        def body(state, key):
            act_key, step_key = jax.random.split(key)
            return env.step(step_key, state, act(act_key))

        state, first = env.reset(reset_key, num_envs)
        return first, jax.lax.scan(body, state, jax.random.split(play_key, num_steps))[1]

    return jax.jit(program)(jax.random.key(seed))


def start(env, num_envs):
    """`env.reset`, compiled: op by op it would be compiled op by op."""
    return jax.jit(env.reset, static_argnums=1)(jax.random.key(0), num_envs)


def test_others_drops_the_diagonal_and_keeps_the_order():
    square = jnp.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(others(square), [[1, 2], [3, 5], [6, 7]])


# -- episodes --------------------------------------------------------------------------------------


def test_episodes_last_exactly_as_long_as_they_should():
    env = jmarl.make("mpe/simple_spread", episode_length=7)
    first, steps = play(env, num_envs=3, num_steps=21)
    assert not first.truncated.any()
    assert not steps.terminated.any()
    ends = np.flatnonzero(np.asarray(steps.truncated[:, 0]))
    np.testing.assert_array_equal(ends, [6, 13, 20])
    np.testing.assert_array_equal(steps.truncated, np.broadcast_to(steps.truncated[:, :1], (21, 3)))


def test_a_new_episode_starts_afresh_and_differs_between_worlds_and_episodes():
    env = jmarl.make("mpe/simple_spread", episode_length=5)
    _, steps = play(env, num_envs=4, num_steps=10)
    velocity = np.asarray(steps.obs[..., :2])
    assert (velocity[[4, 9]] == 0).all()
    assert (velocity[3] != 0).any()
    place = np.asarray(steps.obs[..., 2:4])
    starts = np.concatenate([place[4], place[9]])  # [8 starts, N, 2]
    assert len(np.unique(starts[:, 0, 0])) == 8
    assert (np.abs(starts) <= 1).all()
    # the last view of the old episode is kept apart from the first of the new
    assert not np.array_equal(steps.final_obs[4], steps.obs[4])
    np.testing.assert_array_equal(steps.final_obs[3], steps.obs[3])


def test_default_length_is_25():
    for name in ALL:
        assert jmarl.make(f"mpe/{name}").spec.episode_length == 25


# -- spec and actions ------------------------------------------------------------------------------


def test_movers_who_speak_get_factored_actions_unless_flattened_is_asked_for():
    assert jmarl.make("mpe/simple_reference").spec.action_space == MultiDiscrete((5, 10))
    assert jmarl.make("mpe/simple_reference", actions="discrete").spec.action_space == Discrete(50)
    leader, *rest = jmarl.make("mpe/simple_world_comm").spec.action_spaces
    assert leader == MultiDiscrete((5, 4))
    assert set(rest) == {Discrete(5)}
    assert jmarl.make("mpe/simple_spread", actions="multidiscrete").spec.action_space == Discrete(5)


@pytest.mark.parametrize("name", ["simple_reference", "simple_world_comm"])
def test_factored_and_flattened_actions_do_the_same(name):
    factored = jmarl.make(f"mpe/{name}", actions="multidiscrete")
    flattened = jmarl.make(f"mpe/{name}", actions="discrete")
    state, _ = start(factored, 16)
    action = factored.spec.action_space.sample(jax.random.key(1), (16, factored.spec.num_agents))
    speaks = np.array([isinstance(space, MultiDiscrete) for space in factored.spec.action_spaces])
    flat = action[..., 0] + 5 * action[..., 1] * speaks[None]
    _, one = jax.jit(factored.step)(jax.random.key(2), state, action)
    _, two = jax.jit(flattened.step)(jax.random.key(2), state, flat)
    np.testing.assert_array_equal(one.obs, two.obs)
    np.testing.assert_array_equal(one.reward, two.reward)


@pytest.mark.parametrize(
    ("name", "teams"),
    [
        ("simple_spread", {"agents": (0, 1, 2)}),
        ("simple_speaker_listener", {"agents": (0, 1)}),
        ("simple_tag", {"adversary": (0, 1, 2), "good": (3,)}),
        ("simple_adversary", {"adversary": (0,), "good": (1, 2)}),
        ("simple_push", {"adversary": (0,), "good": (1,)}),
        ("simple_crypto", {"adversary": (0,), "good": (1, 2)}),
        ("simple_world_comm", {"adversary": (0, 1, 2, 3), "good": (4, 5)}),
        ("collect_treasure", {"agents": (0, 1, 2, 3, 4, 5, 6, 7)}),
    ],
)
def test_teams(name, teams):
    spec = jmarl.make(f"mpe/{name}").spec
    assert dict(spec.teams) == teams
    assert spec.cooperative == (len(teams) == 1)


def test_agent_ids_are_appended_to_what_each_agent_sees():
    plain = jmarl.make("mpe/simple_tag")
    env = jmarl.make("mpe/simple_tag", agent_ids=True)
    assert env.spec.obs_sizes == tuple(size + 4 for size in plain.spec.obs_sizes)
    _, timestep = start(env, 3)
    _, expected = start(plain, 3)
    for i, size in enumerate(plain.spec.obs_sizes):
        np.testing.assert_array_equal(timestep.obs[:, i, :size], expected.obs[:, i, :size])
        ids = timestep.obs[:, i, size : size + 4]
        np.testing.assert_array_equal(ids, np.broadcast_to(np.eye(4)[i], (3, 4)))


# -- padding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["simple_speaker_listener", "simple_world_comm"])
def test_padding_of_actions_is_inert(name):
    env = jmarl.make(f"mpe/{name}", actions="continuous")
    mask = env.spec.action_mask
    assert not mask.all()
    state, _ = start(env, 8)
    action = env.spec.action_space.sample(jax.random.key(1), (8, env.spec.num_agents))
    other = jnp.where(mask[None], action, 1 - action)
    step = jax.jit(env.step)
    _, one = step(jax.random.key(2), state, action)
    _, two = step(jax.random.key(2), state, other)
    jax.tree.map(np.testing.assert_array_equal, one, two)


def test_padded_choices_say_and_move_nothing():
    env = jmarl.make("mpe/simple_world_comm", actions="discrete")  # leader 20 choices, others 5
    state, _ = start(env, 4)
    still = jnp.zeros((4, 6), jnp.int32)
    step = jax.jit(env.step)
    _, one = step(jax.random.key(1), state, still)
    _, two = step(jax.random.key(1), state, still.at[:, 1:].set(7))
    np.testing.assert_array_equal(one.obs, two.obs)


# -- early ends, events, reports -------------------------------------------------------------------


def test_a_world_that_ends_early_starts_anew_and_the_others_go_on():
    """Until a world ends, it is as if no world could."""
    options = {"num_agents": 1, "max_cycles": 12}
    env = jmarl.make("mpe/simple_spread", terminate_on_success=True, **options)
    plain = jmarl.make("mpe/simple_spread", **options)
    still = lambda key: jnp.zeros((1000, 1), jnp.int32)  # noqa: E731
    first, steps = play(env, 1000, 12, act=still)
    begin, endless = play(plain, 1000, 12, act=still)
    jax.tree.map(np.testing.assert_array_equal, first, begin)
    near = np.linalg.norm(np.asarray(first.obs[:, 0, 4:6]), axis=-1) < 0.1
    assert 0 < near.sum() < 100
    np.testing.assert_array_equal(steps.terminated[0, :, 0], near)
    np.testing.assert_array_equal(steps.obs[:, ~near][:-1], endless.obs[:, ~near][:-1])
    np.testing.assert_array_equal(steps.final_obs[0, near], endless.final_obs[0, near])
    assert (steps.obs[0, near] != endless.obs[0, near]).any((1, 2)).all()
    assert steps.truncated[11, ~near].all()
    assert not steps.truncated[11, near].any()  # they began a step later, or more
    short = jmarl.make(
        "mpe/simple_spread", terminate_on_success=True, **options | {"max_cycles": 1}
    )
    _, only = play(short, 1000, 1, act=still)  # as in mpe2, the time limit comes first
    assert only.truncated.all()
    assert not only.terminated.any()


def test_treasures_appear_by_a_stream_of_their_world():
    env = jmarl.make("mpe/collect_treasure", num_collectors=1, num_deposits=2, num_treasures=2)

    @jax.jit
    def run(keys):
        """All treasures are gone; then they are where the next step's numbers say."""
        begin, go = (jax.vmap(jax.random.fold_in, (0, None))(keys, i) for i in (0, 1))
        state, _ = env.reset(begin, len(keys))
        own = state.world.own
        state = state.replace(
            world=state.world.replace(own=own._replace(kind=jnp.full_like(own.kind, -1)))
        )
        stay = jnp.zeros((len(keys), 3), jnp.int32)
        after, _ = env.step(go, state, stay)
        return state.world.landmarks, after.world.landmarks, after.world.own.kind

    keys = jax.random.split(jax.random.key(3), 500)
    before, after, kind = run(keys)
    np.testing.assert_array_equal(run(keys[:2])[1], after[..., :2])
    assert (before != after).all()
    assert len(np.unique(after)) > 0.99 * after.size
    assert np.abs(after).max() < 0.95 < np.abs(after).max() + 0.01
    np.testing.assert_allclose(np.bincount(np.ravel(kind)) / 1000, [0.5, 0.5], atol=0.05)


def test_mpe2s_names_of_options_are_known():
    env = jmarl.make("mpe/simple_line", N=3, max_cycles=7)
    assert env == jmarl.make("mpe/simple_line", num_agents=3, episode_length=7)
    assert jmarl.make("mpe/simple_adversary", N=3).scenario.num_good == 3


def test_worlds_without_numbers_refuse_to_report():
    from jmarl.envs.mpe import register

    @register
    class Silent(SimpleSpread):
        name = "silent"
        info = None

    try:
        with pytest.raises(ConfigError, match=r"benchmark_data=True: silent defines no `info`"):
            jmarl.make("mpe/silent", benchmark_data=True)
    finally:
        del SCENARIOS["silent"]


# -- calibration -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("dialect", "policy", "expected"),
    [
        ("mpe2", "still", -72.4),
        ("mpe2", "random", -79.2),
        ("onpolicy", "still", -204.0),
        ("onpolicy", "random", -218.0),
    ],
)
def test_returns_of_known_policies(dialect, policy, expected):
    """Sums over agents (mpe2) and the shared reward (on-policy), as measured once with numpy. Of
    32,000 episodes the standard error is at most 0.25."""
    env = jmarl.make("mpe/simple_spread", dialect=dialect)
    still = (lambda key: jnp.zeros((32000, 3), jnp.int32)) if policy == "still" else None
    _, steps = play(env, num_envs=32000, num_steps=25, seed=3, act=still)
    assert steps.truncated[-1].all()
    returns = steps.reward.sum((0, 2) if dialect == "mpe2" else 0)
    returns = returns if dialect == "mpe2" else returns[:, 0]
    np.testing.assert_allclose(returns.mean(), expected, atol=1.0)


# -- robustness ------------------------------------------------------------------------------------


def coincident(env, num_envs=2):
    state, _ = start(env, num_envs)
    heap = {k: jnp.zeros_like(getattr(state.world, k)) for k in ("pos", "vel", "landmarks")}
    return state.replace(world=state.world.replace(**heap))


@pytest.mark.parametrize("name", ALL)
def test_coincident_bodies_give_finite_values_and_gradients(name):
    env = jmarl.make(f"mpe/{name}", actions="continuous")
    state = coincident(env)
    still = jnp.zeros((2, env.spec.num_agents, env.spec.action_space.size))

    def score(world, action):
        _, timestep = env.step(jax.random.key(1), MpeState(world, state.step), action)
        return timestep.final_obs.sum() + timestep.reward.sum()

    differentiable = {k: getattr(state.world, k) for k in ("pos", "vel", "landmarks")}
    value, gradient = jax.jit(
        jax.value_and_grad(lambda w, a: score(state.world.replace(**w), a), argnums=(0, 1))
    )(differentiable, still)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_far_away_prey_has_a_finite_gradient():
    env = jmarl.make("mpe/simple_tag")
    state, _ = start(env, 1)

    def paid(pos):
        return env.scenario.reward(state.world.replace(pos=pos)).sum()

    gradient = jax.grad(paid)(jnp.full_like(state.world.pos, 1e4))
    assert np.isfinite(gradient).all()


def test_worlds_can_be_mapped_over_seeds():
    env = jmarl.make("mpe/simple_tag", episode_length=2)

    def program(key):
        state, _ = env.reset(key, 3)
        for i in range(2):
            state, timestep = env.step(jax.random.fold_in(key, i), state, jnp.ones((3, 4), int))
        return timestep

    jax.config.update("jax_debug_key_reuse", False)  # fold_in after use is what is wanted here
    try:
        keys = jax.random.split(jax.random.key(0), 2)
        both = jax.jit(jax.vmap(program))(keys)
        alone = jax.jit(program)(keys[1])
    finally:
        jax.config.update("jax_debug_key_reuse", True)
    one = jax.tree.map(lambda x: x[1], both)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), one, alone)


small = st.integers(1, 3)
VIEWS = {"num_agent_neighbors": small, "num_landmark_neighbors": small}
FIGURE = st.fixed_dictionaries(
    {},
    optional={
        "num_agents": st.sampled_from([1, 2, 4, 7]),
        "terminate_on_success": st.booleans(),
    },
)
OPTIONS = {
    "simple": st.fixed_dictionaries({}),
    "simple_spread": st.fixed_dictionaries(
        {},
        optional={
            "num_agents": st.sampled_from([1, 2, 5, 11]),
            "num_landmarks": small,
            "local_ratio": st.floats(0, 1),
            "dialect": st.sampled_from(["mpe2", "onpolicy"]),
        },
    )
    | st.fixed_dictionaries(
        {"num_agents": small},
        optional=VIEWS | {"curriculum": st.booleans(), "terminate_on_success": st.booleans()},
    ),
    "simple_reference": st.fixed_dictionaries(
        {},
        optional={
            "local_ratio": st.floats(0, 1),
            "dialect": st.sampled_from(["mpe2", "onpolicy"]),
        },
    ),
    "simple_speaker_listener": st.fixed_dictionaries(
        {}, optional={"dialect": st.sampled_from(["mpe2", "onpolicy"])}
    ),
    "simple_adversary": st.fixed_dictionaries(
        {}, optional={"num_good": small, "num_landmarks": small} | VIEWS
    ),
    "simple_push": st.fixed_dictionaries({}),
    "simple_tag": st.fixed_dictionaries(
        {},
        optional={
            "num_good": small,
            "num_adversaries": st.sampled_from([1, 4, 9]),
            "num_obstacles": st.integers(0, 3),
            "curriculum": st.booleans(),
            "terminate_on_success": st.booleans(),
        }
        | VIEWS,
    ),
    "simple_crypto": st.fixed_dictionaries({}),
    "simple_world_comm": st.fixed_dictionaries(
        {},
        optional={
            "num_good": small,
            "num_adversaries": small,
            "num_obstacles": st.integers(0, 2),
            "num_food": small,
            "num_forests": st.integers(0, 2),
        },
    ),
    "simple_formation": FIGURE,
    "simple_line": FIGURE,
    "collect_treasure": st.fixed_dictionaries(
        {"num_collectors": small, "num_deposits": small},
        optional={"num_treasures": st.sampled_from([1, 3, 9])},
    ),
}
COMMON = st.fixed_dictionaries(
    {"episode_length": st.integers(1, 3)},
    optional={
        "actions": st.sampled_from(["discrete", "continuous", "multidiscrete"]),
        "agent_ids": st.booleans(),
        "benchmark_data": st.booleans(),
    },
)
CASES = st.sampled_from(ALL).flatmap(lambda name: st.tuples(st.just(name), OPTIONS[name], COMMON))


@settings(max_examples=10, deadline=None, derandomize=True)
@given(case=CASES, num_envs=st.integers(1, 4), seed=st.integers(0, 1000))
def test_any_legal_options_give_finite_worlds_of_the_promised_shape(case, num_envs, seed):
    name, own, common = case
    env = jmarl.make(f"mpe/{name}", **own, **common)
    spec = env.spec
    first, steps = play(env, num_envs, num_steps=3, seed=seed)
    n, o, a = spec.num_agents, spec.obs_size, spec.action_space.size
    shapes = {
        "obs": (num_envs, n, o),
        "state": (num_envs, spec.state_size),
        "action_mask": (num_envs, n, a),
        "active": (num_envs, n),
        "reward": (num_envs, n),
        "terminated": (num_envs, n),
        "truncated": (num_envs,),
        "over": (num_envs,),
        "final_obs": (num_envs, n, o),
        "final_state": (num_envs, spec.state_size),
        "final_action_mask": (num_envs, n, a),
    }
    for field, shape in shapes.items():
        assert getattr(first, field).shape == shape
        assert getattr(steps, field).shape == (3, *shape)
        assert getattr(first, field).dtype == getattr(steps, field).dtype
        assert np.isfinite(getattr(steps, field)).all()
    assert (np.asarray(steps.obs)[:, :, ~spec.obs_mask] == 0).all()
    assert (np.asarray(steps.final_obs)[:, :, ~spec.obs_mask] == 0).all()
    assert spec.action_mask.any(axis=1).all()
    assert steps.over[: spec.episode_length].any(0).all()
    if env.benchmark_data:
        assert all(np.isfinite(x).all() and x.shape == (3, num_envs) for x in steps.info.values())
    else:
        assert first.info is None


def test_double_precision_throughout(x64):
    env = jmarl.make("mpe/simple_world_comm", actions="continuous")
    _, steps = play(env, num_envs=2, num_steps=1)
    assert steps.obs.dtype == steps.reward.dtype == np.float64


def test_a_scenario_of_ones_own():
    """What the README shows: a class, registered, played by its name."""
    from jmarl.envs.mpe import register

    class Lonely(SimpleSpread):
        name = "lonely"

        def start(self, keys):
            world = super().start(keys)
            return world.replace(pos=jnp.zeros_like(world.pos))

    register(Lonely)
    try:
        _, timestep = start(jmarl.make("mpe/lonely", num_agents=1), 2)
        np.testing.assert_array_equal(timestep.obs[..., 2:4], 0)
    finally:
        del SCENARIOS["lonely"]


def test_world_is_a_pytree_with_worlds_last():
    state, _ = start(jmarl.make("mpe/simple_tag"), 7)
    assert isinstance(state.world, World)
    assert all(leaf.shape[-1] == 7 for leaf in jax.tree.leaves(state.world))


@pytest.mark.parametrize(
    ("scenario", "options", "words"),
    [
        ("simple_spread", {"spec": 3}, "unknown option of mpe/simple_spread 'spec'"),
        ("simple_spread", {"numagents": 3}, "did you mean 'num_agents'"),
        ("simple_spread", {"num_agents": True}, "num_agents=True is not a whole number"),
        ("simple_spread", {"num_agents": 10**9}, "num_agents=1000000000 .* at most 1000000"),
        ("simple_spread", {"num_agent_neighbors": 10**9}, "at most 1000000"),
        ("simple_spread", {"local_ratio": float("nan")}, "local_ratio=nan is not a number"),
        ("simple_spread", {"N": 3, "num_agents": 3}, "two names of one option"),
        ("simple_spread", {"max_cycles": 2**40}, "episode_length=1099511627776 .* at most"),
        ("simple", {"N": 1}, "unknown option of mpe/simple 'N'"),
        ("simple_reference", {"dialect": "Onpolicy"}, "'Onpolicy' is not one of"),
        ("simple_speaker_listener", {"local_ratio": 0.5}, "unknown option"),
        ("simple_adversary", {"N": 10**9}, "num_good=1000000000 .* at most"),
        ("simple_push", {"render_mode": "human"}, "unknown option of mpe/simple_push"),
        ("simple_tag", {"num_obstacles": -1}, "num_obstacles=-1 .* at least 0"),
        ("simple_tag", {"num_adversaries": 10**9}, "num_adversaries=1000000000 .* at most"),
        ("simple_crypto", {"num_good": 1}, "unknown option of mpe/simple_crypto"),
        ("simple_world_comm", {"num_forests": False}, "num_forests=False is not a whole"),
        ("simple_world_comm", {"num_food": 10**9}, "num_food=1000000000 .* at most"),
        ("simple_formation", {"N": 1.5}, r"num_agents=1\.5 is not a whole number"),
        ("simple_line", {"num_agents": 10**9}, "num_agents=1000000000 .* at most"),
        ("collect_treasure", {"num_treasures": 10**9}, "num_treasures=1000000000 .* at most"),
        ("collect_treasure", {"num_collectors": "6"}, "num_collectors='6' is not a whole"),
    ],
)
def test_hostile_options_are_refused_by_name(scenario, options, words):
    with pytest.raises(ConfigError, match=words):
        jmarl.make(f"mpe/{scenario}", **options)
