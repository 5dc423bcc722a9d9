"""Run directories that nobody trained, for tests of what reports make of them."""

import json

import yaml

STEPS = 100  # of an update
CONFIG = {
    "algorithm": "mappo",
    "env": "probe/constant",  # which cannot be drawn
    "env_options": {},
    "num_envs": 20,
    "rollout_length": 5,
    "total_steps": 1000,
    "total_updates": None,
    "seed": 0,
    "seeds": 1,
    "run_dir": None,
    "net": {"hidden": [8, 8]},
    "ppo": {"lr": 0.001, "gamma": 0.95, "num_minibatches": 4},
}


def config_of(seed=0, ppo=(), **values):
    return CONFIG | {"seed": seed, "ppo": CONFIG["ppo"] | dict(ppo)} | values


def evaluated(update, value, **more):
    """A line of evals.jsonl. Sampled play is worse by one."""
    figures = {"return_mean": value, "return_iqm": value + 0.5}
    figures |= {"return_iqm_low": value - 0.25, "return_iqm_high": value + 0.75}
    return (
        {"update": update, "steps": update * STEPS, "seconds": 0.5 * update}
        | {f"eval/{name}": figure for name, figure in figures.items()}
        | {f"eval_sampled/{name}": figure - 1 for name, figure in figures.items()}
        | more
    )


def contested(update, **returns):
    """The same where teams are opponents: a return of each team and none of all."""
    lines = {team: evaluated(update, value) for team, value in returns.items()}
    by_team = {
        key + (f"/{team}" if "/" in key else ""): value
        for team, line in lines.items()
        for key, value in line.items()
    }
    return by_team | {"teams": list(returns)}


def measured(update, **more):
    """A line of metrics.jsonl."""
    return {
        "update": update,
        "steps": update * STEPS,
        "seconds": 0.5 * update,
        "losses/policy_loss": -0.01 * update,
        "losses/value_loss": 1 / update,
        "losses/entropy": 1.6 - 0.01 * update,
        "losses/approx_kl": 0.002 * update,
        "losses/clipfrac": 0.01 * update,
        "losses/explained_variance": 0.05 * update,
        "charts/SPS": 1000.0 + update,
    } | more


def write_lines(path, lines, torn=""):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn, encoding="utf-8")


def write_run(path, config, returns=(), updates=10, absolute=None, finished=True, torn=""):
    """`returns`: greedy, of evaluations that lie equally far apart."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    every = updates / max(1, len(returns) - 1)
    lines = [evaluated(round(i * every), value) for i, value in enumerate(returns)]
    if absolute is not None:
        last = {"update": updates, "steps": updates * STEPS, "seconds": 0.5 * updates}
        lines.append(last | {"absolute": True, "absolute/return_mean": absolute})
    write_lines(path / "evals.jsonl", lines, torn)
    write_lines(path / "metrics.jsonl", [measured(i) for i in range(1, updates + 1)], torn)
    if finished:
        summary = {"finished": True, "updates": updates}
        (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return path
