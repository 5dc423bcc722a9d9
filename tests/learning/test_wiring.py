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

from benchmarks import matrix
from jmarl.algorithms.build import make_players, make_trainer
from jmarl.algorithms.ppo import make_learner
from jmarl.config.train_config import build
from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, StepResult, padded_view
from jmarl.envs.spaces import Discrete
from jmarl.learning.acting import world_keys
from jmarl.learning.collectives import Layout
from jmarl.learning.episodes import play_episodes
from jmarl.learning.minibatches import minibatches
from jmarl.learning.rollout import rollout
from jmarl.learning.running_statistics import ValueNorm
from jmarl.types import PolicyInput, float_dtype
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
        return state, StepResult(view, reward, terminated, over & ~state.real_end)

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


def learned_scales(trainer, state, played, hyper):
    """The learners' states once they have seen a rollout's rewards."""
    after = []
    for learner, known, own in zip(trainer.learners, state.learners, played, strict=True):
        scaled = jax.jit(lambda k, p, r=learner: r.scaled_reward(k, p, hyper, Layout()))
        after.append(known.replace(reward_scale=scaled(known.reward_scale, own)[1]))
    return tuple(after)


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
    net = matrix.tiny(case["algorithm"])["net"] | case.get("net", {})
    values = {"algorithm": case["algorithm"], "env": "probe/coordination", "num_envs": E}
    config = build(values | {"rollout_length": T, "net": net, "ppo": ppo})
    trainer, hyper = make_trainer(config)
    env = Batched(Stage())
    players = make_players(config, env.spec)
    learners = tuple(make_learner(config, env.spec, player) for player in players)
    return dataclasses.replace(trainer, env=env, players=players, learners=learners), hyper


@pytest.fixture(scope="module", params=list(CASES))
def recorded(request, unwatched):
    """One rollout from the middle of a run: memories, episodes and statistics are under way."""
    with jax.enable_x64(True), jax.debug_key_reuse(False):
        trainer, hyper = made(request.param)
        env, players, key = trainer.env, trainer.players, jax.random.key(7)

        def play(state, key):
            lengths = [learner.sequence_length for learner in trainer.learners]
            keys = (key, jax.random.fold_in(key, 1))
            return rollout(env, players, state, keys, T, lengths, Layout())[:2]

        start = jax.jit(trainer.init)(jax.random.key(3))
        start, before = jax.jit(play)(start, jax.random.key(5))
        start = start.replace(learners=learned_scales(trainer, start, before, hyper))
        after, played = jax.jit(play)(start, key)
        yield Recorded(trainer, hyper, start, after, played, key)


def of_world(tree, e):
    return jax.tree.map(lambda x: x[e : e + 1], tree)


def perceived(view, group, statistics):
    """What one world's agents of a group see, `[1, …]`, in the running units of `statistics`. No
    episode begins: the loops below void memories themselves."""
    obs, state = np.asarray(view.obs), np.asarray(view.state)
    if statistics:
        sized = zip(obs, SIZES, statistics.obs, strict=True)
        obs = np.stack([np.pad(normed(o[:n], cut(m, n)), (0, 4 - n)) for o, n, m in sized])
        state = normed(state, statistics.state) if statistics.state else state

    def seen_by(agents):  # without what only others see
        return jnp.asarray(obs[list(agents), : max(SIZES[i] for i in agents)])[None]

    team = {"first": (0, 1), "second": (0, 1), "third": (2,)}.get(group.name)
    return PolicyInput(
        obs=seen_by(group.agents),
        state=jnp.asarray(state)[None],
        action_mask=view.action_mask[jnp.array(group.agents)][None],
        episode_start=jnp.zeros(1),
        team_obs=None if team is None else seen_by(team),
    )


def normed(x, moments):
    return ((x - moments.mean) / np.sqrt(moments.var + 1e-8)).clip(-10, 10)


def cut(moments, size):
    """Of the first features."""
    kept = RunningMeanStd()
    kept.mean, kept.var = moments.mean[:size], moments.var[:size]
    return kept


def running(given, index=()):
    """gymnasium's own class, from where ours are."""
    moments = RunningMeanStd()
    moments.mean, moments.var = (np.asarray(x)[index] for x in (given.mean, given.variance))
    moments.count = float(np.asarray(given.count)[index].reshape(()))
    return moments


