"""Tests that need eight devices. `test_devices.py` runs this file in a process that has them."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import matrix
from benchmarks.collectives import collectives
from jmarl.algorithms.build import make_trainer
from jmarl.commands import sweep
from jmarl.config.train_config import build
from jmarl.errors import ConfigError
from jmarl.execution.compilation import jitted_init, jitted_step
from jmarl.execution.sharding import (
    DATA_AXIS,
    MEMBER_AXIS,
    chosen_devices,
    make_mesh,
    places,
    replicated,
    spread,
    state_sharding,
)
from jmarl.execution.train_function import make_train
from jmarl.learning.collectives import Layout
from jmarl.learning.episodes import play_episodes
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.runs.files import read_lines
from jmarl.runs.in_memory import train

MEMBERS, UPDATES = 8, 3
SCALARS = 24  # sums that a gradient step may take besides its gradient

# Episodes of four steps: worlds end and begin within every rollout.
SMALL = matrix.TINY | {"num_envs": 32, "total_updates": 9, "env_options": {"episode_length": 4}}
LEARNED = {"epochs": 2, "num_minibatches": 2}
CASES = {
    "mappo": {"ppo": LEARNED | {"value_norm": "popart", "advantage_norm": "minibatch"}},
    "rmappo": {"rollout_length": 6, "ppo": LEARNED | {"chunk_length": 3}},
    "mat_decoder": {"net": {"n_embd": 8, "agent_order": "random"}, "ppo": LEARNED},
    "ppo": {
        "env": "mpe/simple",
        "actions": "continuous",
        "ppo": {"epochs": 4, "num_minibatches": 2, "shuffle": "rows", "lr": 0.02},
    },
}


@pytest.fixture(scope="module", autouse=True)
def precise():
    """Double precision. jax's check for reused keys takes a scan under `vmap` for a second use."""
    with jax.enable_x64(True), jax.debug_key_reuse(False):
        yield


def trainer_of(algorithm, shards):
    trainer, hyper = make_trainer(build(SMALL | {"algorithm": algorithm} | CASES[algorithm]))
    return dataclasses.replace(trainer, layout=Layout(shards)), hyper


def stepped(trainer, mesh, state, hyper, batched=False):
    """State and metrics after some updates on the mesh's devices, and what these said."""
    at = places(trainer, hyper, mesh, batched)
    step = jitted_step(trainer, MEMBERS if batched else 1, at)
    state = jax.device_put(copied(state), at.state)  # a step donates its buffers
    program = step.lower(state, hyper).compile()
    hyper = jax.device_put(hyper, at.hyper)
    for _ in range(UPDATES):
        state, metrics = program(state, hyper)
    kept = jax.tree.map(lambda x, at: x.sharding.is_equivalent_to(at, x.ndim), state, at.state)
    assert all(jax.tree.leaves(kept))
    return state, metrics, collectives(program.as_text())


def on_one_device(trainer, state, hyper, batched=False):
    """The same, as one shard."""
    trainer = dataclasses.replace(trainer, layout=Layout())
    step = jax.jit((VmappedTrainer(trainer) if batched else trainer).step_alike)
    for _ in range(UPDATES):
        state, metrics = step(state, hyper)
    return state, metrics


def begun(trainer):
    return jax.jit(trainer.init)(jax.random.key(3))


@pytest.fixture(scope="module")
def vmapped(precise):
    """Eight members of different seeds and learning rates."""
    trainer, hyper = trainer_of("mappo", 1)
    hyper = hyper._replace(lr=jnp.linspace(1e-3, 1e-2, MEMBERS))
    keys = jax.random.split(jax.random.key(5), MEMBERS)
    return trainer, hyper, jax.jit(VmappedTrainer(trainer).init)(keys)


@jax.jit
def copied(tree):
    return jax.tree.map(jnp.copy, tree)


def numbers(tree):
    def plain(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return jax.tree.map(lambda x: np.asarray(plain(x), np.float64), tree)


def assert_alike(ours, theirs):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10),
        numbers(ours),
        numbers(theirs),
    )


def size(tree):
    """In bytes."""
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def assert_only_gradients_are_summed(said, params):
    """In loops only sums, once per minibatch of an epoch: of gradients and a few scalars."""
    inner = [one for one in said if one.loops]
    assert {(one.kind, one.loops) for one in inner} == {("all-reduce", (2, 2))}
    assert sum(one.size for one in inner) <= size(params) + SCALARS * 8 * MEMBERS
    return [one for one in said if not one.loops]


