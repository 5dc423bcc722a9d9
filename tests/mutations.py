"""python -m tests.mutations [WORD …]: single wrong lines, each of which some test must catch.

Not part of the suite. Every mutation is applied to a copy of the package; its tests must then fail.
With words, only mutations whose name has one of them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.mutations_of_runs import RUNS

ROOT = Path(__file__).parent.parent
WIRING = "tests/learning/test_wiring.py"
BOUNDS = "tests/envs/test_bounds.py"
CONTINUOUS = "tests/policies/test_continuous_actions.py"


class Mutation(NamedTuple):
    name: str
    file: str
    right: str
    wrong: str
    tests: str = WIRING


MUTATIONS = [
    Mutation(
        "final_obs of the next episode",
        "learning/rollout.py",
        "norms.seen(after.final_obs)",
        "norms.seen(after.obs)",
    ),
    Mutation(
        "final view valued with void memory",
        "learning/rollout.py",
        "going_on = jnp.zeros(after.truncated.shape, after.reward.dtype)",
        "going_on = jnp.ones(after.truncated.shape, after.reward.dtype)",
    ),
    Mutation(
        "memory not reset at a time limit",
        "learning/rollout.py",
        "begun = timestep.over.astype",
        "begun = timestep.terminated.all(-1).astype",
    ),
    Mutation(
        "memory never reset",
        "learning/rollout.py",
        "begun = timestep.over.astype(timestep.obs.dtype)",
        "begun = 0 * timestep.over.astype(timestep.obs.dtype)",
    ),
    Mutation(
        "final_value ignored",
        "learning/trainer.py",
        "jnp.where(played.truncated[..., None], played.final_value, following)",
        "following",
    ),
    Mutation(
        "last bootstrap 0",
        "learning/trainer.py",
        "jnp.concatenate([value[1:], last_value[None]])",
        "jnp.concatenate([value[1:], 0 * last_value[None]])",
    ),
    Mutation(
        "time_limit always bootstrap",
        "learning/returns.py",
        'no_future = terminated if time_limit == "bootstrap" else ended',
        "no_future = terminated",
    ),
    Mutation(
        "masks dropped in group_view",
        "policies/base.py",
        "action_mask=_group_mask(spec, group.agents, seen.action_mask),",
        "action_mask=None,",
    ),
    Mutation(
        "masks of other agents in group_view",
        "policies/base.py",
        "return mask[..., pick(agents), :]",
        "return mask[..., : len(agents), :]",
    ),
    Mutation(
        "an agent apart does not see its team",
        "policies/base.py",
        "team_obs=None if team is None else _views(spec, team, seen.obs),",
        "team_obs=None if team is None else _views(spec, team, 0 * seen.obs),",
    ),
    Mutation(
        "a smaller group's actions in other components",
        "envs/spaces.py",
        "[(0, 0)] * (components.ndim - 1) + [(0, missing)]",
        "[(0, 0)] * (components.ndim - 1) + [(missing, 0)]",
        "tests/policies/test_base.py",
    ),
    Mutation(
        "values of the dead are not learned",
        "learning/rollout.py",
        'if agent_end != "team":',
        "if True:",
    ),
    Mutation(
        "the value loss leaves out the dead",
        "learning/ppo_loss.py",
        "flat(value_mask(batch))",
        "active",
        "tests/learning/test_learning.py -k future",
    ),
    Mutation(
        "one agent's end is its team's",
        "learning/rollout.py",
        "_of_teams(terminated, teams, jnp.all)",
        "_of_teams(terminated, teams, jnp.any)",
    ),
    Mutation(
        "padding counts in layer norms",
        "policies/base.py",
        "return None if own.all() else jnp.asarray(own, float_dtype())",
        "return None",
        "tests/policies/test_actor_critic.py",
    ),
    Mutation(
        "padding is shifted by layer norms",
        "networks/layers.py",
        "* scale + shift) * real).astype",
        "* scale + shift)).astype",
        "tests/policies/test_actor_critic.py",
    ),
    Mutation(
        "padding marks do not follow the order of turns",
        "policies/mat.py",
        "if real is not None and order is not None:",
        "if False:",
        "tests/parity/test_mat_parity.py -k padding",
    ),
    Mutation(
        "central critics read padding",
        "policies/actor_critic.py",
        "if len(set(sizes)) == 1:",
        "if True:",
        "tests/policies/test_actor_critic.py",
    ),
    Mutation(
        "who is out counts in observations' moments",
        "learning/running_statistics.py",
        "obs_moments.update(obs, across, active[..., None])",
        "obs_moments.update(obs, across)",
    ),
    Mutation(
        "who did not act counts in rewards' moments",
        "learning/running_statistics.py",
        "counted = (active[..., None] & self._members()[None])",
        "counted = ((active | True)[..., None] & self._members()[None])",
    ),
    Mutation(
        "one reward scale for everybody",
        "learning/running_statistics.py",
        "+ eps)[self._members().argmax(1)]",
        "+ eps)[0 * self._members().argmax(1)]",
    ),
    Mutation(
        "the global state stays raw",
        "learning/rollout.py",
        "norms.seen(timestep.obs), norms.seen_state(timestep.state)",
        "norms.seen(timestep.obs), timestep.state",
    ),
    Mutation(
        "final states stay raw",
        "learning/rollout.py",
        "norms.seen_state(after.final_state)",
        "after.final_state",
    ),
    Mutation(
        "evaluation counts past the first episode",
        "learning/episodes.py",
        "running = running * (1.0 - timestep.over)",
        "running = running * 1.0",
    ),
    Mutation(
        "evaluation ends with the first agent",
        "learning/episodes.py",
        "running * (1.0 - timestep.over)",
        "running * (1.0 - (timestep.truncated | timestep.terminated.any(-1)))",
    ),
    Mutation(
        "evaluation without statistics",
        "learning/episodes.py",
        "sight = perceive(env.spec, timestep, norms)",
        "sight = perceive(env.spec, timestep, UNCHANGED)",
    ),
    Mutation(
        "active ignored",
        "learning/rollout.py",
        "active=timestep.active[:, mine].astype(after.reward.dtype),",
        "active=jnp.ones_like(reward[:, mine]),",
    ),
    Mutation(
        "active of the step after",
        "learning/rollout.py",
        "active=timestep.active[:, mine]",
        "active=after.active[:, mine]",
    ),
    Mutation(
        "values not denormalised for GAE",
        "learning/trainer.py",
        "known, ahead = value_norm.denormalise(value), value_norm.denormalise(next_value)",
        "known, ahead = value, next_value",
    ),
    Mutation(
        "PopArt's old values in wrong units",
        "learning/trainer.py",
        'value=known if self.objective.value_norm == "popart" else value,',
        "value=value,",
    ),
    Mutation(
        "statistics learn before they are used",
        "learning/rollout.py",
        "counted = norms.paid(reward)",
        "counted = carry[3].paid(reward)",
    ),
    Mutation(
        "reward not shared by team",
        "learning/rollout.py",
        "reward = shared_reward(after.reward, spec.teams, share)",
        "reward = after.reward",
    ),
    Mutation(
        "ends of the world for everybody",
        "learning/rollout.py",
        'if agent_end == "own":',
        'if agent_end == "never":',
    ),
    Mutation(
        "ends of agents where the world's were asked for",
        "learning/rollout.py",
        "    return jnp.broadcast_to(terminated.all(-1, keepdims=True), terminated.shape)",
        "    return terminated",
    ),
    Mutation(
        "advantages normalised over all agents",
        "learning/trainer.py",
        "[*whole, (advantage, played.active)]",
        "[*whole, (advantage, jnp.ones_like(advantage))]",
    ),
    Mutation(
        "one shuffle for all epochs",
        "learning/update.py",
        "order = jax.random.permutation(key, count) if shuffled",
        "order = jax.random.permutation(jax.random.key(0), count) if shuffled",
        "tests/learning/test_update.py",
    ),
    Mutation(
        "minibatches of neighbouring worlds",
        "learning/update.py",
        "groups = jnp.moveaxis(x.reshape(length, worlds // count, count, *rest), 2, 0)",
        "groups = jnp.moveaxis(x.reshape(length, count, worlds // count, *rest), 1, 0)",
        "tests/learning/test_update.py",
    ),
    Mutation(
        "chunks of different worlds mixed",
        "learning/update.py",
        "jnp.moveaxis(pieces, 0, 2)",
        "jnp.moveaxis(pieces, 0, 1)",
        "tests/learning/test_update.py",
    ),
    Mutation(
        "the same noise in every shard",
        "learning/collectives.py",
        "first = lax.axis_index(DATA) * num_envs if shards > 1 else 0",
        "first = 0",
        "tests/execution/test_sharding.py -k numbers",
    ),
    Mutation(
        "surrogate maximised the wrong way",
        "learning/losses.py",
        "return -jnp.minimum(ratio * advantage, clipped * advantage)",
        "return -jnp.maximum(ratio * advantage, clipped * advantage)",
        "tests/learning/test_losses.py",
    ),
    Mutation(
        "huber's slope",
        "learning/losses.py",
        "delta * (size - 0.5 * delta)",
        "delta * size",
        "tests/learning/test_losses.py",
    ),
    Mutation(
        "optimistic value clip",
        "learning/losses.py",
        "return jnp.maximum(loss, clipped_loss)",
        "return jnp.minimum(loss, clipped_loss)",
        "tests/learning/test_losses.py",
    ),
    Mutation(
        "dead agents in value statistics",
        "learning/ppo_loss.py",
        "return jnp.ones_like(batch.target) if self.inactive_targets else value_mask(batch)",
        "return jnp.ones_like(batch.target)",
        "tests/learning/test_wiring.py -k statistics",
    ),
    *(Mutation(*given) for given in RUNS),
    Mutation(
        "bounds: adapters do not clip",
        "envs/batched.py",
        "jax.vmap(self.world.step)(step_keys, state, self.spec.clip(action))",
        "jax.vmap(self.world.step)(step_keys, state, action)",
        BOUNDS,
    ),
    Mutation(
        "bounds: particle worlds do not clip",
        "envs/mpe/env.py",
        "self._act(state.world, self.spec.clip(action))",
        "self._act(state.world, action)",
        BOUNDS,
    ),
    Mutation(
        "bounds: of the first agent for all",
        "envs/base.py",
        "low[i, : space.size], high[i, : space.size] = space.low, space.high",
        "low[:, : space.size], high[:, : space.size] = space.low, space.high",
        BOUNDS,
    ),
    Mutation(
        "continuous: tanh without its change of variables",
        "policies/continuous_actions.py",
        "return _normal(logits, scale).log_prob(u) - log_slope",
        "return _normal(logits, scale).log_prob(u)",
        CONTINUOUS,
    ),
    Mutation(
        "continuous: entropy of tanh without its slope",
        "policies/continuous_actions.py",
        "return gaussian + sum(slopes) + np.log(0.5) + self.space.log_width(logits)",
        "return gaussian + np.log(0.5) + self.space.log_width(logits)",
        CONTINUOUS,
    ),
    Mutation(
        "continuous: infinite at the bounds",
        "policies/continuous_actions.py",
        "x = jnp.clip(space.to_unit(action), edge, 1 - edge)",
        "x = space.to_unit(action)",
        CONTINUOUS,
    ),
    Mutation(
        "continuous: rejected proposals of beta are taken",
        "policies/continuous_actions.py",
        "jnp.where(accepted, v, taken)",
        "jnp.where(accepted, taken, v)",
        CONTINUOUS,
    ),
    Mutation(
        "continuous: entropy of beta with ψ(α + β + 1)",
        "policies/continuous_actions.py",
        "return constant - expected + both * _digamma(2 + both)",
        "return constant - expected + both * _digamma(3 + both)",
        CONTINUOUS,
    ),
    Mutation(
        "continuous: padding counts",
        "policies/action_distributions.py",
        "return x if mask is None else x * mask",
        "return x",
        CONTINUOUS,
    ),
    Mutation(
        "continuous: MAT's noise of tanh and beta at most a half",
        "policies/mat.py",
        'return std(log_std) if self.distribution == "gaussian" else jnp.exp(log_std)',
        "return std(log_std)",
        "tests/policies/test_mat.py",
    ),
    Mutation(
        "continuous: a sigmoid whatever the bounds",
        "policies/actor_critic.py",
        "return self.space.from_unit(jax.nn.sigmoid(logits))",
        "return jax.nn.sigmoid(logits)",
        "tests/policies/test_actor_critic.py",
    ),
    Mutation(
        "continuous: bounds are not asked for",
        "algorithms/build.py",
        "if (bounded or net.squash_mean) and fault:",
        "if net.squash_mean and fault:",
        "tests/config/test_train_config.py",
    ),
    Mutation(
        "continuous: a Gaussian's checkpoint for any distribution",
        "evaluation/torch_import.py",
        'if policy.continuous and policy.distribution != "gaussian":',
        'if not policy.continuous and policy.distribution != "gaussian":',
        "tests/parity/test_mat_parity.py",
    ),
]


def check(mutations: list[Mutation], root: Path) -> None:
    """Refuse, before anything runs, what is no longer exactly once in its file."""
    faults = []
    for mutation in mutations:
        found = (root / "jmarl" / mutation.file).read_text(encoding="utf-8").count(mutation.right)
        if found != 1:
            faults.append(f"{mutation.name}: {mutation.right!r} is {found}× in {mutation.file}")
        if mutation.right == mutation.wrong:
            faults.append(f"{mutation.name}: nothing is wrong")
    if faults:
        raise SystemExit("\n".join(faults))


def fails(tests: str, place: Path) -> bool:
    """Whether the tests do, with the package as it is in `place`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", *tests.split()]
    env = os.environ | {"PYTHONPATH": str(place)}
    done = subprocess.run(command, cwd=place, env=env, capture_output=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{tests}: pytest could not run\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 1


def killed(mutation: Mutation, place: Path) -> bool:
    """Whether its tests fail with it."""
    path = place / "jmarl" / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.right, mutation.wrong), encoding="utf-8")
    try:
        return fails(mutation.tests, place)
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> None:
    words = sys.argv[1:]
    chosen = [m for m in MUTATIONS if not words or any(word in m.name for word in words)]
    check(MUTATIONS, ROOT)
    survivors = []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "copy"
        ignored = shutil.ignore_patterns(".git", "runs", "__pycache__", ".*_cache", "*.egg-info")
        shutil.copytree(ROOT, place, ignore=ignored)
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            if fails(tests, place):
                raise SystemExit(f"{tests} fails with nothing planted")
        for mutation in chosen:
            begin = time.perf_counter()
            dead = killed(mutation, place)
            seconds = time.perf_counter() - begin
            print(
                f"{'killed  ' if dead else 'SURVIVED'} {seconds:4.0f} s  {mutation.name}",
                flush=True,
            )
            survivors += [] if dead else [mutation.name]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    raise SystemExit(bool(survivors))


if __name__ == "__main__":
    main()
