"""Which actions are drawn: at the edges of float32, how often, and how they are scored."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from jmarl.envs.spaces import Discrete, MultiDiscrete
from jmarl.policies.action_distributions import make_actions
from tests.support.optimised import optimised

N = 5
LARGEST = float(np.nextafter(np.float32(1), np.float32(0)))
SMALLEST = float(np.finfo(np.float32).smallest_normal)
noises = st.sampled_from([0.0, SMALLEST, LARGEST]) | st.floats(0, LARGEST, width=32)
logits_of_all = st.lists(st.floats(-300, 300, width=32), min_size=N, max_size=N)
masks = st.lists(st.booleans(), min_size=N, max_size=N)


@jax.jit
def draw(noise, logits, mask):
    return make_actions(Discrete(N)).sample(noise, logits, jnp.ones(()), mask)


def sample_index(noise, logits, mask):
    given = (np.float32([[noise]]), np.float32([logits]), np.array([mask]))
    return int(draw(*given)[0])


@settings(deadline=None, max_examples=300)
@example(0.0, [0.0] * N, [False, True, True, True, True])
@example(0.0, [0.0] * N, [False, False, False, False, True])
@example(0.0, [-300.0, 0.0, 0.0, 0.0, 0.0], [True] * N)
@example(LARGEST, [0.0, 0.3, 0.0, 0.0, 0.0], [True, True, True, False, False])
@example(LARGEST, [0.0, 0.0, 0.0, 0.0, -300.0], [True] * N)
@given(noises, logits_of_all, masks)
def test_what_is_illegal_or_has_no_probability_is_never_drawn(noise, logits, mask):
    assume(any(mask))
    chosen = sample_index(noise, logits, mask)
    assert 0 <= chosen < N
    assert mask[chosen]
    legal = np.where(mask, np.float64(logits), -np.inf)
    p = np.exp(legal - legal.max())
    p /= p.sum()
    assert p[chosen] > 2.0**-26  # float32 noise comes in steps of 2⁻²³


@pytest.mark.parametrize("noise", [0.0, 1e-9, LARGEST])
def test_the_edges_of_the_noise_draw_the_outermost_likely_actions(noise):
    """p = (e⁻⁴⁰, ½, ½, e⁻⁴⁰, 0): what is next to impossible is not drawn by noise of 0 or of 1 - ε,
    which come up once in 2²³ draws."""
    chosen = sample_index(noise, [-40.0, 0.0, 0.0, -40.0, 0.0], [True, True, True, True, False])
    assert chosen == (2 if noise == LARGEST else 1)


@pytest.mark.parametrize("noise", [0.0, LARGEST])
def test_every_head_is_drawn_within_its_legal_choices(noise):
    actions = make_actions(MultiDiscrete((3, 2)))
    mask = np.array([[False, True, False, False, True]])
    given = (np.full((1, 2), noise, np.float32), jnp.zeros((1, 5)), jnp.ones(()), mask)
    assert actions.sample(*given).tolist() == [[1, 1]]


def test_the_noise_decides_by_cumulated_probabilities():
    """p = (0.2, 0.3, 0.5): the edges are 0.2 and 0.5."""
    actions = make_actions(Discrete(3))
    noise = np.float32([0.0, 0.19, 0.21, 0.49, 0.51, 0.999])[:, None]
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.2, 0.3, 0.5])), (6, 3))
    assert actions.sample(noise, logits, jnp.ones(()), None).tolist() == [0, 0, 1, 1, 2, 2]


# -- against Distrax -------------------------------------------------------------------------------

SPACES = {
    "plain": Discrete(N),
    "masked": Discrete(N),
    "factored": MultiDiscrete((3, 2, 4)),
    "extreme": Discrete(N),
}
ROWS = 200


def rows(name):
    """Space, logits and mask `[R, A]`; of every choice the first entry is legal."""
    space, rng = SPACES[name], np.random.default_rng(0)
    logits = rng.normal(0, 100 if name == "extreme" else 2, (ROWS, space.size))
    mask = rng.random(logits.shape) > 0.5
    mask[:, np.cumsum(space.heads) - np.array(space.heads)] = True
    return space, jnp.asarray(logits), jnp.asarray(mask) if name != "plain" else None


def of_distrax(space, logits, mask):
    """One distribution per choice."""
    legal = logits if mask is None else jnp.where(mask, logits, -1e10)
    parts = jnp.split(legal, np.cumsum(space.heads)[:-1], axis=-1)
    return [distrax.Categorical(logits=part) for part in parts]


@pytest.mark.parametrize("name", SPACES)
def test_scores_modes_and_gradients_equal_distrax(name, x64, foreign):
    space, logits, mask = rows(name)
    actions, scale = make_actions(space), jnp.ones(())
    modes = np.stack([model.mode() for model in of_distrax(space, logits, mask)], -1)
    found = actions.mode(logits, scale, mask)
    np.testing.assert_array_equal(found.reshape(ROWS, -1), modes)
    rng = np.random.default_rng(1)
    noise, weights = rng.random((ROWS, len(space.heads))), rng.normal(size=(2, *modes.shape))
    action = actions.sample(jnp.asarray(noise), logits, scale, mask)
    chosen = action.reshape(ROWS, -1)

    def theirs(logits):
        models = of_distrax(space, logits, mask)
        log_prob = [model.log_prob(chosen[:, k]) for k, model in enumerate(models)]
        entropy = [model.entropy() for model in models]
        return jnp.stack([jnp.stack(log_prob, -1), jnp.stack(entropy, -1)])

    def ours(logits):
        return jnp.stack(actions.evaluate(logits, scale, mask, action))

    (value, slope), (expected, expected_slope) = (
        optimised(lambda z, f=f: (f(z), jax.grad(lambda z: (f(z) * weights).sum())(z)), logits)
        for f in (ours, theirs)
    )
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, expected_slope, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        actions.log_prob(logits, scale, mask, action), expected[0], rtol=1e-12, atol=1e-12
    )


# -- frequencies -----------------------------------------------------------------------------------

DRAWS = 2**21
LIKELY = 1e-3  # a chi-square that right samplers exceed once in 1,000 keys; keys are fixed
FREQUENCIES = {  # space, logits, mask
    "plain": (Discrete(5), np.log([0.02, 0.3, 0.4, 0.26, 0.02]), None),
    "masked": (Discrete(5), np.log([0.02, 0.3, 0.4, 0.26, 0.02]), [0, 1, 1, 0, 1]),
    "factored": (MultiDiscrete((3, 2)), np.log([0.05, 0.05, 0.9, 0.98, 0.02]), None),
    "factored and masked": (MultiDiscrete((3, 2)), np.array([9.0, 3, 0, 4, 5]), [0, 1, 1, 1, 1]),
    "many": (Discrete(12), np.linspace(-4, 1, 12), None),  # more than are unrolled
    "extreme": (Discrete(5), np.array([-9.0, 2.0, 3.0, -300.0, -8.0]), None),
    "one-sided": (Discrete(4), np.array([300.0, 310.0, -300.0, 270.0]), None),
}


def drawn(actions, size, logits, mask):
    """So many draws, by a program as jmarl ships it; `logits` `[A]`."""

    def draw(key, logits):
        noise = actions.noise(key, (DRAWS, size), jnp.float32)
        rows = jnp.broadcast_to(logits, (DRAWS, size))
        legal = None if mask is None else jnp.broadcast_to(np.array(mask, bool)[None], rows.shape)
        return actions.sample(noise, rows, jnp.ones(()), legal)

    return np.asarray(optimised(draw, jax.random.key(0), np.float32(logits[None])))


@pytest.mark.parametrize("name", FREQUENCIES)
def test_choices_come_as_often_as_they_should(name):
    """Chi-square over all combinations of choices, whose probabilities are products."""
    space, logits, mask = FREQUENCIES[name]
    legal = np.where(np.ones(space.size) if mask is None else mask, logits, -np.inf)
    p = np.ones(())
    for part in np.split(legal, np.cumsum(space.heads)[:-1]):
        powers = np.exp(part - part.max())
        p = np.multiply.outer(p, powers / powers.sum())
    action = drawn(make_actions(space), space.size, logits, mask).reshape(DRAWS, -1)
    index = np.ravel_multi_index(tuple(action.T), space.heads)
    counts, expected = np.bincount(index, minlength=p.size), DRAWS * p.ravel()
    never = expected < 1e-6
    assert counts[never].sum() == 0
    assert (expected[~never] > 5).all()  # else chi-square is no approximation
    assert scipy.stats.chisquare(counts[~never], expected[~never]).pvalue > LIKELY