@pytest.mark.parametrize(
    ("algorithm", "count"), [("mappo", 4), ("rmappo", 8), ("mat_decoder", 2), ("ppo", 2)]
)
def test_worlds_on_several_devices_learn_what_they_do_on_one(algorithm, count):
    trainer, hyper = trainer_of(algorithm, count)
    state = begun(trainer)
    ours, metrics, said = stepped(trainer, make_mesh(jax.devices()[:count]), state, hyper)
    assert_alike((ours, metrics), on_one_device(trainer, state, hyper))
    assert ours.timestep.obs.addressable_shards[0].data.shape[0] == trainer.num_envs // count
    assert ours.update == UPDATES
    if algorithm == "ppo":
        assert 1 <= metrics["losses/epochs"] < trainer.learners[0].epochs  # the KL has stopped it
    else:
        before = assert_only_gradients_are_summed(said, [p.params for p in state.policies])
        assert {one.kind for one in before} == {"all-reduce"}
        assert max(one.size for one in before) <= SCALARS * 8


def test_worlds_of_different_devices_go_different_ways():
    """Two halves that begin alike do not stay alike."""
    trainer, hyper = trainer_of("mappo", 2)
    halves = dataclasses.replace(trainer, num_envs=trainer.num_envs // 2)
    half, whole = begun(halves), begun(trainer)
    places = state_sharding(trainer, make_mesh(jax.devices()[:2]))

    def twice(at, x, like):
        if DATA_AXIS not in at.spec:
            return like
        return jnp.concatenate([x, x], axis=at.spec.index(DATA_AXIS))

    state = jax.tree.map(twice, places, half, whole)
    ours, _, _ = stepped(trainer, make_mesh(jax.devices()[:2]), state, hyper)
    first, second = np.split(np.asarray(ours.timestep.obs), 2)
    assert not np.isclose(first, second).all((1, 2)).any()


@pytest.mark.parametrize("rows", [8, 2])
def test_members_and_worlds_on_several_devices_learn_what_they_do_on_one(rows, vmapped):
    trainer, hyper, states = vmapped
    mesh = make_mesh(jax.devices(), rows)
    assert dict(mesh.shape) == {MEMBER_AXIS: rows, DATA_AXIS: 8 // rows}
    trainer = dataclasses.replace(trainer, layout=Layout(8 // rows))
    ours, metrics, said = stepped(trainer, mesh, states, hyper, batched=True)
    assert_alike((ours, metrics), on_one_device(trainer, states, hyper, batched=True))
    assert ours.timestep.obs.addressable_shards[0].data.shape[:2] == (MEMBERS // rows, 4 * rows)
    assert ours.env.step.shape == ()
    assert all(x.is_fully_replicated for x in metrics.values())
    if rows == 8:
        assert not [one for one in said if one.loops]
        assert max(one.size for one in said) == MEMBERS * 8  # metrics, for every host to read
    else:
        assert_only_gradients_are_summed(said, [p.params for p in states.policies])


def test_a_run_begins_alike_wherever_it_lies():
    trainer, hyper = trainer_of("mappo", 8)
    at = places(trainer, hyper, make_mesh(jax.devices()), batched=False)
    assert_alike(jitted_init(trainer, 1, at)(jax.random.key(3)), begun(trainer))


def test_episodes_are_scored_side_by_side():
    trainer, _ = trainer_of("mappo", 8)
    state, mesh = begun(trainer), make_mesh(jax.devices())

    def score(params, place):
        key = jax.random.key(1)
        return play_episodes(trainer.env, trainer.players, params, key, 16, False, place=place)

    everywhere = replicated(mesh)
    params = jax.device_put(state.policies, everywhere)
    share = spread(trainer.env, mesh)
    spread_out = jax.jit(lambda p: score(p, share), out_shardings=everywhere)
    program = spread_out.lower(params).compile()
    assert_alike(program(params), jax.jit(lambda p: score(p, lambda x: x))(state.policies))
    text = program.as_text()
    assert not [one for one in collectives(text) if one.loops]
    assert "[16,3,18]" not in text  # no device sees all worlds' observations
    assert "[2,3,18]" in text


@pytest.mark.parametrize(
    ("members", "count", "shape"),
    [
        (1, 8, (1, 8)),
        (8, 8, (8, 1)),
        (2, 8, (2, 4)),
        (6, 4, (2, 2)),
        (3, 8, (1, 8)),
        (5, 1, (1, 1)),
    ],
)
def test_devices_go_to_members_first(members, count, shape):
    mesh = make_mesh(jax.devices()[:count], members)
    assert tuple(mesh.shape.items()) == ((MEMBER_AXIS, shape[0]), (DATA_AXIS, shape[1]))
    assert list(mesh.devices.flat) == jax.devices()[:count]


def test_seeds_shared_out_over_devices_are_those_of_one():
    """As a user asks for it: training, evaluation, the best at the end."""
    asked = {"algorithm": "ippo", "seeds": 2, "members_per_batch": 2, "total_updates": 2}
    config = build(SMALL | asked | {"compilation_cache": False, "eval_episodes": 4})
    runs = [train(config.model_copy(update={"devices": count})) for count in (1, 2)]
    told = [list(run.recorder.entries("evaluation")) for run in runs]
    for one, two in zip(*told, strict=True):
        assert one.keys() == two.keys()
        for name in one.keys() - {"seconds"}:
            np.testing.assert_allclose(one[name], two[name], rtol=1e-10)


def test_a_sweep_shared_out_over_devices_is_that_of_one(called, tmp_path):
    """Two learning rates, in batches of one: both devices share the worlds of each. In single
    precision, because one device trains them in threads, which do not see `enable_x64`."""
    base = "algorithm=ippo num_envs=16 rollout_length=4 total_updates=3 log_every=1 eval_episodes=4"
    small = "net.hidden=[8] ppo.num_minibatches=2 ppo.epochs=1 tensorboard=false"
    options = ["--base", *base.split(), *small.split(), "--grid", "lr=1e-3,1e-2", "--no-plots"]
    for count in (1, 2):
        path = tmp_path / str(count)
        with jax.enable_x64(False):
            code, said = called(sweep, *options, "--devices", count, "--sweep-dir", path, "--quiet")
        assert code == 0, said
        made_with = json.loads((path / "group_0" / "versions.json").read_text(encoding="utf-8"))
        assert made_with["devices"] == count
    compared = 0
    for one in tmp_path.glob("1/*/metrics.jsonl"):
        two = tmp_path / "2" / one.relative_to(tmp_path / "1")
        for ours, theirs in zip(read_lines(one), read_lines(two), strict=True):
            for name in (name for name in ours if name.startswith(("losses/", "train/"))):
                pair = (np.array(line[name], float) for line in (ours, theirs))  # None is NaN
                np.testing.assert_allclose(*pair, atol=1e-5)
                compared += 1
    assert compared > 30


def test_a_vmapped_train_function_shares_its_runs_out_over_devices():
    """Three runs on two devices, and a run whose worlds two devices share."""
    asked = {"algorithm": "ippo", "total_updates": 2, "ppo": LEARNED}
    config = build(SMALL | asked)
    keys = jax.random.split(jax.random.key(5), 3)
    told = []
    for count in (1, 2):
        vmapped = make_train(config.model_copy(update={"devices": count}))
        compiled = jax.jit(jax.vmap(vmapped)).lower(keys).compile()
        assert len(jax.tree.leaves(compiled(keys))[0].sharding.device_set) == count
        told.append(compiled(keys))
    assert_alike(*told)
    shared = jax.jit(make_train(config.model_copy(update={"devices": 2})))
    assert "all-reduce" in shared.lower(keys[0]).compile().as_text()
    assert_alike(shared(keys[0]), jax.tree.map(lambda x: x[0], told[0]))


@pytest.mark.parametrize(
    ("asked", "members", "worlds", "taken"),
    [(None, 1, 32, 8), (None, 1, 12, 6), (4, 1, 32, 4), (None, 8, 2, 8), (None, 3, 32, 8)],
)
def test_as_many_devices_are_taken_as_share_the_work_evenly(asked, members, worlds, taken):
    assert len(chosen_devices(sharing(asked, worlds), members, members)) == taken


@pytest.mark.parametrize(
    ("asked", "worlds", "words"),
    [
        (9, 32, "more than the 8 that jax has created"),
        (8, 12, "cannot be shared out evenly over 8"),
    ],
)
def test_devices_that_cannot_share_the_work_are_refused(asked, worlds, words):
    with pytest.raises(ConfigError, match=words):
        chosen_devices(sharing(asked, worlds), 1, 1)


def sharing(devices, num_envs):
    return build({"num_envs": num_envs, "devices": devices, "ppo": {"num_minibatches": 2}})
