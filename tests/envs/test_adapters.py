"""Other libraries' worlds: what the adapter hands out is what the library itself computes."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from benchmarks import matrix
from jmarl.config.train_config import build
from jmarl.envs.adapters.dm_control import playground_name
from jmarl.envs.check import shape_faults
from jmarl.envs.spaces import Box, Discrete
from jmarl.runs.in_memory import train

pytestmark = pytest.mark.usefixtures("foreign")


def follow(name, num_steps, num_envs=3, **options):
    """Random play through the adapter, with the state before each step: [T, E, …]."""
    env = jmarl.make(name, **options)
    spec = env.spec

    def program(key):
        reset_key, play_key = jax.random.split(key)

        def body(carry, key):
            state, timestep = carry
            act_key, step_key = jax.random.split(key)
            action = legal_action(spec, act_key, timestep.action_mask)
            after, out = env.step(step_key, state, action)
            return (after, out), (state, action, step_key, out, after)

        first = env.reset(reset_key, num_envs)
        return jax.lax.scan(body, first, jax.random.split(play_key, num_steps))[1]

    return env, *jax.jit(program)(jax.random.key(0))


def legal_action(spec, key, mask):
    if isinstance(spec.action_space, Box):
        return spec.action_space.sample(key, mask.shape[:2])
    return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf))


def check_shapes(env, out, num_steps, num_envs=3):
    spec = env.spec
    n, o, s, a = spec.num_agents, spec.obs_size, spec.state_size, spec.action_space.size
    assert out.obs.shape == out.final_obs.shape == (num_steps, num_envs, n, o)
    assert out.state.shape == out.final_state.shape == (num_steps, num_envs, s)
    assert out.action_mask.shape == (num_steps, num_envs, n, a)
    assert out.reward.shape == out.active.shape == (num_steps, num_envs, n)
    assert out.obs.dtype == out.reward.dtype == np.float32
    assert (np.asarray(out.obs)[:, :, ~spec.obs_mask] == 0).all()


def own_step(env, states, actions, keys):
    """JaxMARL's un-reset step from the same states with the same actions and the same keys."""
    library = env.world.env
    agents = env.spec.agents

    def one(key, state, action):
        given = {
            agent: action[i, : space.size] if isinstance(space, Box) else action[i]
            for i, (agent, space) in enumerate(zip(agents, env.spec.action_spaces, strict=True))
        }
        return library.step_env(key, state, given)

    def many(key, state, action):
        return jax.vmap(one)(step_keys(key, action.shape[0]), state, action)

    return jax.jit(jax.vmap(many))(keys, states, actions)


def step_keys(key, num_envs):
    """The adapter's: each world's key gives one for the step and one for a reset."""
    return jax.vmap(jax.random.fold_in, (0, None))(jax.random.split(key, num_envs), 0)


