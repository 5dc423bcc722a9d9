"""python -m tests.mutations [WORD …]: single wrong lines, each of which some test must catch.

Not part of the suite. Every mutation is applied to a copy of the package; its tests must then fail.
The test that fails first must pass with nothing planted, or the line is UNKNOWN, and so it is where
pytest breaks off or a test runs out of time. With words, only mutations whose name has one of them.
"""

import argparse
import os
import re
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from tests.mutations_of_happo import HAPPO
from tests.mutations_of_kernels import KERNELS
from tests.mutations_of_runs import RUNS
from tests.mutations_of_worlds import MPE
from tests.support.forked_pytest import Ended, forked_pytest

ROOT = Path(__file__).parent.parent
WIRING = "tests/learning/test_wiring.py"
BOUNDS = "tests/envs/test_bounds.py"
CONTINUOUS = "tests/policies/test_continuous_actions.py"
TIME_LIMITS = ("TimeoutExpired", "TimeoutError")


class Mutation(NamedTuple):
    name: str
    file: str
    right: str
    wrong: str
    tests: str = WIRING


MUTATIONS = [
    Mutation(
        "final_obs of the next episode",
        "learning/acting.py",
        "PolicyInput(timestep.final_obs, timestep.final_state, mask, goes_on)",
        "PolicyInput(timestep.obs, timestep.final_state, mask, goes_on)",
    ),
    Mutation(
        "final view valued with void memory",
        "learning/acting.py",
        "goes_on = jnp.zeros(timestep.truncated.shape, timestep.reward.dtype)",
        "goes_on = jnp.ones(timestep.truncated.shape, timestep.reward.dtype)",
        f"{WIRING} -k rmappo",
    ),
    Mutation(
        "memory not reset at a time limit",
        "learning/acting.py",
        "starts = timestep.over.astype",
        "starts = timestep.terminated.all(-1).astype",
    ),
    Mutation(
        "memory never reset",
        "learning/acting.py",
        "starts = timestep.over.astype(timestep.obs.dtype)",
        "starts = 0 * timestep.over.astype(timestep.obs.dtype)",
    ),
    Mutation(
        "final_value ignored",
        "learning/rollout.py",
        "jnp.where(steps.truncated[..., None], steps.final_value, following)",
        "following",
    ),
    Mutation(
        "last bootstrap 0",
        "learning/rollout.py",
        "jnp.concatenate([steps.output.value[1:], last_value[None]])",
        "jnp.concatenate([steps.output.value[1:], 0 * last_value[None]])",
    ),
    Mutation(
        "time_limit always bootstrap",
        "learning/returns.py",
        'no_future = terminated if time_limit == "bootstrap" else ended',
        "no_future = terminated",
        f"{WIRING} -k mappo",
    ),
    Mutation(
        "squares of gradients overflow",
        "learning/update.py",
        "return lax.cond(exact, lambda: jnp.sqrt(squares), lambda: _scaled_norm(x))",
        "return jnp.sqrt(squares)",
        "tests/learning/test_update.py",
    ),
    Mutation(
        "masks dropped in player_view",
        "policies/base.py",
        "action_mask=_player_mask(spec, player.agents, seen.action_mask),",
        "action_mask=None,",
    ),
    Mutation(
        "masks of other agents in player_view",
        "policies/base.py",
        "return mask[..., pick(agents), :]",
        "return mask[..., : len(agents), :]",
    ),
    Mutation(
        "an agent apart does not see its team",
        "policies/base.py",
        "team_obs=None if team is None else _views(spec, team, seen.obs),",
        "team_obs=None if team is None else _views(spec, team, 0 * seen.obs),",
        f"{WIRING} -k apart",
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
        "as_rows(value_mask(batch))",
        "as_rows(batch.active)",
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
        "policies/actor_critic_nets.py",
        "if len(set(sizes)) == 1:",
        "if True:",
        "tests/policies/test_actor_critic.py",
    ),
    Mutation(
        "who is out counts in observations' moments",
        "learning/running_statistics.py",
        "self.obs.update(seen.obs, reduce, active[..., None])",
        "self.obs.update(seen.obs, reduce)",
        f"{WIRING} -k ippo",
    ),
    Mutation(
        "who did not act counts in rewards' moments",
        "learning/running_statistics.py",
        "counted = (active[..., None] & self._members()[None])",
        "counted = ((active | True)[..., None] & self._members()[None])",
        f"{WIRING} -k ippo",
    ),
    Mutation(
        "one reward scale for everybody",
        "learning/running_statistics.py",
        "+ eps)[self._members().argmax(1)]",
        "+ eps)[0 * self._members().argmax(1)]",
        "tests/learning/test_running_statistics.py",
    ),
    Mutation(
        "the global state stays raw",
        "learning/running_statistics.py",
        "state = self.state.normalise(state)",
        "state = state",
        f"{WIRING} -k apart",
    ),
    Mutation(
        "final states stay raw",
        "learning/rollout.py",
        "last = normalised(policies[i], final_view(spec, player, after.timestep))",
        "last = final_view(spec, player, after.timestep)",
        f"{WIRING} -k ippo",
    ),
    Mutation(
        "evaluation counts past the first episode",
        "learning/episodes.py",
        "running * (1.0 - timestep.over)), None",
        "running * 1.0), None",
        f"{WIRING} -k first_episodes",
    ),
    Mutation(
        "evaluation ends with the first agent",
        "learning/episodes.py",
        "running * (1.0 - timestep.over)",
        "running * (1.0 - (timestep.truncated | timestep.terminated.any(-1)))",
        f"{WIRING} -k first_episodes",
    ),
    Mutation(
        "evaluation without statistics",
        "learning/acting.py",
        "return normalised(policy, raw_view(spec, player, timestep))",
        "return raw_view(spec, player, timestep)",
        f"{WIRING} -k ippo",
    ),
    Mutation(
        "active ignored",
        "learning/rollout.py",
        "active=before.active[:, mine].astype(dtype),",
        "active=jnp.ones_like(after.reward[:, mine]),",
    ),
    Mutation(
        "active of the step after",
        "learning/rollout.py",
        "active=before.active[:, mine]",
        "active=after.active[:, mine]",
    ),
    Mutation(
        "values not denormalised for GAE",
        "learning/ppo.py",
        "known, ahead = value_norm.denormalise(value), value_norm.denormalise(ahead)",
        "known = value",
    ),
    Mutation(
        "PopArt's old values in wrong units",
        "learning/ppo.py",
        'value=known if self.objective.value_norm == "popart" else value,',
        "value=value,",
        f"{WIRING} -k mappo",
    ),
    Mutation(
        "statistics learn before they are used",
        "learning/ppo.py",
        "return scale, scale.normalise(reward)",
        "return scale, known.normalise(reward)",
        f"{WIRING} -k ippo",
    ),
    Mutation(
        "reward not shared by team",
        "learning/rollout.py",
        "reward=shared_reward(after.reward, spec.teams, player.reward)[:, mine]",
        "reward=after.reward[:, mine]",
    ),
    Mutation(
        "ends of the world for everybody",
        "learning/rollout.py",
        'if agent_end == "own":',
        'if agent_end == "never":',
        f"{WIRING} -k rmappo",
    ),
    Mutation(
        "ends of agents where the world's were asked for",
        "learning/rollout.py",
        "    return jnp.broadcast_to(terminated.all(-1, keepdims=True), terminated.shape)",
        "    return terminated",
        f"{WIRING} -k mappo",
    ),
    Mutation(
        "advantages normalised over all agents",
        "learning/ppo.py",
        "(advantage, played.active)]",
        "(advantage, jnp.ones_like(advantage))]",
    ),
    Mutation(
        "one shuffle for all epochs",
        "learning/minibatches.py",
        "order = jax.random.permutation(key, count) if shuffled",
        "order = jax.random.permutation(jax.random.key(0), count) if shuffled",
        "tests/learning/test_update.py",
    ),
    Mutation(
        "minibatches of neighbouring worlds",
        "learning/minibatches.py",
        "groups = jnp.moveaxis(x.reshape(length, worlds // count, count, *rest), 2, 0)",
        "groups = jnp.moveaxis(x.reshape(length, count, worlds // count, *rest), 1, 0)",
        "tests/learning/test_update.py",
    ),
    Mutation(
        "chunks of different worlds mixed",
        "learning/minibatches.py",
        "jnp.moveaxis(pieces, 0, 2)",
        "jnp.moveaxis(pieces, 0, 1)",
        "tests/learning/test_update.py",
    ),
    Mutation(
        "the same noise in every shard",
        "learning/collectives.py",
        "return self.index * num_envs + jnp.arange(num_envs)",
        "return jnp.arange(num_envs)",
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
    *(Mutation(*given) for given in (*RUNS, *KERNELS, *HAPPO, *MPE)),
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
        "kernels/gamma.py",
        "jnp.where(accepted, v, taken)",
        "jnp.where(accepted, taken, v)",
        CONTINUOUS,
    ),
    Mutation(
        "continuous: entropy of beta with ψ(α + β + 1)",
        "policies/continuous_actions.py",
        "return constant - expected + both * digamma(2 + both)",
        "return constant - expected + both * digamma(3 + both)",
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
        "policies/actor_critic_nets.py",
        "logits = self.space.from_unit(jax.nn.sigmoid(logits))",
        "logits = jax.nn.sigmoid(logits)",
        "tests/policies/test_actor_critic.py",
    ),
    Mutation(
        "continuous: bounds are not asked for",
        "algorithms/distributions.py",
        "if (bounded or net.squash_mean) and fault:",
        "if net.squash_mean and fault:",
        "tests/config/test_train_config.py",
    ),
    Mutation(
        "torch: weights keep torch's layout",
        "references/base.py",
        'return np.swapaxes(weight, -1, -2) if ours.endswith("kernel") else weight',
        "return weight",
        "tests/parity/test_torch_weights.py",
    ),
    Mutation(
        "torch: pickled objects are loaded",
        "runs/torch_files.py",
        "weights_only=True",
        "weights_only=False",
        "tests/runs/test_torch_checkpoints.py",
    ),
    Mutation(
        "warm start: a resumed run loads again",
        "runs/warm_start.py",
        "if config.init_from is None or (path and written_checkpoints(path / CHECKPOINTS)):",
        "if config.init_from is None:",
        "tests/runs/test_warm_start.py",
    ),
    Mutation(
        "continuous: a Gaussian's checkpoint for any distribution",
        "references/base.py",
        'if isinstance(policy.space, Box) and policy.distribution != "gaussian":',
        'if not isinstance(policy.space, Box) and policy.distribution != "gaussian":',
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


class Trial(NamedTuple):
    """What the tests of a planted line say of it."""

    mutation: Mutation
    verdict: str  # "killed", "SURVIVED" or "UNKNOWN"
    reason: str  # the test that fails first, or the end of a run that says nothing
    seconds: float


def failed(output: str) -> list[str]:
    """The names of the tests that did, as pytest takes them."""
    return re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", output, re.MULTILINE)


def verdict(done: Ended) -> tuple[str, str]:
    """What a run of tests says of the planted line, and why.

    A test that fails because its time is over says that the machine is busy.
    """
    if done.exit_code == 0:
        return "SURVIVED", ""
    first = failed(done.output)
    if done.exit_code == 1 and first and not any(limit in done.output for limit in TIME_LIMITS):
        return "killed", first[0]
    return "UNKNOWN", done.output[-2000:]


def tried(mutation: Mutation, place: Path) -> Trial:
    """Its tests, run with the line planted in the copy in `place`."""
    path = place / "jmarl" / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.right, mutation.wrong), encoding="utf-8")
    begin = time.perf_counter()
    try:
        done = forked_pytest(place, "-x", *mutation.tests.split())
    finally:
        path.write_text(text, encoding="utf-8")
    return Trial(mutation, *verdict(done), time.perf_counter() - begin)


