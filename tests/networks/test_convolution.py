"""Convolutions over images, and networks that begin with them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.envs.batched import Batched
from jmarl.envs.check import shape_faults
from jmarl.envs.probe import Probe
from jmarl.envs.spaces import Discrete
from jmarl.errors import ConfigError
from jmarl.networks.convolution import Convolution, Convolutions, Images
from jmarl.networks.layers import apply
from jmarl.networks.torso import Shape
from jmarl.references.base import check_fit
from jmarl.references.catalogue import REFERENCES
from jmarl.types import PolicyInput
from tests.support.parts import actor_critic

torch = pytest.importorskip("torch")

IMAGES = Images((3, 4, 2), (5, 3))
SIZE, STATE, N = 24, 7, 2


def drawn(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.5, x.shape)), shapes)


def by_hand(x, kernel, bias):
    """`[H, W, C]`, one entry after the other."""
    height, width, _ = x.shape
    y = np.broadcast_to(bias, (height, width, len(bias))).copy()
    for i, j in np.ndindex(height, width):
        for a, b in np.ndindex(3, 3):
            row, column = i + a - 1, j + b - 1
            if 0 <= row < height and 0 <= column < width:
                y[i, j] += x[row, column] @ kernel[a, b]
    return y


@pytest.mark.parametrize("size", [(3, 5), (1, 1), (2, 1)])
def test_a_convolution_is_its_sum(size, x64):
    params = {"kernel": np.zeros((3, 3, 4, 6)), "bias": np.zeros(6)}
    params, x = drawn((params, np.zeros((2, *size, 4))))
    made = apply(Convolution(6, 1.0), params, x)
    weights = (np.asarray(params["kernel"]), np.asarray(params["bias"]))
    expected = [by_hand(np.asarray(one), *weights) for one in x]
    np.testing.assert_allclose(made, expected, rtol=1e-10, atol=1e-10)


def features(images, params, x):
    """torch's: `[B, H·W·C]` → `[B, H·W·F]`."""
    y = torch.tensor(np.array(x)).reshape(-1, *images.shape).permute(0, 3, 1, 2)
    for i in range(len(images.features)):
        layer = params[f"conv_{i}"]
        kernel = torch.tensor(np.array(layer["kernel"])).permute(3, 2, 0, 1)
        bias = torch.tensor(np.array(layer["bias"]))
        y = torch.relu(torch.nn.functional.conv2d(y, kernel, bias, padding=1))
    return y.permute(0, 2, 3, 1).flatten(1).numpy()


def test_convolutions_are_those_of_torch(x64):
    module = Convolutions(IMAGES, jax.nn.relu, 1.0)
    x = jnp.zeros((2, 3, SIZE))
    params, x = drawn((jax.eval_shape(module.init, jax.random.key(0), x)["params"], x))
    made = apply(module, params, x)
    assert made.shape == (2, 3, IMAGES.out)
    expected = features(IMAGES, params, x.reshape(-1, SIZE))
    np.testing.assert_allclose(made.reshape(6, -1), expected, rtol=1e-10, atol=1e-10)


def test_initial_kernels_are_orthogonal_as_torch_makes_them():
    module = Convolution(4, 2.0)
    kernel = module.init(jax.random.key(0), jnp.zeros((1, 3, 3, 2)))["params"]["kernel"]
    flat = kernel.reshape(-1, 4)
    np.testing.assert_allclose(flat.T @ flat, 4 * np.eye(4), atol=1e-5)


def norm(x, layer):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * np.asarray(layer["scale"]) + np.asarray(layer["bias"])


def linear(x, layer):
    return x @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])


def network(params, images, x):
    """One hidden layer after the convolutions, on inputs that begin with so many images."""
    pixels, others = np.split(np.asarray(x), [images * SIZE], -1)
    seen = features(IMAGES, params["conv"], pixels.reshape(-1, SIZE))
    x = norm(np.concatenate([seen.reshape(*x.shape[:-1], -1), others], -1), params["conv_norm"])
    return linear(norm(np.maximum(linear(x, params["dense_0"]), 0), params["ln_0"]), params["out"])


def played(critic_input, **options):
    shape = Shape(hidden=(6,), images=IMAGES)
    given = options | {"critic_input": critic_input}
    policy = actor_critic((SIZE,) * N, STATE, Discrete(4), shape, **given)
    seen = PolicyInput(jnp.zeros((5, N, SIZE)), jnp.zeros((5, STATE)), None)
    params, seen = drawn((jax.eval_shape(policy.init, jax.random.key(0)), seen))
    actor, critic = jax.jit(policy.actor.__call__), jax.jit(policy.critic.__call__)
    logits, value = actor(params["actor"], (), seen)[1], critic(params["critic"], (), seen)[1]
    return params, seen, logits, value


