"""Writes a policy as a file that acts with jax alone.

The file is a zip of two StableHLO programs, `greedy` and `sampled`, with the parameters inside,
of `about.json`, which names their inputs, and of their digests, `SHA256SUMS`. Any number of worlds
can be handed in. Memory is a list of arrays, zeros where episodes begin; `about.json` has their
shapes.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export as jax_export

from jmarl.evaluation.exported_policy import packed
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.runs.files import replace_bytes
from jmarl.types import PolicyInput

PLATFORMS = ("cpu", "cuda", "tpu")


def programs(policy: TrainedPolicy) -> dict[str, jax_export.Exported]:
    """`(obs, action_mask, fresh, key_data, memory) → (action, memory)`, for any worlds at once."""
    spec = policy.spec
    (worlds,) = jax_export.symbolic_shape("worlds")

    def shaped(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((worlds, *x.shape[1:]), x.dtype)

    leaves, tree = jax.tree.flatten(jax.eval_shape(lambda: policy.memory(1)))
    memory = [shaped(leaf) for leaf in leaves]
    inputs = (
        jax.ShapeDtypeStruct((worlds, spec.num_agents, spec.obs_size), jnp.float32),
        jax.ShapeDtypeStruct((worlds, *spec.action_mask.shape), bool),
        jax.ShapeDtypeStruct((worlds,), jnp.float32),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
        memory,
    )

    def act(deterministic: bool) -> Any:
        def decide(
            obs: jax.Array,
            mask: jax.Array,
            episode_start: jax.Array,
            key_data: jax.Array,
            memory: list[jax.Array],
        ) -> tuple[jax.Array, list[jax.Array]]:
            key = jax.random.wrap_key_data(key_data)
            state = jnp.zeros((obs.shape[0], spec.state_size))  # critics alone look at it
            seen = PolicyInput(obs, state, mask, episode_start)
            kept = jax.tree.unflatten(tree, memory)
            action, kept = policy.decide(policy.policies, key, kept, seen, deterministic)
            return action, jax.tree.leaves(kept)

        return jax_export.export(jax.jit(decide), platforms=PLATFORMS)(*inputs)

    return {"greedy": act(True), "sampled": act(False)}


def write(policy: TrainedPolicy, path: Path) -> None:
    """As a whole: a kill or a full disk leaves what was there before."""
    spec, made = policy.spec, programs(policy)
    about = {
        "env": policy.config.env,
        "algorithm": policy.config.algorithm,
        "agents": spec.agents,
        "obs_sizes": spec.obs_sizes,
        "inputs": ["obs", "action_mask", "episode_start", "key_data", "memory"],
        "shapes": [str(aval) for aval in made["greedy"].in_avals],
        "memory": [list(x.shape[1:]) for x in jax.tree.leaves(policy.memory(1))],
        "outputs": ["action", "memory"],
        "platforms": PLATFORMS,
    }
    serialized = {name: bytes(program.serialize()) for name, program in made.items()}
    replace_bytes(path, packed(about, serialized))
