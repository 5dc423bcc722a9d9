"""What stands between the equations: a rollout, its batch and an evaluation, replayed by plain
loops.

The world is made for it: two teams of unlike agents, masks that change, worlds that end at
different times, by an end or by a time limit, and an agent that is out before its world ends.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnasium.wrappers.utils import RunningMeanStd

from jmarl.algorithms.build import make_groups, make_trainer
from jmarl.config.train_config import build
from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, Outcome, padded_view
from jmarl.envs.spaces import Discrete
from jmarl.learning.episodes import play_episodes
from jmarl.learning.rollout import rollout, world_keys
from jmarl.learning.running_statistics import UNCHANGED, ValueNorm
from jmarl.types import Perception, float_dtype
from tests.support import torch_core

E, T, N, A, GAMMA, LAMBDA = 5, 12, 3, 3, 0.9, 0.8
STATISTICS = {"normalise_obs": True, "normalise_reward": True, "value_norm": "none"}
CASES = {
    "mat": {"algorithm": "mat"},
    "mappo": {
        "algorithm": "mappo",
        "ppo": {"value_norm": "popart", "time_limit": "terminal", "agent_end": "world"},
    },
    "rmappo": {"algorithm": "rmappo", "ppo": {"reward": "individual"}},
    "ippo": {"algorithm": "ippo", "ppo": STATISTICS},
    "mappo, agents apart": {
        "algorithm": "mappo",
        "net": {"share": "none", "critic_input": "all_and_state"},
        "ppo": STATISTICS | {"reward": "individual"},
    },
}
SIZES = (4, 3, 2)  # of observations


class StageState(struct.PyTreeNode):
    clock: jax.Array  # [] int32
    length: jax.Array  # [] int32: 3 to 6 steps
    real_end: jax.Array  # [] bool, or a time limit
    tally: jax.Array  # [N]: what was done so far
    phase: jax.Array  # []


class Stage:
    """One world. Agent 1 is out from step 2."""

    spec = EnvSpec(
        name="test/stage",
        agents=("first", "second", "third"),
        teams=(Team("pair", (0, 1)), Team("single", (2,))),
        obs_sizes=SIZES,
        action_spaces=(Discrete(A),) * N,
        state_size=sum(SIZES),
        episode_length=6,
        dialect="test",
        varying_action_mask=True,
    )

    def reset(self, key):
        keys = jax.random.split(key, 3)
        state = StageState(
            clock=jnp.zeros((), jnp.int32),
            length=jax.random.randint(keys[0], (), 3, 7).astype(jnp.int32),
            real_end=jax.random.bernoulli(keys[1]),
            tally=jnp.zeros(N, float_dtype()),
            phase=jax.random.uniform(keys[2], (), float_dtype()),
        )
        return state, self.view(state)

    def step(self, key, state, action):
        del key
        reward = (action - 1.0) * (1 + jnp.arange(N)) + state.phase + state.clock / 10
        state = state.replace(clock=state.clock + 1, tally=0.5 * state.tally + action)
        view, over = self.view(state), state.clock >= state.length
        terminated = (over & state.real_end) | ~view.active
        return state, Outcome(view, reward, terminated, over & ~state.real_end)

    def view(self, state):
        clock = state.clock / 6
        obs = [
            jnp.stack([clock, state.tally[0], state.phase, jnp.asarray(0.5)]),
            jnp.stack([clock, state.tally[1], -state.phase]),
            jnp.stack([state.tally.sum(), 1 - clock]),
        ]
        illegal = jnp.arange(A)[None] == (state.clock + jnp.arange(N))[:, None] % A
        active = jnp.array([True, False, True]) | (state.clock < 2)
        return padded_view(self.spec, obs, action_mask=~illegal, active=active)


class Recorded(NamedTuple):
    trainer: object
    hyper: object
    start: object
    after: object
    played: list
    key: object


def made(name):
    case = CASES[name]
    ppo = {"gamma": GAMMA, "gae_lambda": LAMBDA, "num_minibatches": 1} | case.get("ppo", {})
    net = {"n_embd": 8, "hidden": [8]} | case.get("net", {})
    values = {"algorithm": case["algorithm"], "env": "probe/coordination", "num_envs": E}
    config = build(values | {"rollout_length": T, "net": net, "ppo": ppo})
    trainer, hyper = make_trainer(config)
    env = Batched(Stage())
    return dataclasses.replace(trainer, env=env, groups=make_groups(config, env.spec)), hyper


@pytest.fixture(scope="module", params=list(CASES))
def recorded(request, unwatched):
    """One rollout from the middle of a run: memories, episodes and statistics are under way."""
    with jax.enable_x64(True):
        trainer, hyper = made(request.param)
        env, groups, key = trainer.env, trainer.groups, jax.random.key(7)

        def play(state, key):
            share, end = trainer.share, trainer.agent_end
            worlds = jnp.arange(E)
            return rollout(env, groups, state, key, worlds, T, share, GAMMA, agent_end=end)

        start = jax.jit(trainer.init)(jax.random.key(3))
        start, _ = jax.jit(play)(start, jax.random.key(5))
        after, played = jax.jit(play)(start, key)
        yield Recorded(trainer, hyper, start, after, played, key)


def of_world(tree, e):
    return jax.tree.map(lambda x: x[e : e + 1], tree)


def perceived(view, group, statistics):
    """What one world's agents of a group see, `[1, …]`, in the running units of `statistics`. No
    episode begins: the loops below void memories themselves."""
    obs, state = np.asarray(view.obs), np.asarray(view.state)
    if statistics:
        obs = np.stack([normed(o, m) for o, m in zip(obs, statistics.obs, strict=True)])
        state = normed(state, statistics.state) if statistics.state else state

    def seen_by(agents):  # without what only others see
        return jnp.asarray(obs[list(agents), : max(SIZES[i] for i in agents)])[None]

    team = {"first": (0, 1), "second": (0, 1), "third": (2,)}.get(group.name)
    return Perception(
        obs=seen_by(group.agents),
        state=jnp.asarray(state)[None],
        action_mask=view.action_mask[jnp.array(group.agents)][None],
        fresh=jnp.zeros(1),
        team_obs=None if team is None else seen_by(team),
    )


def normed(x, moments):
    return ((x - moments.mean) / np.sqrt(moments.var + 1e-8)).clip(-10, 10)


def running(given, index=()):
    """gymnasium's own class, from where ours are."""
    moments = RunningMeanStd()
    moments.mean, moments.var = (np.asarray(x)[index] for x in (given.mean, given.variance))
    moments.count = float(np.asarray(given.count)[index].reshape(()))
    return moments