def check_against_jaxmarl(env, states, actions, keys, out):
    obs, after, reward, done, _ = own_step(env, states, actions, keys)
    for i, (agent, size) in enumerate(zip(env.spec.agents, env.spec.obs_sizes, strict=True)):
        theirs = np.asarray(obs[agent], np.float32).reshape(*out.obs.shape[:2], -1)
        np.testing.assert_allclose(out.final_obs[:, :, i, :size], theirs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(out.reward[:, :, i], np.asarray(reward[agent]), rtol=1e-6)
    ended = np.asarray(done["__all__"]).reshape(out.truncated.shape)
    np.testing.assert_array_equal(out.over, ended)
    for i, agent in enumerate(env.spec.agents):  # who is out of a running episode has ended
        gone = np.asarray(done[agent]).reshape(ended.shape)
        np.testing.assert_array_equal(out.terminated[:, :, i][~ended], gone[~ended])
    assert not (out.terminated.all(-1) & out.truncated).any()
    return obs, after


def test_jaxmarl_mpe_ends_by_the_clock_after_26_steps_and_keeps_the_last_view():
    # continuous actions, of unlike sizes
    name, options = "jaxmarl/MPE_simple_speaker_listener_v4", {"action_type": "Continuous"}
    env, states, actions, keys, out, _ = follow(name, 28, **options)
    check_shapes(env, out, 28)
    assert len({space.size for space in env.spec.action_spaces}) == 2
    check_against_jaxmarl(env, states, actions, keys, out)
    assert env.spec.episode_length == 26
    np.testing.assert_array_equal(np.flatnonzero(out.truncated[:, 0]), [25])
    assert not out.terminated.any()
    assert not np.array_equal(out.final_obs[25], out.obs[25])
    np.testing.assert_array_equal(out.final_obs[24], out.obs[24])


def test_jaxmarl_teams_follow_its_names():
    spec = jmarl.make("jaxmarl/MPE_simple_tag_v3").spec
    assert dict(spec.teams) == {"adversary": (0, 1, 2), "good": (3,)}
    assert jmarl.make("jaxmarl/MPE_simple_spread_v3").spec.cooperative
    assert len(jmarl.make("jaxmarl/coin_game").spec.teams) == 2  # everyone for himself


def test_jaxmarl_smax_masks_dead_units_world_state_and_both_ends():
    options = {"map_name": "3m", "max_steps": 17}
    env, states, actions, keys, out, after = follow("jaxmarl/HeuristicEnemySMAX", 60, 8, **options)
    check_shapes(env, out, 60, 8)
    obs, unreset = check_against_jaxmarl(env, states, actions, keys, out)
    np.testing.assert_allclose(out.final_state, obs["world_state"], rtol=1e-6, atol=1e-6)
    assert env.spec.varying_action_mask
    assert len(np.unique(np.asarray(out.action_mask), axis=0)) > 1
    legal = jax.jit(jax.vmap(jax.vmap(env.world.env.get_avail_actions)))(after)
    legal_then = jax.jit(jax.vmap(jax.vmap(env.world.env.get_avail_actions)))(unreset)
    for i, agent in enumerate(env.spec.agents):
        np.testing.assert_array_equal(out.action_mask[:, :, i], legal[agent].astype(bool))
        then = np.asarray(legal_then[agent], bool)
        np.testing.assert_array_equal(out.final_action_mask[:, :, i], then)
    np.testing.assert_array_equal(out.active, after.state.unit_alive[..., :3])
    # an army that is gone decides the battle; otherwise time ran out
    alive = np.asarray(unreset.state.unit_alive).reshape(60, 8, 2, 3).any(-1)
    np.testing.assert_array_equal(out.terminated.all(-1), ~alive.all(-1))
    assert (out.terminated.any(-1) & ~out.over).any()  # some fell before the battle was over
    np.testing.assert_array_equal(out.won, ~alive[..., 1])
    np.testing.assert_array_equal(out.won, out.reward[..., 0] >= 1.0)  # JaxMARL's own sign of it
    assert out.terminated.any()
    assert out.truncated.any()


def test_jaxmarl_switch_riddle_tells_the_end_of_the_game_from_the_end_of_time():
    env, states, actions, keys, out, _ = follow("jaxmarl/switch_riddle", 40, 8)
    check_shapes(env, out, 40, 8)
    check_against_jaxmarl(env, states, actions, keys, out)
    in_room = np.asarray(states.agent_in_room)[..., None] == np.arange(3)
    told = ((np.asarray(actions) == 2) & in_room).any(-1)
    np.testing.assert_array_equal(out.terminated, np.broadcast_to(told[..., None], (40, 8, 3)))
    assert out.truncated.any()


HANABI = {"num_colors": 1, "hand_size": 2, "max_info_tokens": 2}  # ten cards


@pytest.mark.long
@pytest.mark.parametrize(
    ("players", "hand_size", "turns"),
    [
        (2, 2, 2 + 11 + 2),  # 2 hints, six draws with a hint after each but the last, 2 more turns
        (3, 3, 2 + 1 + 3),  # one card to draw
        (2, 5, 3),  # none: the last round begins at once
    ],
)
def test_jaxmarl_hanabi_lasts_as_long_as_there_are_hints_and_cards(players, hand_size, turns):
    """Whoever hints where he can, and discards elsewhere, plays the longest game."""
    options = HANABI | {"num_agents": players, "hand_size": hand_size}
    env = jmarl.make("jaxmarl/hanabi", **options)
    assert env.spec.episode_length == turns
    hints = env.spec.action_space.size - 2 * hand_size - 1
    liking = jnp.array([2] * hand_size + [1] * hand_size + [3] * hints + [0])  # plays cost lives

    def slowly(mask):
        return jnp.where(mask, liking, -1).argmax(-1)

    def body(carry, key):
        state, timestep = carry
        state, timestep = env.step(key, state, slowly(timestep.action_mask))
        return (state, timestep), timestep

    first = jax.jit(lambda key: env.reset(key, 2))(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 2 * turns)
    out = jax.jit(lambda first: jax.lax.scan(body, first, keys)[1])(first)
    ends = np.arange(1, 2 * turns + 1) % turns == 0
    np.testing.assert_array_equal(out.terminated[:, 0, 0], ends)
    np.testing.assert_array_equal(out.over, np.stack([ends, ends], 1))
    assert not out.truncated.any()


@pytest.mark.long
def test_jaxmarl_hanabi_is_trained_and_scored():
    chosen = {
        "algorithm": "ippo",
        "env": "jaxmarl/hanabi",
        "env_options": HANABI,
        "eval_every": 1,
        "eval_episodes": 8,
        "quiet": True,
    }
    outcome = train(build(matrix.TINY | chosen)).outcome
    assert outcome.update == 2
    assert outcome.evaluations
    for entry in outcome.evaluations:
        name = "absolute" if "absolute" in entry else "eval"
        assert 3 <= entry[f"{name}/length_mean"] <= 15  # three lives
        assert 0 <= entry[f"{name}/return_mean"] <= 2 * 5  # two players, five cards


@pytest.mark.parametrize(
    ("name", "options", "length"),
    [
        ("jaxmarl/coin_game", {"num_inner_steps": 3, "num_outer_steps": 2}, 6),
        ("jaxmarl/overcooked", {"layout": "cramped_room", "max_steps": 5}, 5),
        ("jaxmarl/overcooked_v2", {"layout": "cramped_room", "max_steps": 5}, 5),
    ],
)
def test_jaxmarl_grid_worlds_are_flattened_and_end_by_the_clock(name, options, length):
    env, states, actions, keys, out, _ = follow(name, 7, **options)
    check_shapes(env, out, 7)
    check_against_jaxmarl(env, states, actions, keys, out)
    assert env.spec.episode_length == length
    np.testing.assert_array_equal(np.flatnonzero(out.truncated[:, 0]), [length - 1])
    assert not out.terminated.any()


def test_images_keep_their_shape():
    assert jmarl.make("jaxmarl/overcooked").spec.obs_shape == (4, 5, 26)
    near = jmarl.make("jaxmarl/overcooked_v2", layout="coord_ring", agent_view_size=2).spec
    assert near.obs_shape == (5, 5, 30)
    assert near.obs_sizes == (5 * 5 * 30,) * 2
    vectors = jmarl.make("jaxmarl/overcooked_v2", observation_type="featurized").spec
    assert vectors.obs_shape is None
    assert jmarl.make("gymnax/Breakout-MinAtar").spec.obs_shape == (10, 10, 4)
    assert jmarl.make("gymnax/CartPole-v1").spec.obs_shape is None


def test_shaped_rewards_are_added_by_their_weight():
    plain, shaped = (
        jmarl.make("jaxmarl/overcooked_v2", max_steps=50, shaping=weight) for weight in (0, 0.5)
    )
    # the left agent goes left and takes an onion, then again and again
    actions = jnp.array([[2, 4], [5, 4]] * 4)

    def play(env):
        def step(state, action):
            state, timestep = env.step(jax.random.key(1), state, action[None])
            return state, timestep.reward[0]

        return jax.lax.scan(step, env.reset(jax.random.key(0), 1)[0], actions)[1]

    def theirs(key):
        env = plain.world.env
        state = env.reset(jax.random.fold_in(jax.random.split(key, 1)[0], 0))[1]

        def step(state, action):
            given = {"agent_0": action[0], "agent_1": action[1]}
            _, state, _, _, info = env.step_env(key, state, given)
            return state, jnp.stack([info["shaped_reward"][a] for a in env.agents])

        return jax.lax.scan(step, state, actions)[1]

    found, bonus = jax.jit(lambda: (play(shaped) - play(plain), theirs(jax.random.key(0))))()
    np.testing.assert_allclose(found, 0.5 * np.asarray(bonus, np.float32))


@pytest.mark.parametrize(
    ("world", "options", "message"),
    [
        ("overcooked_v2", {"layout": "kitchen"}, "unknown overcooked_v2 layout 'kitchen'"),
        ("overcooked", {"layout": "cramped"}, "did you mean 'cramped_room'"),
        ("overcooked_v2", {"observation_type": "x"}, "observation_type='x' is not one of default"),
        ("overcooked_v2", {"shaping": -1.0}, "shaping=-1.0 is not a number from 0.0"),
        ("coin_game", {"shaping": 1.0}, "shaping=1.0 cannot go with coin_game"),
    ],
)
def test_options_of_overcooked_are_refused_by_name(world, options, message):
    with pytest.raises(ValueError, match=message):
        jmarl.make(f"jaxmarl/{world}", **options)


@pytest.mark.parametrize(
    ("name", "space", "options"),
    [
        ("gymnax/Pendulum-v1", Box((-2.0,), (2.0,)), {"max_steps_in_episode": 9}),
        ("gymnax/CartPole-v1", Discrete(2), {}),
        ("gymnax/MountainCarContinuous-v0", Box((-1.0,), (1.0,)), {}),
    ],
)
def test_gymnax(name, space, options):
    env, states, actions, keys, out, _ = follow(name, 60, **options)
    check_shapes(env, out, 60)
    assert env.spec.action_space == space
    world = env.world

    def one(key, state, action):
        own = action[0] if isinstance(space, Discrete) else action.reshape(1)
        return world.env.step_env(key, state, own, world.params)

    def many(key, state, action):
        return jax.vmap(one)(step_keys(key, 3), state, action)

    obs, after, reward, terminated, _ = jax.jit(jax.vmap(many))(keys, states, actions)
    np.testing.assert_allclose(out.final_obs[:, :, 0], obs, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(out.reward[:, :, 0], np.asarray(reward).reshape(60, 3), rtol=1e-6)
    np.testing.assert_array_equal(out.terminated[:, :, 0], terminated)
    late = np.asarray(after.time) >= world.params.max_steps_in_episode
    np.testing.assert_array_equal(out.truncated, late & ~np.asarray(terminated))
    if name == "gymnax/Pendulum-v1":
        np.testing.assert_array_equal(np.flatnonzero(out.truncated[:, 0]), np.arange(8, 60, 9))
    if name == "gymnax/CartPole-v1":
        assert out.terminated.any()


def brax_episode(name):
    env, *_, out, _ = follow(name, 7, 2, episode_length=3)
    check_shapes(env, out, 7, 2)
    assert np.isfinite(out.obs).all()
    assert np.isfinite(out.reward).all()
    np.testing.assert_array_equal(np.flatnonzero(out.truncated[:, 0]), [2, 5])
    assert not out.terminated.any()


@pytest.mark.skipif(not importlib.util.find_spec("brax"), reason="needs the brax extra")
def test_brax():
    brax_episode("brax/fast")


@pytest.mark.skipif(
    not importlib.util.find_spec("mujoco_playground"), reason="needs the playground extra"
)
def test_playground():
    brax_episode("playground/CartpoleBalance")
    with pytest.raises(ValueError, match="did you mean 'playground/CartpoleBalance'"):
        jmarl.make("playground/CartpoleBalanc")


@pytest.mark.skipif(not importlib.util.find_spec("brax"), reason="needs the brax extra")
@pytest.mark.filterwarnings("ignore")
def test_mabrax():
    env, *_, out, _ = follow("jaxmarl/hopper_3x1", 5, 2, episode_length=4)
    check_shapes(env, out, 5, 2)
    np.testing.assert_array_equal(np.flatnonzero(out.truncated[:, 0]), [3])


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("cartpole/balance", "CartpoleBalance"),
        ("acrobot/swingup_sparse", "AcrobotSwingupSparse"),
        ("swimmer/swimmer6", "SwimmerSwimmer6"),
        ("ball_in_cup/catch", "BallInCup"),
    ],
)
def test_tasks_of_the_control_suite_have_playgrounds_names(task, name):
    assert playground_name(f"dm_control/{task}", task) == name


def test_jaxmarl_worlds_have_the_shapes_that_they_declare():
    for name in ("jaxmarl/MPE_simple_spread_v3", "jaxmarl/HeuristicEnemySMAX"):
        assert shape_faults(jmarl.make(name)) == []
