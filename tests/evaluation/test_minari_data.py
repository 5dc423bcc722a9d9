"""Recorded episodes as Minari reads them."""

import jax
import numpy as np
import pytest

from jmarl.commands import evaluate
from jmarl.errors import RunError
from jmarl.evaluation.episode_arrays import record_episodes
from jmarl.evaluation.minari_data import write_minari
from tests.support.tiny_runs import configured, go, policy_in

minari = pytest.importorskip("minari", reason="the extra 'minari' is not installed")
pytest.importorskip("h5py", reason="the extra 'minari' is not installed")


@pytest.fixture(autouse=True)
def _own_data_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("mpe/simple_spread", {"env_options": {"episode_length": 4}}),
        ("mpe/simple_spread", {"env_options": {"episode_length": 4}, "actions": "continuous"}),
        ("mpe/simple_speaker_listener", {"env_options": {"episode_length": 4}}),
        ("mpe/simple_reference", {"env_options": {"episode_length": 4}}),
        ("probe/death", {}),
    ],
    ids=["discrete", "continuous", "unlike", "multidiscrete", "deaths"],
)
def test_a_data_set_holds_what_was_recorded(env, options):
    policy = policy_in(env, **options)
    spec = policy.spec
    played = record_episodes(policy, jax.random.key(3), 3, greedy=False)
    write_minari("jmarl/tests-v0", spec, played, "ippo")
    data = minari.load_dataset("jmarl/tests-v0")
    assert (data.total_episodes, data.total_steps) == (3, played.length.sum())
    for e, episode in enumerate(data.iterate_episodes()):
        steps = played.length[e]
        for i, (agent, size) in enumerate(zip(spec.agents, spec.obs_sizes, strict=True)):
            seen, chosen = episode.observations[agent], episode.actions[agent]
            np.testing.assert_array_equal(seen, played.obs[e, : steps + 1, i, :size])
            np.testing.assert_array_equal(chosen, played.action[e, :steps, i])
            assert all(map(data.spec.observation_space[agent].contains, seen))
            assert all(map(data.spec.action_space[agent].contains, chosen))
            own = played.reward[e, :steps, i]
            np.testing.assert_array_equal(episode.infos["reward"][agent], own)
        np.testing.assert_allclose(episode.rewards, played.reward[e, :steps].sum(1), rtol=1e-6)
        np.testing.assert_array_equal(episode.truncations, played.truncated[e, :steps])
        np.testing.assert_array_equal(episode.terminations, played.terminated[e, :steps].all(1))
        assert episode.truncations[-1] or episode.terminations[-1]
    with pytest.raises(RunError, match=r"'jmarl/tests-v0' cannot be written: .* already exists"):
        write_minari("jmarl/tests-v0", spec, played, "ippo")


def test_the_command_writes_a_data_set_beside_the_arrays(tmp_path, called):
    run = tmp_path / "run"
    go(configured(run, total_updates=1, env_options={"episode_length": 5}))
    asked = (evaluate, run, "--episodes", 2, "--record", 3, "--minari", "jmarl/spread-v0")
    code, said = called(*asked)
    assert (code, "3 episodes: jmarl/spread-v0" in said, "code_permalink" in said) == (0, True, 0)
    data = minari.load_dataset("jmarl/spread-v0")
    with np.load(run / "episodes.npz") as arrays:
        for e, episode in enumerate(data.iterate_episodes()):
            np.testing.assert_allclose(episode.rewards, arrays["reward"][e].sum(1), rtol=1e-6)
    code, said = called(*asked)
    assert (code, "exists already" in said) == (2, True)
    code, said = called(*asked[:-1], "x y")
    assert (code, "is not a name of a data set" in said) == (2, True)


@pytest.mark.long
def test_opponents_are_refused_before_anything_is_played(tmp_path, called):
    run = tmp_path / "run"
    go(configured(run, total_updates=1, env="mpe/simple_push"))
    code, said = called(evaluate, run, "--record", 3, "--minari", "jmarl/push-v0")
    assert (code, "are opponents in mpe/simple_push" in said) == (2, True)
    assert "return_mean" not in said