class Statistics:
    """Running units of observations, states and rewards."""

    def __init__(self, norms, groups):
        self.obs = [running(norms.obs, i) for i in range(N)]
        self.state = norms.state and running(norms.state)
        self.parts = [list(group.agents) for group in groups]  # each within one team
        self.paid = [running(norms.reward.moments, p) for p in range(len(groups))]
        self.sum = np.array(norms.reward.running)

    def learn(self, views, acted, reward, terminated):
        """After every step, in all worlds: what agents see that are there, and the sums of those
        who acted."""
        for i, own in enumerate(self.obs):
            there = [np.asarray(view.obs[i]) for view in views if view.active[i]]
            if there:
                own.update(np.stack(there))
        if self.state:
            self.state.update(np.stack([np.asarray(view.state) for view in views]))
        self.sum = self.sum * GAMMA * ~terminated + reward
        for part, own in zip(self.parts, self.paid, strict=True):
            sums = self.sum[:, part][acted[:, part]]
            if sums.size:
                own.update(sums)

    def scale(self, reward):
        scaled = np.zeros_like(reward)
        for part, own in zip(self.parts, self.paid, strict=True):
            scaled[:, part] = (reward[:, part] / np.sqrt(own.var + 1e-8)).clip(-10, 10)
        return scaled


