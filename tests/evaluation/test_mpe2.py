"""What is trained here works there: policies in Farama's mpe2."""

import jax
import numpy as np
import pytest

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.errors import ConfigError
from jmarl.evaluation.mpe2 import make_worlds, play_in_mpe2
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.learning.episodes import play_episodes


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "actions"),
    [
        ("simple_speaker_listener", "continuous"),
        ("simple_tag", "discrete"),
    ],
)
def test_a_policy_trained_here_scores_the_same_in_mpe2(scenario, actions):
    """Over 500 episodes each, within the 99 % interval of the difference of means."""
    share = {"net": {"hidden": [32], "share": "team"}}
    config = build(
        {"algorithm": "ippo", "env": f"mpe/{scenario}", "actions": actions, "num_envs": 64} | share
    )
    trainer, hyper = make_trainer(config)
    state = jax.jit(trainer.init)(jax.random.key(0))
    step = jax.jit(trainer.step_alike)
    for _ in range(15):
        state, _ = step(state, hyper)
    env, players, params = trainer.env, trainer.players, state.policies
    here = jax.jit(lambda p, k: play_episodes(env, players, p, k, 500))(params, jax.random.key(1))
    policy = TrainedPolicy(config, env, players, params)
    there = play_in_mpe2(policy, jax.random.key(2), 500, deterministic=True, seed=7)
    untrained = jax.jit(trainer.init)(jax.random.key(0)).policies
    before = jax.jit(lambda p, k: play_episodes(env, players, p, k, 500))(
        untrained, jax.random.key(1)
    )
    for team in env.spec.teams:
        ours, theirs, early = (
            np.asarray(seen.agent_return)[:, list(team.agents)].sum(1)
            for seen in (here, there, before)
        )
        error = np.sqrt(ours.var() / ours.size + theirs.var() / theirs.size)
        assert abs(ours.mean() - theirs.mean()) < 2.576 * error, team.name
        if env.spec.cooperative:  # it has learned something that the interval can see
            assert ours.mean() - early.mean() > 5 * error


def test_mpe2_itself_takes_fifty_for_its_bound():
    """So that what a policy chose is handed to it as it is."""
    wild, tame = make_worlds("mpe/simple", {}, continuous=True, count=2)
    for world in (wild, tame):
        world.reset(seed=0)
    (name,) = wild.agents
    beyond, at = (np.float32([0, a, b, 0, 0]) for a, b in ((-50, 50), (0, 1)))
    views = [world.step({name: action})[0] for world, action in ((wild, beyond), (tame, at))]
    np.testing.assert_array_equal(*(view[name] for view in views))


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        ("gymnax/Pendulum-v1", {}, "cannot play 'gymnax/Pendulum-v1'"),
        ("mpe/simple_spread", {"dialect": "onpolicy"}, "no option 'dialect'"),
    ],
)
def test_worlds_that_mpe2_has_not_are_refused(env, options, words):
    with pytest.raises(ConfigError, match=words):
        make_worlds(env, options, False, 1)