class Statistics:
    """Running units of observations, states and rewards."""

    def __init__(self, state, players):
        self.obs = [None] * N
        self.parts = [list(group.agents) for group in players]  # each within one team
        self.sum = np.zeros((E, N))
        for group, policy, learner in zip(players, state.policies, state.learners, strict=True):
            for place, agent in enumerate(group.agents):
                self.obs[agent] = running(policy.obs_stats.obs, place)
            self.sum[:, list(group.agents)] = learner.reward_scale.running
        known = state.policies[0].obs_stats.state
        self.state = known and running(known)
        self.raw_reward = [running(own.reward_scale.moments, 0) for own in state.learners]

    def learn(self, views, acted, reward, terminated):
        """After every step, in all worlds: what agents see that are there, and the sums of those
        who acted."""
        for i, own in enumerate(self.obs):
            there = [np.asarray(view.obs[i]) for view in views if view.active[i]]
            if there:
                own.update(np.stack(there)[:, : len(own.mean)])
        if self.state:
            self.state.update(np.stack([np.asarray(view.state) for view in views]))
        self.sum = self.sum * GAMMA * ~terminated + reward
        for part, own in zip(self.parts, self.raw_reward, strict=True):
            sums = self.sum[:, part][acted[:, part]]
            if sums.size:
                own.update(sums)

    def scale(self, reward):
        scaled = np.zeros_like(reward)
        for part, own in zip(self.parts, self.raw_reward, strict=True):
            scaled[:, part] = (reward[:, part] / np.sqrt(own.var + 1e-8)).clip(-10, 10)
        return scaled


def replay(recorded):
    """By world, step and agent, with the recorded actions. Yields (t, e, group, expected)."""
    trainer, start, played = recorded.trainer, recorded.start, recorded.played
    world = trainer.env.world
    step, reset, view = (jax.jit(getattr(world, name)) for name in ("step", "reset", "view"))
    players = trainer.players
    states = [jax.tree.map(lambda x, e=e: x[e], start.env) for e in range(E)]
    views = [view(state) for state in states]
    memory = [[of_world(kept, e) for kept in start.memory] for e in range(E)]
    begun = np.array(start.timestep.over)
    statistics = Statistics(start, players) if start.policies[0].obs_stats else None
    step_keys = jax.random.split(jax.random.split(recorded.key, 3)[1], T)
    act, value = ([jax.jit(getattr(g.policy, name)) for g in players] for name in ("act", "value"))

    for t in range(T):
        seen, decided = {}, {}
        for e in range(E):
            for g, group in enumerate(players):
                if begun[e]:
                    memory[e][g] = group.policy.memory(1)
                seen[e, g] = perceived(views[e], group, statistics)
                noise = group.policy.draw_noise(jax.random.key(0), 1)  # values do not depend on it
                given = (start.policies[g].params, noise, memory[e][g], seen[e, g])
                before = memory[e][g]
                memory[e][g], decision = act[g](*given)
                decided[e, g] = (decision, before, bool(begun[e]))
        outcomes, restarted = [], []
        keys = jax.vmap(jax.random.fold_in, (0, None))(world_keys(step_keys[t], jnp.arange(E)), 1)
        for e in range(E):
            action = np.zeros(N, int)
            for g, group in enumerate(players):
                action[list(group.agents)] = played[g].output.action[t, e]
            states[e], outcome = step(None, states[e], jnp.asarray(action))
            outcomes.append(outcome)
            over = bool(outcome.truncated | outcome.terminated.all())
            restarted.append(reset(keys[e]) if over else (states[e], outcome.view))
            begun[e] = over
        reward = np.array([o.reward for o in outcomes])
        gone = np.array([o.terminated for o in outcomes])
        there = np.array([view.active for view in views])
        for team in {"own": [], "team": [[0, 1], [2]], "world": [[0, 1, 2]]}[players[0].agent_end]:
            gone[:, team] = gone[:, team].all(-1, keepdims=True)
            there[:, team] = there[:, team].any(-1, keepdims=True)
        if players[0].reward == "team_mean":
            reward[:, :2] = reward[:, :2].mean(-1, keepdims=True)
        paid = reward
        if statistics:
            acted = np.array([view.active for view in views])
            statistics.learn([view for _, view in restarted], acted, reward, gone)
            paid = statistics.scale(reward)
        for e in range(E):
            for g, group in enumerate(players):
                mine, (decision, before, first) = list(group.agents), decided[e, g]
                expected = {
                    "seen.obs": seen[e, g].obs[0],
                    "seen.state": seen[e, g].state[0],
                    "seen.action_mask": seen[e, g].action_mask[0],
                    "seen.episode_start": first,
                    "output.value": decision.value[0],
                    "active": np.asarray(views[e].active)[mine],
                    **({"valued": there[e, mine]} if group.agent_end == "team" else {}),
                    "reward": reward[e, mine],
                    "paid": paid[e, mine],
                    "terminated": gone[e, mine],
                    "truncated": outcomes[e].truncated,
                }
                if seen[e, g].team_obs is not None:
                    expected["seen.team_obs"] = seen[e, g].team_obs[0]
                if t == 0 and not first:  # a GRU's memory before it acted
                    parts = before if group.policy.recurrent else ()
                    expected |= {f"starts.{part}": before[part][0] for part in parts}
                if outcomes[e].truncated:  # elsewhere it is not looked at
                    after = perceived(outcomes[e].view, group, statistics)
                    final = value[g](start.policies[g].params, None, memory[e][g], after)
                    expected["next_value"] = final[0]
                yield (t, e, g), expected
        states, views = map(list, zip(*restarted, strict=True))


