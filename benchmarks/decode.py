"""Speed of acting: MAT with a key/value cache against recomputing the decoder for every agent.

Both sample the same actions from the same key; the benchmark compares their log-probabilities.
"""

import statistics
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.report import Row, arguments, compile_program, console, interleaved, table, write
from jmarl.envs.spaces import Discrete
from jmarl.networks.layers import apply
from jmarl.policies.action_distributions import choose
from jmarl.policies.base import one_decision
from jmarl.policies.mat import MatPolicy
from jmarl.types import PolicyInput, PolicyOutput

AGENTS = (3, 10, 30, 100)
OBS_SIZE = 18
ACTIONS = 5
ROUNDS, QUICK_ROUNDS = 7, 3


def num_worlds(num_agents: int) -> int:
    """As many as in training; fewer for large teams, for which recomputing takes minutes."""
    return {3: 1024, 10: 1024, 30: 512, 100: 64}.get(num_agents, 64)


def cached(policy: MatPolicy, params: Any, key: jax.Array, inputs: PolicyInput) -> PolicyOutput:
    return policy.act(params, _noise(policy, key, inputs), (), inputs)[1]


def recomputed(policy: MatPolicy, params: Any, key: jax.Array, inputs: PolicyInput) -> PolicyOutput:
    """Act like the reference: run the whole decoder for every agent and use one row of it."""
    _, noise = _noise(policy, key, inputs)
    model, scale, n = policy.model.clone(one_hot=False), policy.scale(params), policy.num_agents
    features = apply(model, params, inputs.obs, method="encode")

    def turn(tokens: jax.Array, agent: tuple) -> tuple:
        i, noise = agent
        logits, value = apply(model, params, tokens[:, :n], features, method="decode")
        row, mask = logits[:, i], inputs.action_mask[:, i]
        action, log_prob = choose(policy.actions, noise, row, scale, mask, deterministic=False)
        tokens = lax.dynamic_update_index_in_dim(tokens, policy.token(action), i + 1, axis=1)
        return tokens, (action, log_prob, value[:, i])

    tokens = jnp.zeros((inputs.obs.shape[0], n + 1, policy.token_size))
    tokens = tokens.at[:, 0].set(policy.start_token(inputs.obs))
    _, chosen = lax.scan(turn, tokens, (jnp.arange(n), jnp.moveaxis(noise, 1, 0)))
    return PolicyOutput(*(jnp.moveaxis(x, 0, 1) for x in chosen))


def _noise(policy: MatPolicy, key: jax.Array, inputs: PolicyInput) -> Any:
    return one_decision(policy, jax.random.split(key, len(inputs.obs)))


def measure(num_agents: int, rounds: int) -> list[Row]:
    worlds = num_worlds(num_agents)
    policy = MatPolicy((OBS_SIZE,) * num_agents, Discrete(ACTIONS))
    param_key, obs_key, act_key = jax.random.split(jax.random.key(0), 3)
    params = jax.jit(policy.init)(param_key)
    inputs = PolicyInput(
        obs=jax.random.normal(obs_key, (worlds, num_agents, OBS_SIZE)),
        state=jnp.zeros((worlds, 1)),
        action_mask=jnp.ones((worlds, num_agents, ACTIONS), bool),
    )
    subjects = {
        "cached": lambda params, key, inputs: cached(policy, params, key, inputs),
        "recomputed": lambda params, key, inputs: recomputed(policy, params, key, inputs),
    }
    programs = {
        name: compile_program(act, params, act_key, inputs) for name, act in subjects.items()
    }
    times = interleaved({name: program.run for name, program in programs.items()}, rounds)
    ours, theirs = programs["cached"].run(), programs["recomputed"].run()
    if not (ours.action == theirs.action).all():
        raise AssertionError("cached and recomputed acting chose differently")
    case = f"agents/{num_agents}"
    difference = float(jnp.abs(ours.log_prob - theirs.log_prob).max())
    return [
        *(Row(case, name, "time_s", statistics.median(taken)) for name, taken in times.items()),
        *(Row(case, name, "compile_s", program.compile_s) for name, program in programs.items()),
        Row(case, "cached", "speedup", _ratio(times)),
        Row(case, "cached", "log_prob_difference", difference),
    ]


def _ratio(times: dict[str, list[float]]) -> float:
    """Median over the ratios of each round, because a busy moment slows both subjects."""
    pairs = zip(times["recomputed"], times["cached"], strict=True)
    return statistics.median(slow / fast for slow, fast in pairs)


def lines(rows: list[Row]) -> list[list[str]]:
    value = {(row.case, row.subject, row.metric): row.value for row in rows}
    return [
        [
            case,
            *(f"{value[case, name, 'time_s'] * 1e3:.2f}" for name in ("cached", "recomputed")),
            f"{value[case, 'cached', 'speedup']:.1f}×",
            *(f"{value[case, name, 'compile_s']:.1f}" for name in ("cached", "recomputed")),
            f"{value[case, 'cached', 'log_prob_difference']:.0e}",
        ]
        for case in dict.fromkeys(row.case for row in rows)
    ]


def main() -> None:
    options = arguments(__doc__, "decode")
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    rows: list[Row] = []
    for num_agents in AGENTS:
        console.print(f"[dim]{num_agents} agents …[/dim]")
        rows += measure(num_agents, rounds)
    sizes = ", ".join(f"{num_worlds(n)} of {n}" for n in AGENTS)
    title = f"one decision of all worlds ({sizes} agents), median of {rounds} interleaved runs"
    columns = ["agents", "cached (ms)", "recomputed (ms)", "speed-up"]
    columns += ["cached compiles (s)", "recomputed compiles (s)", "log-prob difference"]
    table(title, columns, lines(rows))
    write(options.json, rows)


if __name__ == "__main__":
    main()