def replay(recorded):
    """By world, step and agent, with the recorded actions. Yields (t, e, group, expected)."""
    trainer, start, played = recorded.trainer, recorded.start, recorded.played
    world = trainer.env.world
    step, reset, view = (jax.jit(getattr(world, name)) for name in ("step", "reset", "view"))
    groups, norms = trainer.groups, start.normalisers
    states = [jax.tree.map(lambda x, e=e: x[e], start.env) for e in range(E)]
    views = [view(state) for state in states]
    memory = [[of_world(kept, e) for kept in start.memory] for e in range(E)]
    begun = np.array(start.timestep.over)
    statistics = None if norms == UNCHANGED else Statistics(norms, groups)
    step_keys = jax.random.split(jax.random.split(recorded.key, 3)[1], T)
    act, value = ([jax.jit(getattr(g.policy, name)) for g in groups] for name in ("act", "value"))

    for t in range(T):
        seen, decided = {}, {}
        for e in range(E):
            for g, group in enumerate(groups):
                if begun[e]:
                    memory[e][g] = group.policy.memory(1)
                seen[e, g] = perceived(views[e], group, statistics)
                noise = group.policy.draw_noise(jax.random.key(0), 1)  # values do not depend on it
                given = (start.params[g], noise, memory[e][g], seen[e, g])
                before = memory[e][g]
                memory[e][g], decision = act[g](*given)
                decided[e, g] = (decision, before, bool(begun[e]))
        outcomes, restarted = [], []
        keys = jax.vmap(jax.random.fold_in, (0, None))(world_keys(step_keys[t], jnp.arange(E)), 1)
        for e in range(E):
            action = np.zeros(N, int)
            for g, group in enumerate(groups):
                action[list(group.agents)] = played[g].decision.action[t, e]
            states[e], outcome = step(None, states[e], jnp.asarray(action))
            outcomes.append(outcome)
            over = bool(outcome.truncated | outcome.terminated.all())
            restarted.append(reset(keys[e]) if over else (states[e], outcome.view))
            begun[e] = over
        reward = np.array([o.reward for o in outcomes])
        gone = np.array([o.terminated for o in outcomes])
        there = np.array([view.active for view in views])
        for team in {"own": [], "team": [[0, 1], [2]], "world": [[0, 1, 2]]}[trainer.agent_end]:
            gone[:, team] = gone[:, team].all(-1, keepdims=True)
            there[:, team] = there[:, team].any(-1, keepdims=True)
        if trainer.share == "team_mean":
            reward[:, :2] = reward[:, :2].mean(-1, keepdims=True)
        paid = reward
        if statistics:
            acted = np.array([view.active for view in views])
            statistics.learn([view for _, view in restarted], acted, reward, gone)
            paid = statistics.scale(reward)
        for e in range(E):
            for g, group in enumerate(groups):
                mine, (decision, before, first) = list(group.agents), decided[e, g]
                expected = {
                    "perception.obs": seen[e, g].obs[0],
                    "perception.state": seen[e, g].state[0],
                    "perception.action_mask": seen[e, g].action_mask[0],
                    "perception.fresh": first,
                    "decision.value": decision.value[0],
                    "active": np.asarray(views[e].active)[mine],
                    **({"valued": there[e, mine]} if trainer.agent_end == "team" else {}),
                    "reward": paid[e, mine],
                    "paid": reward[e, mine],
                    "terminated": gone[e, mine],
                    "truncated": outcomes[e].truncated,
                }
                if seen[e, g].team_obs is not None:
                    expected["perception.team_obs"] = seen[e, g].team_obs[0]
                for part in () if first else before:  # a GRU's memory before it acted
                    expected[f"decision.context.{part}"] = before[part][0]
                if outcomes[e].truncated:  # elsewhere it is not looked at
                    after = perceived(outcomes[e].view, group, statistics)
                    final = value[g](start.params[g], None, memory[e][g], after)
                    expected["final_value"] = final[0]
                yield (t, e, g), expected
        states, views = map(list, zip(*restarted, strict=True))


