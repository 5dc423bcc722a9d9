"""The torch trainers that jmarl is measured against: their worlds are mpe2's, and what they learn
is what the parity references (which jmarl is compared with) learn from the same batch."""

import copy
import itertools

import numpy as np
import pytest
import torch
from mpe2 import simple_spread_v3

from benchmarks.report import Row
from benchmarks.torch_baseline.__main__ import Point, random_return, rows_of
from benchmarks.torch_baseline.losses import ValueNorm, gae
from benchmarks.torch_baseline.spread import VectorisedSpread
from benchmarks.torch_baseline.trainers import Settings, make_trainer, minibatches, reference
from benchmarks.torch_baseline.workers import SubprocessSpread
from tests.support import mpe2_play, torch_actor_critic, torch_core, torch_mat

ALGORITHMS = ("mat", "mappo", "rmappo", "ippo")


@pytest.fixture(scope="module", params=[3, 5])
def played(request):
    """Episodes of mpe2 itself; every other one begins crowded."""
    return mpe2_play.play(
        "simple_spread", "discrete", {"num_agents": request.param}, 8, seed=3, crowd=0.2
    )


def test_the_vectorised_worlds_are_mpe2s_step_by_step(played):
    assert played.contacts > 10
    first = {k: torch.from_numpy(np.moveaxis(x[0], -1, 0)) for k, x in played.worlds.items()}
    episodes, agents = first["pos"].shape[:2]
    worlds = VectorisedSpread(episodes, agents, seed=0, dtype=torch.float64)
    obs = worlds.place(first["pos"], first["vel"], first["landmarks"])
    np.testing.assert_allclose(obs, np.stack(played.first_obs, 1), atol=1e-9, rtol=0)
    for t, action in enumerate(played.actions):
        step = worlds.step(torch.from_numpy(action))
        seen = step.final_obs if step.truncated else step.obs
        expected = np.stack([own[t] for own in played.obs], 1)
        np.testing.assert_allclose(seen, expected, atol=1e-9, rtol=0)
        np.testing.assert_allclose(step.reward, played.reward[t], atol=1e-9, rtol=0)
        assert step.truncated == played.truncated[t].all() == played.truncated[t].any()
    assert t == 24


def test_a_new_episode_begins_at_rest_within_the_unit_square():
    worlds = VectorisedSpread(200, 3, seed=1)
    worlds.reset()
    for _ in range(25):
        step = worlds.step(torch.full((200, 3), 2))
    assert step.truncated
    assert not step.obs[..., :2].any()
    assert step.final_obs[..., 0].min() > 0  # they had all gone right
    places = torch.cat([worlds.pos, worlds.landmarks])
    assert places.abs().max() <= 1
    assert places.std() == pytest.approx(3**-0.5, abs=0.03)
    assert not worlds.step(torch.zeros(200, 3, dtype=torch.int64)).truncated


def test_worlds_in_other_processes_are_mpe2s_with_the_same_seeds():
    count, seed = 3, 11
    envs = [simple_spread_v3.parallel_env() for _ in range(count)]
    firsts = [list(env.reset(seed=seed + i)[0].values()) for i, env in enumerate(envs)]
    worlds = SubprocessSpread(count, 3, seed, processes=2)
    try:
        np.testing.assert_array_equal(worlds.reset(), firsts)
        rng = np.random.default_rng(0)
        for t in range(30):
            action = rng.integers(5, size=(count, 3))
            step = worlds.step(torch.from_numpy(action))
            seen, reward = [], []
            for env, chosen in zip(envs, action.tolist(), strict=True):
                obs, paid, *_ = env.step(dict(zip(env.agents, chosen, strict=True)))
                seen.append(list(obs.values()))
                reward.append(list(paid.values()))
            np.testing.assert_array_equal(step.reward, np.float32(reward))
            assert step.truncated == (t == 24)
            if step.truncated:
                np.testing.assert_array_equal(step.final_obs, seen)
                seen = [list(env.reset()[0].values()) for env in envs]
            np.testing.assert_array_equal(step.obs, seen)
    finally:
        worlds.close()
    assert all(process.returncode == 0 for process in worlds.processes)


def test_a_lost_process_is_told_and_leaves_none_behind():
    worlds = SubprocessSpread(2, 3, 0, processes=2)
    worlds.processes[0].kill()
    with pytest.raises(RuntimeError, match="has ended"):
        worlds.step(torch.zeros(2, 3, dtype=torch.int64))
    assert all(process.poll() is not None for process in worlds.processes)


@pytest.mark.parametrize("time_limit", ["bootstrap", "terminal", "zero_gae"])
def test_advantages_are_those_of_a_loop(time_limit):
    rng = np.random.default_rng(0)
    reward, value, ahead = rng.normal(size=(3, 9, 4, 2))
    cut = np.zeros(9, bool)
    cut[[3, 8]] = True
    truncated = np.broadcast_to(cut[:, None], (9, 4))
    expected = torch_core.gae_loop(
        reward, value, ahead, np.zeros(reward.shape), 1.0 * truncated, 0.9, 0.8, time_limit
    )
    given = (torch.from_numpy(x) for x in (reward, value, ahead))
    found = gae(*given, cut.tolist(), 0.9, 0.8, time_limit)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def made(algorithm, worlds="vectorised", **options):
    return make_trainer(reference(algorithm, 4, **options), worlds, processes=2)


