"""Runs on several devices are the runs that they would be on one."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from benchmarks import matrix
from benchmarks.collectives import Collective, collectives
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.envs.spaces import Discrete
from jmarl.errors import ConfigError
from jmarl.execution.sharding import DATA_AXIS, MEMBER_AXIS, make_mesh, state_sharding
from jmarl.learning.collectives import Layout, all_sum, local_sum
from jmarl.learning.minibatches import Batch
from jmarl.learning.running_statistics import ValueNorm
from jmarl.networks.torso import Shape
from jmarl.types import PolicyInput
from tests.support.parts import actor_critic
from tests.support.parts import hyper as hyper_params
from tests.support.parts import objective as make_objective

HERE = Path(__file__).parents[1] / "support"
T, E, SHARDS = 4, 12, 3
WIDTHS = {"actor": 2, "critic": 1}  # rows per world that each net remembers


@pytest.mark.long
def test_on_eight_devices():
    """jax counts its devices once per process, and other tests want one."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", str(HERE / "many_devices.py")]
    done = subprocess.run(
        command,
        cwd=HERE.parent,
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_loss_and_gradient_are_of_all_shards(x64):
    """A memory that begins anew in the middle, agents that are out: means are over all that act."""
    policy = actor_critic((3, 3), 6, Discrete(4), Shape(hidden=(5,), recurrent=True))
    keys = iter(jax.random.split(jax.random.key(0), 9))
    number = jax.random.normal(next(keys), (5, T, E, 2))
    seen = PolicyInput(
        obs=jax.random.normal(next(keys), (T, E, 2, 3)),
        state=jax.random.normal(next(keys), (T, E, 6)),
        action_mask=jnp.ones((T, E, 2, 4), bool),
        episode_start=jax.random.bernoulli(next(keys), 0.3, (T, E)).astype(float),
    )
    start = {part: jax.random.normal(next(keys), (1, E, n, 1, 5)) for part, n in WIDTHS.items()}
    batch = Batch(
        seen=seen,
        start=start,
        context=None,
        action=jax.random.randint(next(keys), (T, E, 2), 0, 4),
        log_prob=number[0, ..., None] - 1.0,
        value=number[1],
        advantage=number[2],
        target=number[3],
        active=(number[4] > 0).astype(float),
    )
    objective, hyper = make_objective(advantage_norm="minibatch"), hyper_params()
    params, norm = jax.jit(policy.init)(next(keys)), ValueNorm.create()

    def gradient(batch, reduce):
        minibatch_stats = objective.minibatch_stats(batch, reduce)
        _, known = objective.prepare(policy, params, norm, minibatch_stats)
        loss = partial(objective.loss, policy, hyper)
        return reduce(jax.grad(loss, has_aux=True)(params, known, batch, minibatch_stats)), known

    apart = jax.tree.map(lambda x: x.reshape(len(x), SHARDS, -1, *x.shape[2:]), batch)
    shared = jax.vmap(partial(gradient, reduce=all_sum), 1, None, axis_name=DATA_AXIS)
    whole, parts = jax.jit(partial(gradient, reduce=local_sum))(batch), jax.jit(shared)(apart)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), whole, parts)


def test_worlds_have_the_same_numbers_however_many_shards_there_are():
    shared = jax.vmap(lambda _: Layout(SHARDS).world_numbers(E // SHARDS), axis_name=DATA_AXIS)
    np.testing.assert_array_equal(Layout().world_numbers(E), np.arange(E))
    np.testing.assert_array_equal(shared(jnp.zeros(SHARDS)).ravel(), np.arange(E))


@pytest.mark.parametrize(("env", "axis"), [("probe/observation", 0), ("mpe/simple_tag", -1)])
@pytest.mark.parametrize("batched", [False, True])
def test_worlds_are_shared_out_wherever_their_axis_lies(env, axis, batched):
    trainer, _ = make_trainer(build(matrix.TINY | {"algorithm": "rippo", "env": env}))
    places = state_sharding(trainer, make_mesh(jax.devices()[:1]), batched)
    members = (MEMBER_AXIS,) * batched
    assert places.key.spec == PartitionSpec(*members)
    assert places.timestep.obs.spec == PartitionSpec(*members, DATA_AXIS, None, None)
    assert places.memory[0]["actor"].spec == PartitionSpec(*members, DATA_AXIS, None, None, None)
    shared = [place.spec for place in jax.tree.leaves(places.env) if DATA_AXIS in place.spec]
    assert shared
    assert {tuple(spec)[len(members) :][axis] for spec in shared} == {DATA_AXIS}
    assert all(tuple(spec)[: len(members)] == members for spec in shared)
    learned = jax.tree.leaves((places.policies, places.learners))
    assert {tuple(name for name in place.spec if name) for place in learned} == {members}


def test_steps_of_particle_worlds_are_counted_once_for_all_members():
    trainer, _ = make_trainer(build(matrix.TINY | {"algorithm": "ippo"}))
    places = state_sharding(trainer, make_mesh(jax.devices()[:1]), batched=True)
    assert places.env.step.spec == PartitionSpec()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((12, 8, 1, "rows"), ["num_envs=12", "8 devices", "multiple of 8"]),
        ((24, 8, 2, "blocks"), ["num_envs = 24", "3 for each", "num_minibatches=2", "of 16"]),
        ((24, 8, 2, "none"), ["num_minibatches=2"]),
        ((2, 2, 2, "rows"), ["num_envs × rollout_length = 50", "25 for each", "multiple of 4"]),
        ((12, 8, 2, "blocks", 5), ["num_envs=12", "8 devices"]),
    ],
)
def test_worlds_that_do_not_go_evenly_are_refused(given, words):
    config, shards = divided(*given)
    with pytest.raises(ConfigError) as refused:
        config.check_shards(shards)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    "given",
    [(24, 8, 5, "rows"), (32, 8, 4, "blocks"), (7, 1, 7, "blocks"), (4, 2, 10, "blocks", 5)],
)
def test_worlds_that_go_evenly_are_not(given):
    config, shards = divided(*given)
    config.check_shards(shards)


def divided(num_envs, shards, minibatches, shuffle, chunk_length=None):
    """Rollouts of 25 steps."""
    ppo = {"num_minibatches": minibatches, "shuffle": shuffle}
    ppo |= {"chunk_length": chunk_length} if chunk_length else {}
    algorithm = "rmappo" if chunk_length else "mappo"
    return build({"algorithm": algorithm, "num_envs": num_envs, "ppo": ppo}), shards


def test_collectives_are_read_with_the_loops_around_them():
    text = """\
HloModule jit_step

%turn.1 (x: (s32[], f32[4])) -> (s32[], f32[4]) {
  %sum.1 = (f32[4]{0}, f64[]) all-reduce(%a, %b), replica_groups={}, to_apply=%add
  ROOT %out = (s32[], f32[4]{0}) tuple(%i, %c)
}

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main.1 (x: f32[4]) -> f32[8] {
  %w = (s32[], f32[4]{0}) while(%t), condition=%until, body=%turn.1, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %all = f32[8]{0} all-gather(%y), dimensions={0}
}
"""  # noqa: E501
    found = collectives(text)
    assert found == [Collective("all-reduce", 24, (5,)), Collective("all-gather", 32, ())]
    assert [one.times for one in found] == [5, 1]