def test_an_actor_sees_its_own_image_and_then_its_id(x64):
    params, seen, logits, value = played("own", agent_id="obs")
    ids = np.broadcast_to(np.eye(N), (5, N, N))
    x = np.concatenate([seen.obs, ids], -1)
    np.testing.assert_allclose(logits, network(params["actor"], 1, x), rtol=1e-9)
    np.testing.assert_allclose(value, network(params["critic"], 1, x)[..., 0], rtol=1e-9)


def test_a_central_critic_sees_every_image_through_the_same_convolutions(x64):
    params, seen, _, value = played("all_and_state")
    x = np.concatenate([seen.obs.reshape(5, 1, -1), seen.state[:, None]], -1)
    expected = network(params["critic"], N, x)[..., 0]
    np.testing.assert_allclose(value, np.broadcast_to(expected, (5, N)), rtol=1e-9)


def test_a_critic_of_the_global_state_sees_no_image():
    params, *_ = played("state")
    assert "conv" in params["actor"]
    assert "conv" not in params["critic"]


class Picture(Probe):
    """Its two features are the channels of an image of one cell."""

    shape = (1, 1, 2)

    def _make_spec(self):
        return replace(super()._make_spec(), obs_shape=self.shape)


def pictures(**changes):
    return build(matrix.TINY | {"env": "my/picture"} | changes)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("algorithm", "net"),
    [
        *((name, {"n_embd": 8}) for name in ("mat", "mat_decoder", "mat_gru")),
        ("mat_dec", {"n_embd": 8, "share_actor": False}),
        ("ippo", {"hidden": [8], "precision": "bfloat16"}),
        ("rmappo", {"hidden": [8], "share": "none"}),
        ("mappo", {"hidden": [8], "critic_input": "all_and_state", "agent_id": "features"}),
        ("happo", {"hidden": [8]}),
    ],
)
def test_every_algorithm_reads_images_by_convolutions_unless_told_not_to(algorithm, net):
    jmarl.register_env("my/picture", lambda: Batched(Picture("coordination")))
    own = 1 if algorithm in ("mat", "mat_decoder", "mat_gru") else 2
    seeing, blind = (net | {"conv_features": features} for features in ([4, 3], []))
    trainer, hyper = make_trainer(pictures(algorithm=algorithm, net=seeing))
    before = trainer.shapes
    expected = [(3, 3, 2, 4), (3, 3, 4, 3)] * own * len(trainer.players)
    assert sorted(kernels(before.policies)) == sorted(expected)
    after, _ = jax.eval_shape(trainer.step_alike, before, hyper)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, before)
    trainer, _ = make_trainer(pictures(algorithm=algorithm, net=blind))
    assert kernels(jax.eval_shape(trainer.players[0].policy.init, jax.random.key(0))) == []


def kernels(params):
    """Shapes of the convolutions; of those that are stacked, of one."""
    leaves = jax.tree.leaves_with_path(params)
    named = ((jax.tree_util.keystr(path), leaf.shape) for path, leaf in leaves)
    return [shape[-4:] for name, shape in named if "conv_" in name and "kernel" in name]


@pytest.mark.usefixtures("registry")
def test_an_own_body_reads_images_as_vectors():
    jmarl.register_env("my/picture", lambda: Batched(Picture("coordination")))
    config = pictures(algorithm="ippo", net={"hidden": [8], "body": "flax.linen:LayerNorm"})
    policy = make_trainer(config)[0].players[0].policy
    assert policy.actor.shape.images is None


@pytest.mark.usefixtures("registry")
def test_convolutions_do_not_go_with_checkpoints_of_the_references():
    jmarl.register_env("my/picture", lambda: Batched(Picture("coordination")))
    for algorithm, reference in (("mappo", "on-policy"), ("mat", "mat")):
        net = {"hidden": [8]} if algorithm == "mappo" else {"n_embd": 8}
        policy = make_trainer(pictures(algorithm=algorithm, net=net))[0].players[0].policy
        with pytest.raises(ConfigError, match=r"net.conv_features=\(32, 32, 32\) does not go with"):
            check_fit(REFERENCES[reference], policy)


def test_an_image_has_as_many_entries_as_the_observation():
    class Wrong(Picture):
        shape = (3, 1, 2)

    assert shape_faults(Batched(Picture("coordination"))) == []
    (fault,) = jmarl.check_env(Batched(Wrong("coordination")))
    assert fault.startswith("spec.obs_shape=(3, 1, 2) must be (height, width, channels)")