def finite(metrics):
    return all(np.isfinite(x) for x in metrics.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("length", [25, 10])
def test_the_first_ratio_is_one_and_updates_are_finite(algorithm, length):
    """A rollout shorter than an episode begins in its midst: what was remembered matters."""
    trainer = made(algorithm, rollout_length=length, epochs=2, num_minibatches=2)
    for _ in range(4):
        trainer.rollout()
        with torch.no_grad():
            for part in minibatches(trainer.batch(), 2):
                now = trainer.policy.evaluate(part.obs, part.action, part.memory, part.masks)
                np.testing.assert_allclose(now.log_prob, part.log_prob, atol=2e-6)
                np.testing.assert_allclose(now.value, part.value, atol=2e-6)
        assert finite(trainer.update())
    assert np.isfinite(trainer.evaluate(3))


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_runs_on_mpe2s_own_worlds(algorithm):
    trainer = made(algorithm, "subprocess", epochs=1)
    try:
        before = copy.deepcopy(trainer.policy.state_dict())
        trainer.rollout()
        assert trainer.truncated == [False] * 24 + [True]
        assert finite(trainer.update())
        after = trainer.policy.state_dict()
        assert any(not torch.equal(before[name], after[name]) for name in before)
    finally:
        trainer.close()


def test_the_value_after_the_last_step_is_that_of_the_final_observation():
    """Not of the next episode's first, which stands in the buffer."""
    trainer = made("ippo", rollout_length=25)
    finals, step = [], trainer.worlds.step

    def watched(action):
        done = step(action)
        finals.append(done.final_obs)
        return done

    trainer.worlds.step = watched
    trainer.rollout()
    with torch.no_grad():
        expected = trainer.policy.critic(finals[-1])[0]
        following = trainer.policy.critic(trainer.obs[1:-1])[0]
    np.testing.assert_allclose(trainer.next_value[-1], expected, atol=1e-6)
    np.testing.assert_allclose(trainer.next_value[:-1], following, atol=1e-6)


def rows(batch):
    """As the parity references want them, (B, N, ·)."""
    names = {"return": "target"} | {
        name: name for name in ("obs", "action", "log_prob", "value", "advantage")
    }
    return {name: getattr(batch, own).flatten(0, 1) for name, own in names.items()}


def same_parameters(found, expected):
    for name, x in expected.state_dict().items():
        np.testing.assert_allclose(found.state_dict()[name], x, atol=2e-5, err_msg=name)


@pytest.mark.long
def test_mat_learns_what_the_parity_reference_learns():
    trainer = made("mat", epochs=3)
    model = torch_mat.MultiAgentTransformer(18, 5, 3, 1, 64, 1)
    model.load_state_dict(trainer.policy.state_dict())
    trainer.rollout()
    with torch.no_grad():
        batch = rows(trainer.batch())
    found = trainer.update()
    optimiser = torch.optim.Adam(model.parameters(), lr=7e-4, eps=1e-5)
    history = torch_core.mat_update(
        model,
        optimiser,
        batch,
        3,
        1,
        [range(100)] * 3,
        clip=0.05,
        value_norm=ValueNorm(),
        normalise=False,
    )
    for ours, theirs in {"value_loss": "value", "policy_loss": "policy"}.items():
        expected = np.mean([told[theirs] for told in history])
        assert found[ours] == pytest.approx(expected, rel=1e-3, abs=1e-6)
    same_parameters(trainer.policy, model)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["mappo", "ippo"])
def test_actor_and_critic_learn_what_the_parity_references_learn(algorithm):
    trainer = made(algorithm, epochs=3)
    actor = torch_actor_critic.Actor(18, ("discrete", 5), activation="tanh")
    critic = torch_actor_critic.Critic(54 if algorithm == "mappo" else 18, activation="tanh")
    actor.load_state_dict(trainer.policy.actor.state_dict())
    critic.load_state_dict(trainer.policy.critic.state_dict())
    trainer.rollout()
    with torch.no_grad():
        batch = rows(trainer.batch())
    seen = batch["obs"]
    joint = seen.flatten(1).unsqueeze(1).expand(-1, 3, -1)
    batch |= {
        "critic_in": joint if algorithm == "mappo" else seen,
        "active": torch.ones(100, 3, 1),
    }
    trainer.update()
    adams = [torch.optim.Adam(net.parameters(), lr=7e-4, eps=1e-5) for net in (actor, critic)]
    norm = ValueNorm()
    for _ in range(3):
        torch_actor_critic.onpolicy_update(
            actor, critic, *adams, batch, 0.2, 1.0, 0.01, 10.0, 10.0, True, norm
        )
    same_parameters(trainer.policy.actor, actor)
    same_parameters(trainer.policy.critic, critic)


def test_worlds_that_cannot_be_shared_out_are_refused():
    with pytest.raises(ValueError, match="does not divide"):
        Settings("mat", num_envs=5, num_minibatches=2)


def test_all_settings_of_the_references_are_settings():
    for algorithm, envs in itertools.product(ALGORITHMS, (1, 128)):
        assert reference(algorithm, envs, lr=1e-3).lr == 1e-3
    assert reference("mat", 1).clip_eps == 0.05
    assert reference("mappo", 1).activation == "tanh"


def test_curves_become_rows_of_the_one_form():
    points = [Point(0, 0.0, -75.0), Point(3200, 1.5, -60.0)]
    rows = rows_of({"mat": points}, random=-80.0)
    assert rows[0] == Row("random", "torch_vectorised", "return_mean", -80.0)
    assert rows[3:] == [
        Row("mat/3200", "torch_vectorised", "return_mean", -60.0),
        Row("mat/3200", "torch_vectorised", "cpu_seconds", 1.5),
    ]


def test_random_play_scores_as_it_is_known_to():
    """4,000 episodes of numpy gave -79.2."""
    torch.manual_seed(0)
    assert random_return(num_agents=3, episodes=2000) == pytest.approx(-79.2, abs=2)
