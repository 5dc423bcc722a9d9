"""Continuous distributions against torch, scipy and Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from jmarl.envs.spaces import Box
from jmarl.policies.action_distributions import make_actions
from jmarl.policies.continuous_actions import Beta, TanhGaussian
from tests.support.optimised import optimised

torch = pytest.importorskip("torch", reason="torch checks the equations")
from tests.support.torch_distributions import continuous  # noqa: E402

SPACE = Box((-2.0, 0.0, 1.0), (2.0, 1.0, 1.5))
LOW, WIDTH = np.array(SPACE.low), np.subtract(SPACE.high, SPACE.low)
SCALE = np.array([0.1, 0.5, 1.0])
ROWS = 50
BOUNDED = ("tanh", "beta")


def logits(dtype=np.float64):
    return np.random.default_rng(0).normal(0, 1.5, (ROWS, SPACE.size)).astype(dtype)


def theirs(distribution, mean=None):
    """torch's distribution with the same two parameters."""
    mean = torch.tensor(logits() if mean is None else mean)
    return continuous(distribution, mean, torch.tensor(SCALE), SPACE)


def sampled(distribution, mean, seed=0, dtype=jnp.float64):
    actions = make_actions(SPACE, distribution)
    noise = actions.noise(jax.random.key(seed), mean.shape, dtype)
    return actions.sample(noise, jnp.asarray(mean), jnp.asarray(SCALE, dtype), None)


@pytest.mark.parametrize("distribution", ["gaussian", *BOUNDED])
def test_log_probabilities_equal_torch(distribution, x64):
    actions, mean = make_actions(SPACE, distribution), logits()
    action = sampled(distribution, mean)
    given = actions.log_prob(jnp.asarray(mean), jnp.asarray(SCALE), None, action)
    expected = theirs(distribution).log_prob(torch.tensor(np.asarray(action)))
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-10)


def test_the_entropy_of_beta_equals_torch(x64):
    given = Beta(SPACE).entropy(jnp.asarray(logits()), jnp.asarray(SCALE))
    expected = theirs("beta").base_dist.entropy().numpy() + np.log(WIDTH)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-10)


def integrated_entropy(mean, scale):
    """-∫ p log p of a squashed Gaussian on [-1, 1], over u."""

    def integrand(z):
        u = mean + scale * z
        log_slope = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return density * (log_slope + z**2 / 2 + np.log(scale * np.sqrt(2 * np.pi)))

    return scipy.integrate.quad(integrand, -12, 12, limit=200, epsabs=1e-12)[0]


@pytest.mark.parametrize(("scale", "error"), [(0.3, 1e-6), (0.6, 5e-5), (1.0, 1e-3), (2.7, 0.09)])
def test_the_entropy_of_tanh_and_its_gradient_are_close_to_the_integral(scale, error, x64):
    """The quadrature's error grows with σ. Derivatives by μ and log σ are the entropy's own."""

    def entropy(mean, log_scale):
        made = TanhGaussian(Box.uniform(-1, 1, 1))
        return made.entropy(mean[None], jnp.exp(log_scale)[None])[0]

    step, log_scale = 1e-4, np.log(scale)
    for mean in (0.0, 0.4, -1.5, 3.0):
        given, slopes = jax.value_and_grad(entropy, (0, 1))(
            jnp.asarray(mean), jnp.asarray(log_scale)
        )
        assert given == pytest.approx(integrated_entropy(mean, scale), abs=error)
        by_mean = [integrated_entropy(mean + s, scale) for s in (step, -step)]
        by_scale = [integrated_entropy(mean, np.exp(log_scale + s)) for s in (step, -step)]
        expected = [(up - down) / (2 * step) for up, down in (by_mean, by_scale)]
        np.testing.assert_allclose(slopes, expected, rtol=0, atol=10 * error + 1e-6)


@pytest.mark.parametrize("distribution", BOUNDED)
def test_entropies_equal_monte_carlo(distribution, x64):
    """-E[log p] over torch's own samples; within five standard errors, and the quadrature's own."""
    torch.manual_seed(0)
    mean = logits()[:4]
    model = theirs(distribution, mean)
    surprise = -model.log_prob(model.sample((20_000,))).numpy()
    actions = make_actions(SPACE, distribution)
    action = sampled(distribution, mean)
    _, given = actions.evaluate(jnp.asarray(mean), jnp.asarray(SCALE), None, action)
    error = 5 * surprise.std(0) / np.sqrt(len(surprise)) + 1e-3
    assert (np.abs(surprise.mean(0) - given) < error).all()


@pytest.mark.parametrize("distribution", BOUNDED)
def test_the_mode_of_a_distribution(distribution, x64):
    """tanh: the squashed mean. beta: where the density is highest."""
    mean = logits()
    given = make_actions(SPACE, distribution).mode(jnp.asarray(mean), jnp.asarray(SCALE), None)
    squashed = LOW + WIDTH * (1 + np.tanh(mean)) / 2
    model = theirs("beta").base_dist
    peaks = (model.concentration1 - 1) / (model.concentration1 + model.concentration0 - 2)
    expected = squashed if distribution == "tanh" else LOW + WIDTH * peaks.numpy()
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-10)


