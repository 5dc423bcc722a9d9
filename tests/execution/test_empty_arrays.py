"""Empty arrays stay outside of programs that devices share, and come back in their places."""

import subprocess
import sys

import jax.numpy as jnp

from jmarl.execution.empty_arrays import drop_empty, insert_empty

EMPTY = (0, 2)
COMPILED = """
import jax, jax.numpy as jnp
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.execution.sharding import make_mesh, places, shard_step
jax.config.update("jax_num_cpu_devices", 2)
trainer, hyper = make_trainer(build({"algorithm": "ippo", "num_envs": 16}))
at = places(trainer, hyper, make_mesh(jax.devices()), batched=False)
assert any(x.size == 0 for x in jax.tree.leaves(trainer.shapes))
same = shard_step(lambda state, hyper: (state, {}), at)
after, _ = jax.jit(same)(trainer.init(jax.random.key(0)), hyper)
print(jax.tree.map(jnp.shape, after) == jax.tree.map(lambda x: x.shape, trainer.shapes))
"""


def test_what_is_left_out_comes_back():
    tree = {"a": jnp.ones(3), "b": (jnp.zeros(EMPTY), jnp.zeros(())), "c": jnp.zeros(0)}
    names = {"a": "a", "b": ("b0", "b1"), "c": "c"}
    assert drop_empty(names, like=tree) == ["a", "b1"]
    assert insert_empty(["A", "B1"], tree, names) == {"a": "A", "b": ("b0", "B1"), "c": "c"}


def test_devices_share_a_state_that_holds_empty_arrays():
    """In a process of its own: jaxlib 0.11.2 ends it."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