def found(transition, name):
    for part in name.split("."):
        transition = transition[part] if isinstance(transition, dict) else getattr(transition, part)
    return transition


def test_a_rollout_is_what_a_plain_loop_plays(recorded):
    names, ends, hyper = set(), 0, recorded.hyper
    paid = []
    for i, learner in enumerate(recorded.trainer.learners):
        scaled = jax.jit(lambda k, p, r=learner: r.scaled_reward(k, p, hyper, Layout()))
        known = recorded.start.learners[i].reward_scale
        paid.append(np.asarray(scaled(known, recorded.played[i])[0]))
    for (t, e, g), expected in replay(recorded):
        for name, value in expected.items():
            given = paid[g] if name == "paid" else found(recorded.played[g], name)
            ours = np.asarray(given)[t, e]
            np.testing.assert_allclose(ours, value, atol=1e-9, err_msg=f"{name} {t} {e} {g}")
            names.add(name)
        ends += bool(expected["truncated"])
    assert ends > 3
    assert len(names) >= 10
    first, second = np.moveaxis(of_pair(recorded, "terminated"), -1, 0)
    assert (first != second).any() == (recorded.trainer.players[0].agent_end == "own")
    assert not of_pair(recorded, "active").all()


def of_pair(recorded, name):
    """`[T, E, 2]`: of the team whose second agent is out early, in one group or two."""
    parts = [np.asarray(getattr(played, name)) for played in recorded.played]
    return np.concatenate(parts, axis=-1)[..., :2]


def batch_of(recorded, group, norm):
    """The batch that a learner makes of its trajectory, by rewards as they are recorded."""
    learner, played = recorded.trainer.learners[group], recorded.played[group]
    make = jax.jit(lambda norm, played: learner.batch(norm, played, recorded.hyper, Layout()))
    return make(norm, played)


@pytest.mark.parametrize("group", [0, 1])
def test_the_next_value_is_of_what_a_step_led_to(recorded, group):
    """Between steps the following value; at the rollout's end the value of the last view, under
    the memory and statistics of then. Where episodes are cut, the plain loop above knows."""
    player, played, after = (recorded.trainer.players[group], recorded.played[group],
                             recorded.after)  # fmt: skip
    follows = ~np.asarray(played.truncated[:-1])
    np.testing.assert_array_equal(
        np.asarray(played.next_value[:-1])[follows], np.asarray(played.output.value[1:])[follows]
    )
    known = Statistics(after, recorded.trainer.players) if after.policies[0].obs_stats else None
    view, timestep = jax.jit(jax.vmap(recorded.trainer.env.world.view)), after.timestep
    now, over = view(after.env), np.asarray(timestep.over)
    for e in np.flatnonzero(~np.asarray(played.truncated[-1])):
        seen = perceived(of_world_view(now, e), player, known)
        memory = player.policy.memory(1) if over[e] else of_world(after.memory[group], e)
        params = after.policies[group].params
        value = jax.jit(player.policy.value)(params, None, memory, seen)
        np.testing.assert_allclose(played.next_value[-1, e], value[0], atol=1e-9)


def of_world_view(view, e):
    return jax.tree.map(lambda x: x[e], view)


@pytest.mark.parametrize("group", [0, 1])
def test_a_batch_is_counted_from_its_rollout(recorded, group):
    """With value statistics that are neither 0 nor 1."""
    learner, played = recorded.trainer.learners[group], recorded.played[group]
    player, objective = recorded.trainer.players[group], learner.objective
    norm = ValueNorm.create().update(jnp.asarray(3.0), jnp.asarray(4.0))  # mean 3, deviation 2
    batch, metrics = batch_of(recorded, group, norm)

    def real(value):
        value = np.asarray(value)
        return value if objective.value_norm == "none" else 3.0 + 2.0 * value

    value, ahead = real(played.output.value), real(played.next_value)
    ends = (np.asarray(played.terminated), np.asarray(played.truncated))
    reward = np.asarray(played.reward)
    advantage, target = torch_core.gae_loop(
        reward, value, ahead, *ends, GAMMA, LAMBDA, learner.time_limit
    )
    np.testing.assert_allclose(batch.target, target, atol=1e-9)
    own = objective.value_norm == "popart"
    np.testing.assert_allclose(batch.value, value if own else played.output.value, atol=1e-9)
    np.testing.assert_array_equal(batch.active, played.active)
    np.testing.assert_array_equal(batch.log_prob, played.output.log_prob)
    if objective.advantage_norm == "batch":
        acted = advantage[np.asarray(played.active) > 0]
        advantage = (advantage - acted.mean()) / (acted.std() + 1e-5)
    np.testing.assert_allclose(batch.advantage, advantage, atol=1e-9)
    counted = {
        "own": np.asarray(played.active) > 0,
        "team": np.ones(reward.shape, bool),  # somebody of each team is always there
        "world": np.ones(reward.shape, bool),
    }[player.agent_end]
    error = (target - value)[counted]
    explained = 1 - error.var() / target[counted].var()
    np.testing.assert_allclose(metrics["losses/explained_variance"], explained)