def test_samples_of_tanh_are_squashed_noise(x64):
    mean = logits()
    noise = make_actions(SPACE, "tanh").noise(jax.random.key(0), mean.shape, jnp.float64)
    expected = LOW + WIDTH * (1 + np.tanh(mean + SCALE * np.asarray(noise))) / 2
    np.testing.assert_allclose(sampled("tanh", mean), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("peak", [-8.0, 0.0, 3.0])
def test_samples_of_beta_are_distributed_as_scipy_says(peak):
    """From nearly uniform (κ = 1) to narrow (κ = 100), and with the peak at a bound. Kolmogorov and
    Smirnov's distance of 40,000 right samples is below 0.0098 with a probability of 0.999."""
    mean = jnp.full((40_000, SPACE.size), peak)
    x = (np.asarray(sampled("beta", mean, dtype=jnp.float32)) - LOW) / WIDTH
    m = 1 / (1 + np.exp(-peak))
    for i, scale in enumerate(SCALE):
        model = scipy.stats.beta(1 + m / scale**2, 1 + (1 - m) / scale**2)
        assert scipy.stats.kstest(x[:, i], model.cdf).statistic < 0.0098


@pytest.mark.parametrize("distribution", ["gaussian", *BOUNDED])
def test_half_a_million_samples_are_distributed_as_scipy_says(distribution):
    """Kolmogorov and Smirnov's distance of so many right samples is below 1.95/√n with a
    probability of 0.999. Dimensions are independent: their ranks' correlations, with a deviation of
    1/√n, are next to 0."""
    actions, count, peaks = make_actions(SPACE, distribution), 2**19, np.array([0.7, -0.2, 1.5])

    def draw(key, mean, scale):
        mean = jnp.broadcast_to(mean, (count, SPACE.size))
        noise = actions.noise(key, mean.shape, jnp.float32)
        return actions.sample(noise, mean, scale, None)

    given = (jax.random.key(1), jnp.float32(peaks[None]), jnp.float32(SCALE))
    action = np.asarray(optimised(draw, *given), np.float64)
    x, m = (action - LOW) / WIDTH, 1 / (1 + np.exp(-peaks))
    if distribution == "tanh":
        x = np.log(x / (1 - x)) / 2
    if distribution == "beta":
        models = scipy.stats.beta(1 + m / SCALE**2, 1 + (1 - m) / SCALE**2)
    else:
        models = scipy.stats.norm(peaks, SCALE)
    x = action if distribution == "gaussian" else x
    uniform = models.cdf(x)
    for column in uniform.T:
        assert scipy.stats.kstest(column, "uniform").statistic < 1.95 / count**0.5
    correlations = np.corrcoef(uniform.T) - np.eye(SPACE.size)
    assert np.abs(correlations).max() < 5 / count**0.5


@pytest.mark.parametrize("distribution", BOUNDED)
@pytest.mark.parametrize("mean", [-30.0, 0.0, 30.0])
def test_numbers_at_the_bounds_are_finite_in_single_precision(distribution, mean):
    """The bounds themselves, and what is sampled when a policy insists on them."""
    actions = make_actions(SPACE, distribution)
    at = jnp.full((4, SPACE.size), mean, jnp.float32)
    sample_index = sampled(distribution, at, dtype=jnp.float32)
    bounds = jnp.array([SPACE.low, SPACE.high], jnp.float32)
    assert (sample_index >= bounds[:1]).all()
    assert (sample_index <= bounds[1:]).all()

    def scores(at, log_scale, action):
        return actions.evaluate(at, jnp.exp(log_scale), None, action)

    log_scale = jnp.log(jnp.asarray(SCALE, jnp.float32))
    for action in (sample_index, *(jnp.broadcast_to(b, at.shape) for b in bounds[:, None])):
        given, gradients = scores(at, log_scale, action), jax.jacobian(scores, (0, 1))
        found = jax.tree.leaves((given, gradients(at, log_scale, action)))
        assert all(np.isfinite(x).all() for x in found)


@pytest.mark.parametrize("distribution", ["gaussian", *BOUNDED])
def test_padding_counts_for_nothing(distribution):
    """Neither in actions nor in scores, nor in gradients."""
    actions, mean = make_actions(SPACE, distribution), jnp.asarray(logits(np.float32))
    mask, scale = np.broadcast_to([True, True, False], mean.shape), jnp.asarray(SCALE, jnp.float32)
    noise = actions.noise(jax.random.key(0), mean.shape, jnp.float32)
    action = actions.sample(noise, mean, scale, mask)
    assert (action[:, 2] == 0).all()
    assert (actions.mode(mean, scale, mask)[:, 2] == 0).all()

    def scores(mean, scale):
        log_prob, entropy = actions.evaluate(mean, scale, mask, action)
        return (log_prob + entropy).sum(), (log_prob, entropy)

    (of_mean, of_scale), found = jax.grad(scores, (0, 1), has_aux=True)(mean, scale)
    for x in (*found, of_mean, of_scale[None]):
        assert (x[:, 2] == 0).all()
        assert (x[:, :2] != 0).any()