def found(transition, name):
    for part in name.split("."):
        transition = transition[part] if isinstance(transition, dict) else getattr(transition, part)
    return transition


def test_a_rollout_is_what_a_plain_loop_plays(recorded):
    names, ends = set(), 0
    for (t, e, g), expected in replay(recorded):
        for name, value in expected.items():
            ours = np.asarray(found(recorded.played[g], name))[t, e]
            np.testing.assert_allclose(ours, value, atol=1e-9, err_msg=f"{name} {t} {e} {g}")
            names.add(name)
        ends += bool(expected["truncated"])
    assert ends > 3
    assert len(names) >= 10
    first, second = np.moveaxis(of_pair(recorded, "terminated"), -1, 0)
    assert (first != second).any() == (recorded.trainer.agent_end == "own")
    assert not of_pair(recorded, "active").all()


def of_pair(recorded, name):
    """`[T, E, 2]`: of the team whose second agent is out early, in one group or two."""
    parts = [np.asarray(getattr(played, name)) for played in recorded.played]
    return np.concatenate(parts, axis=-1)[..., :2]


@pytest.mark.parametrize("group", [0, 1])
def test_a_batch_is_counted_from_its_rollout(recorded, group):
    """With value statistics that are neither 0 nor 1."""
    trainer, played = recorded.trainer, recorded.played[group]
    norm = ValueNorm.create().update(jnp.asarray(3.0), jnp.asarray(4.0))  # mean 3, deviation 2
    last = jnp.asarray(np.random.default_rng(0).normal(size=played.final_value.shape[1:]))
    batch, metrics = jax.jit(trainer._batch)(played, last, norm, recorded.hyper)

    def real(value):
        value = np.asarray(value)
        return value if trainer.objective.value_norm == "none" else 3.0 + 2.0 * value

    value = real(played.decision.value)
    following = np.concatenate([value[1:], real(last)[None]])
    cut = np.asarray(played.truncated)
    ahead = np.where(cut[..., None], real(played.final_value), following)
    ends = (np.asarray(played.terminated), cut)
    reward = np.asarray(played.reward)
    advantage, target = torch_core.gae_loop(
        reward, value, ahead, *ends, GAMMA, LAMBDA, trainer.time_limit
    )
    np.testing.assert_allclose(batch.target, target, atol=1e-9)
    own = trainer.objective.value_norm == "popart"
    np.testing.assert_allclose(batch.value, value if own else played.decision.value, atol=1e-9)
    np.testing.assert_array_equal(batch.active, played.active)
    np.testing.assert_array_equal(batch.log_prob, played.decision.log_prob)
    if trainer.objective.advantage_norm == "batch":
        acted = advantage[np.asarray(played.active) > 0]
        advantage = (advantage - acted.mean()) / (acted.std() + 1e-5)
    np.testing.assert_allclose(batch.advantage, advantage, atol=1e-9)
    counted = {
        "own": np.asarray(played.active) > 0,
        "team": np.ones(reward.shape, bool),  # somebody of each team is always there
        "world": np.ones(reward.shape, bool),
    }[trainer.agent_end]
    paid, error = (np.asarray(x)[counted] for x in (played.paid, target - value))
    np.testing.assert_allclose(metrics["train/reward"], paid.mean())
    explained = 1 - error.var() / target[counted].var()
    np.testing.assert_allclose(metrics["losses/explained_variance"], explained)