@pytest.mark.parametrize("group", [0, 1])
def test_a_minibatch_is_evaluated_as_it_was_played(recorded, group):
    """Every row's ratio is 1 and its value is the recorded one, until parameters change."""
    learner, played = recorded.trainer.learners[group], recorded.played[group]
    policy, params = learner.policy, recorded.start.policies[group].params
    stats = learner.objective.minibatch_stats

    def evaluated(key):
        batch, _ = learner.batch(ValueNorm.create(), played, recorded.hyper, Layout())
        epoch = minibatches(batch, 1, learner.shuffle, policy.recurrent, stats, Layout())
        minibatch, _ = epoch(key)(0)
        rows = jax.tree.map(lambda x: x[0], minibatch)  # its only microbatch
        start = jax.tree.map(lambda x: x[0], rows.start)
        return rows, policy.evaluate(params, start, rows.context, rows.seen, rows.action)

    rows, now = jax.jit(evaluated)(jax.random.key(0))
    assert rows.active.size == played.active.size
    np.testing.assert_allclose(now.log_prob, rows.log_prob, atol=1e-9)
    assert np.ptp(np.asarray(rows.log_prob)) > 1e-3
    if learner.objective.value_norm != "popart":  # whose batch has values in units of returns
        np.testing.assert_allclose(now.value, rows.value, atol=1e-9)


def test_the_reward_that_is_reported_is_of_agents_in_play(recorded):
    for player, played in zip(recorded.trainer.players, recorded.played, strict=True):
        there = {
            "own": np.asarray(played.active) > 0,
            "team": np.ones(played.reward.shape, bool),  # somebody of each team is always there
            "world": np.asarray(played.active) > 0,
        }[player.agent_end]
        expected = np.asarray(played.reward)[there].mean()
        ((count, total),) = recorded.trainer._reward_totals(player, played).values()
        np.testing.assert_allclose(total / count, expected)


def test_an_evaluation_counts_first_episodes_only(recorded):
    trainer, start = recorded.trainer, recorded.start
    env, players = trainer.env, trainer.players
    key, episodes = jax.random.key(11), 6
    seen = jax.jit(lambda p: play_episodes(env, players, p, key, episodes, deterministic=True))(
        start.policies
    )
    reset_key = jax.random.split(key, 3)[0]
    states, _ = env.reset(reset_key, episodes)
    statistics = Statistics(start, players) if start.policies[0].obs_stats else None
    act = [jax.jit(partial(group.policy.act, deterministic=True)) for group in players]
    step = jax.jit(env.world.step)
    for e in range(episodes):
        state = jax.tree.map(lambda x, e=e: x[e], states)
        memory = [group.policy.memory(1) for group in players]
        view, over, total, length = env.world.view(state), False, np.zeros(N), 0
        while not over:
            action = np.zeros(N, int)
            for g, group in enumerate(players):
                sight = perceived(view, group, statistics)
                noise = group.policy.draw_noise(jax.random.key(0), 1)
                given = (start.policies[g].params, noise, memory[g], sight)
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
    learner, player = recorded.trainer.learners[of_group], recorded.trainer.players[of_group]
    batch, _ = batch_of(recorded, of_group, ValueNorm.create())
    objective = dataclasses.replace(learner.objective, inactive_targets=inactive)
    minibatch_stats = jax.jit(objective.minibatch_stats)(batch)
    target, active = np.asarray(batch.target), np.asarray(batch.active) > 0
    valued = active if batch.valued is None else np.asarray(batch.valued) > 0
    assert (valued == active).all() == (player.agent_end != "team")
    counted = target if inactive else target[valued]
    np.testing.assert_allclose(minibatch_stats.target_mean, counted.mean())
    np.testing.assert_allclose(minibatch_stats.target_variance, counted.var())
    assert not active.all()
    learned_of = active if inactive else valued
    expected = [active.sum(), T * E, active.size, learned_of.sum()]
    np.testing.assert_allclose(minibatch_stats.counts, expected)
