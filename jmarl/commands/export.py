"""python -m jmarl.export RUN [--option value …]: a policy as a file that acts with jax alone (and
flatbuffers, which jax needs to read such files).

The file is a zip of two StableHLO programs, `greedy` and `sampled`, with the parameters inside,
and of `about.json`, which names their inputs. Any number of worlds can be handed in. Memory is a
list of arrays, zeros where episodes begin; `about.json` has their shapes.
"""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import export as jax_export
from pydantic import BaseModel, ConfigDict, Field

from jmarl.commands.arguments import command, read_run_command
from jmarl.errors import ConfigError
from jmarl.types import Perception

PLATFORMS = ("cpu", "cuda", "tpu")


class Options(BaseModel):
    """Write the policy of a run as a portable artefact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    which: Literal["best", "latest"] = Field(default="best", description="which checkpoint")
    out: Path | None = Field(default=None, description="the file; None: RUN/policy.zip")


def programs(policy: Any) -> dict[str, jax_export.Exported]:
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
            fresh: jax.Array,
            key_data: jax.Array,
            memory: list[jax.Array],
        ) -> tuple[jax.Array, list[jax.Array]]:
            key = jax.random.wrap_key_data(key_data)
            state = jnp.zeros((obs.shape[0], spec.state_size))  # critics alone look at it
            seen = Perception(obs, state, mask, fresh)
            kept = jax.tree.unflatten(tree, memory)
            action, kept = policy.decide(
                policy.params, policy.norms, key, kept, seen, deterministic
            )
            return action, jax.tree.leaves(kept)

        return jax_export.export(jax.jit(decide), platforms=PLATFORMS)(*inputs)

    return {"greedy": act(True), "sampled": act(False)}


def write(policy: Any, path: Path) -> None:
    spec, made = policy.spec, programs(policy)
    about = {
        "env": policy.config.env,
        "algorithm": policy.config.algorithm,
        "agents": spec.agents,
        "obs_sizes": spec.obs_sizes,
        "inputs": ["obs", "action_mask", "fresh", "key_data", "memory"],
        "shapes": [str(aval) for aval in made["greedy"].in_avals],
        "memory": [list(x.shape[1:]) for x in jax.tree.leaves(policy.memory(1))],
        "outputs": ["action", "memory"],
        "platforms": PLATFORMS,
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.json", json.dumps(about, indent=1))
        for name, program in made.items():
            archive.writestr(name, bytes(program.serialize()))


def main() -> None:
    with command() as (console, _):
        run, options = read_run_command(Options, "python -m jmarl.export RUN", sys.argv[1:])
        from jmarl.evaluation.trained_policy import load_policy

        policy, path = load_policy(run, options.which), options.out or run / "policy.zip"
        try:
            write(policy, path)
        except OSError as error:
            raise ConfigError(f"out={str(path)!r} cannot be written: {error}.") from None
        size = f"{path.stat().st_size / 1e6:.1f} MB"
        console.print(f"policy: {path} ({size})", markup=False, soft_wrap=True)