def confirmed(trials: list[Trial], place: Path) -> list[Trial]:
    """The same trials; unknown is who was killed by a test that fails with nothing planted."""
    killers = sorted({trial.reason for trial in trials if trial.verdict == "killed"})
    if not killers:
        return trials
    done = forked_pytest(place, *killers)
    if done.exit_code not in (0, 1):
        raise SystemExit(f"pytest could not run\n{done.output[-2000:]}")
    broken = failed(done.output)
    return [
        trial._replace(verdict="UNKNOWN", reason=f"{trial.reason} fails with nothing planted")
        if trial.reason in broken
        else trial
        for trial in trials
    ]


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the checkout does not need: results of runs at its top, caches."""
    unneeded = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", "*.egg-info")
    at_top = {"runs"} if Path(folder) == ROOT else set()
    return unneeded(folder, names) | at_top & set(names)


def copies(directory: str, count: int) -> Queue[Path]:
    """Places for lines to be planted in, one for each that is tried at the same time."""
    places: Queue[Path] = Queue()
    for i in range(count):
        shutil.copytree(ROOT, Path(directory) / str(i), ignore=left_out)
        places.put(Path(directory) / str(i))
    return places


def all_tried(mutations: list[Mutation], places: Queue[Path]) -> list[Trial]:
    """Every mutation tried, as many at once as there are places; a line of each as it ends."""

    def in_a_place(mutation: Mutation) -> Trial:
        place = places.get()
        try:
            trial = tried(mutation, place)
        finally:
            places.put(place)
        took = f"{trial.seconds:4.0f} s"
        print(f"{trial.verdict:8} {took}  {mutation.name}: {trial.reason}", flush=True)
        return trial

    with ThreadPoolExecutor(places.qsize()) as pool:
        return list(pool.map(in_a_place, mutations))


def main() -> None:
    about = "Plant wrong lines, each of which some test must catch."
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=about)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only lines whose name has a WORD")
    words = parser.parse_args().words
    chosen = [m for m in MUTATIONS if not words or any(word in m.name for word in words)]
    check(MUTATIONS, ROOT)
    with tempfile.TemporaryDirectory() as directory:
        places = copies(directory, os.cpu_count() or 1)
        trials = confirmed(all_tried(chosen, places), places.get())
    left = [trial for trial in trials if trial.verdict != "killed"]
    for trial in left:
        print(f"{trial.verdict}  {trial.mutation.name}: {trial.reason}")
    print(f"{len(trials) - len(left)} of {len(trials)} killed")
    raise SystemExit(bool(left))


if __name__ == "__main__":
    main()