@pytest.mark.parametrize("group", [0, 1])
def test_a_minibatch_is_evaluated_as_it_was_played(recorded, group):
    """Every row's ratio is 1 and its value is the recorded one, until parameters change."""
    trainer, played = recorded.trainer, recorded.played[group]
    policy, params = trainer.groups[group].policy, recorded.start.params[group]
    last = jnp.zeros(played.final_value.shape[1:])

    def evaluated(key):
        batch, _ = trainer._batch(played, last, ValueNorm.create(), recorded.hyper)
        minibatch, _ = trainer._minibatches(policy, batch)(key)(0)
        rows = jax.tree.map(lambda x: x[0], minibatch)  # its only piece
        return rows, policy.evaluate(params, rows.context, rows.perception, rows.action)

    rows, now = jax.jit(evaluated)(jax.random.key(0))
    assert rows.active.size == played.active.size
    np.testing.assert_allclose(now.log_prob, rows.log_prob, atol=1e-9)
    assert np.ptp(np.asarray(rows.log_prob)) > 1e-3
    if trainer.objective.value_norm != "popart":  # whose batch has values in units of returns
        np.testing.assert_allclose(now.value, rows.value, atol=1e-9)


def test_an_evaluation_counts_first_episodes_only(recorded):
    trainer, start = recorded.trainer, recorded.start
    env, groups, norms = trainer.env, trainer.groups, start.normalisers
    norms = norms if norms.obs is not None else UNCHANGED
    key, episodes = jax.random.key(11), 6
    seen = jax.jit(
        lambda p: play_episodes(env, groups, p, key, episodes, deterministic=True, norms=norms)
    )(start.params)
    reset_key = jax.random.split(key, 3)[0]
    states, _ = env.reset(reset_key, episodes)
    statistics = None if norms == UNCHANGED else Statistics(norms, groups)
    act = [jax.jit(partial(group.policy.act, deterministic=True)) for group in groups]
    step = jax.jit(env.world.step)
    for e in range(episodes):
        state = jax.tree.map(lambda x, e=e: x[e], states)
        memory = [group.policy.memory(1) for group in groups]
        view, over, total, length = env.world.view(state), False, np.zeros(N), 0
        while not over:
            action = np.zeros(N, int)
            for g, group in enumerate(groups):
                sight = perceived(view, group, statistics)
                noise = group.policy.draw_noise(jax.random.key(0), 1)
                given = (start.params[g], noise, memory[g], sight)
                memory[g], decision = act[g](*given)
                action[list(group.agents)] = decision.action[0]
            state, outcome = step(None, state, jnp.asarray(action))
            view, over = outcome.view, bool(outcome.truncated | outcome.terminated.all())
            total, length = total + np.asarray(outcome.reward), length + 1
        np.testing.assert_allclose(seen.agent_return[e], total, atol=1e-9)
        assert seen.length[e] == length
    assert len(set(np.asarray(seen.length))) > 1


@pytest.mark.parametrize("inactive", [False, True])
def test_value_statistics_leave_out_who_is_out(recorded, inactive):
    """Unless the references' rule is asked for."""
    of_group = 1 if len(recorded.played) == N else 0  # that of the agent who is out early
    trainer, played = recorded.trainer, recorded.played[of_group]
    last = jnp.zeros(played.final_value.shape[1:])
    batch, _ = jax.jit(trainer._batch)(played, last, ValueNorm.create(), recorded.hyper)
    objective = dataclasses.replace(trainer.objective, inactive_targets=inactive)
    facts = jax.jit(objective.facts)(batch)
    target, active = np.asarray(batch.target), np.asarray(batch.active) > 0
    valued = active if batch.valued is None else np.asarray(batch.valued) > 0
    assert (valued == active).all() == (trainer.agent_end != "team")
    counted = target if inactive else target[valued]
    np.testing.assert_allclose(facts.target_mean, counted.mean())
    np.testing.assert_allclose(facts.target_variance, counted.var())
    assert not active.all()
    learned_of = active if inactive else valued
    expected = [active.sum(), T * E, active.size, learned_of.sum()]
    np.testing.assert_allclose(facts.counts, expected)
