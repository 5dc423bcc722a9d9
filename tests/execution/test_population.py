"""A crew: who trains beside whom does not matter, and what moves is what should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.execution.members import Members
from jmarl.execution.population import Population

SEEDS = (7, 3, 5)
LR = np.array([1e-3, 5e-3, 2e-2])


pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unwatched")]


@pytest.fixture(scope="module")
def trained(unwatched):
    """The same three members, trained one after the other and two at a time (the second batch is
    filled up)."""
    ppo = matrix.TINY["ppo"] | {"normalise_obs": True, "normalise_reward": True}
    chosen = {"algorithm": "ippo", "total_updates": 9, "ppo": ppo}
    trainer, hyper = make_trainer(build(matrix.TINY | chosen))
    made = {}
    for per_batch in (1, 2):
        members = Members.alike(SEEDS, hyper)
        members = members._replace(hyper=members.hyper._replace(lr=LR))
        population = Population(trainer, members, episodes=4, per_batch=per_batch)
        population.compile()
        population.init()
        metrics = population.read(population.advance(3))
        made[per_batch] = (population, metrics, population.states())
    return made


@pytest.fixture
def crews(trained):
    """As they were trained, whatever another test has done with them."""
    for population, _, states in trained.values():
        population.restore(states, np.arange(3), None)
    return trained


def same(one, other, atol=2e-5):
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if not jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(ours, theirs, atol=atol)


def test_members_learn_the_same_in_batches_of_any_size(crews):
    (_, alone, states), (_, paired, others) = crews[1], crews[2]
    same(states.policies, others.policies)
    assert alone.keys() == paired.keys()
    for name, values in alone.items():
        assert values.shape == (3, 3)  # updates, members
        np.testing.assert_allclose(values, paired[name], rtol=1e-3, atol=1e-4)


def test_members_differ(crews):
    _, metrics, states = crews[2]
    np.testing.assert_allclose(metrics["charts/learning_rate"][0], LR, rtol=1e-6)
    leaf = np.asarray(jax.tree.leaves(states.policies[0].params)[0]).reshape(3, -1)
    assert np.abs(np.diff(leaf, axis=0)).max(1).min() > 1e-3


def test_scores_do_not_depend_on_the_batch(crews):
    seen = {
        size: population.play(population.parameters(), greedy=True)
        for size, (population, *_) in crews.items()
    }
    assert seen[1].agent_return.shape[:2] == (3, 4)
    np.testing.assert_allclose(seen[1].agent_return, seen[2].agent_return, rtol=1e-3)
    others = crews[2][0].play(crews[2][0].parameters(), greedy=True, fold=1)
    assert np.abs(others.agent_return - seen[2].agent_return).min() > 0
    third = crews[2][0].play(crews[2][0].parameters(), greedy=True, fold=2)
    assert np.abs(third.agent_return - others.agent_return).min() > 0


@pytest.mark.parametrize("per_batch", [1, 2])
def test_the_best_are_kept_member_by_member(crews, per_batch):
    population, _, states = crews[per_batch]
    population.keep_best(np.array([1.0, 5.0, np.nan]), 3, population.parameters())
    doubled = jax.tree.map(lambda x: 2 * x, population.parameters())
    population.keep_best(np.array([2.0, 5.0, -9.0]), 6, doubled)  # of equals the first
    assert population.best.score.tolist() == [2.0, 5.0, -9.0]
    assert population.best.update.tolist() == [6, 3, 6]
    for member, factor in ((0, 2), (1, 1), (2, 2)):
        mine = jax.tree.map(lambda x, m=member, f=factor: f * x[m], states.policies)
        same(population.best.of(member), mine, atol=0)


@pytest.mark.parametrize("per_batch", [1, 2])
def test_survivors_take_the_places_of_the_others(crews, per_batch):
    population, _, states = crews[per_batch]
    population.keep([2, 0])
    assert population.active.tolist() == [0, 2]
    assert len(population.batches) == (2 if per_batch == 1 else 1)
    after = population.states()
    for place, member in enumerate((0, 2)):
        same(population.vmapped.take(after, place), population.vmapped.take(states, member), atol=0)
    metrics = population.read(population.advance(1))
    np.testing.assert_allclose(
        metrics["charts/learning_rate"][0], LR[[0, 2]] * (1 - 3 / 9), rtol=1e-5
    )


@pytest.mark.parametrize("per_batch", [1, 2])
def test_who_is_left_goes_on_and_is_played_with_its_own_best(crews, per_batch):
    population, _, states = crews[per_batch]
    population.keep_best(np.arange(3.0), 3, population.parameters())
    population.keep([1, 2])
    best = [population._grown(given) for given in population.best_parameters()]
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *best)
    same(joined, jax.tree.map(lambda x: x[1:], states.policies), atol=0)
    population.keep([1])  # the first of two places
    assert population.active.tolist() == [1]
    kept = jax.tree.map(lambda x: x[1:2], states.policies)
    same(population.states().policies, kept, atol=0)


@pytest.mark.parametrize("per_batch", [1, 2])
def test_a_copy_learns_on_in_its_own_worlds(crews, per_batch):
    population, _, states = crews[per_batch]
    population.copy(np.array([0, 0, 2]))
    after = population.states()
    (was,), (now,) = states.learners, after.learners
    learned = [
        (s.policies, k.opt_state, k.value_norm, k.reward_scale.moments)
        for s, k in ((states, was), (after, now))
    ]
    same(learned[1], jax.tree.map(lambda x: x[jnp.array([0, 0, 2])], learned[0]), atol=0)
    same(after.timestep, states.timestep, atol=0)
    running = was.reward_scale.running
    assert np.abs(running[1] - running[0]).max() > 0.1
    same(now.reward_scale.running, running, atol=0)  # it is about a member's own worlds
    assert (jax.random.key_data(after.key) == jax.random.key_data(states.key)).all()


def test_a_batch_that_needs_too_much_memory_is_compiled_smaller(crews):
    population = crews[2][0]
    needed = population.programs.step_bytes
    assert needed > 0
    members = Members(SEEDS[:2], jax.tree.map(lambda x: x[:2], population.hyper))
    tight = Population(
        population.trainer, members, episodes=4, per_batch=2, limit=int(0.6 * needed)
    )
    tight.compile()
    assert tight.per_batch == 1
    assert tight.programs.step_bytes <= 0.6 * needed
