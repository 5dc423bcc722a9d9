"""Small runs on disk, for tests that compare them."""

import json

import jax
from rich.console import Console

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.replays.best_gif import draw_best
from jmarl.runs.files import read_lines
from jmarl.runs.single import check_continuation, resumed_values, run

TINY = {
    "num_envs": 4,
    "rollout_length": 5,
    "total_updates": 6,
    "log_every": 1,
    "eval_every": 2,
    "eval_episodes": 4,
    "tensorboard": False,
    "gif": False,
    "net": {"hidden": [8]},
    "ppo": {"epochs": 1, "num_minibatches": 1},
    "quiet": True,
}
# What an algorithm needs besides; "mat" stands for all transformers.
OWN = {
    "ppo": {"env": "mpe/simple", "actions": "continuous", "num_envs": 4},
    "mat": {"net": {"n_embd": 8}},
}
OF_TIME = ("seconds", "charts/SPS", "charts/compile_s")


def configured(path, algorithm="ippo", **values):
    own = OWN.get(algorithm.partition("_")[0], {})
    return build(TINY | {"algorithm": algorithm, "run_dir": path} | own | values)


def go(config):
    return run(config, Console(quiet=True), draw_best).outcome


def resumed(path, **values):
    config = build(resumed_values(path) | values)
    check_continuation(config)
    return go(config)


def policy_in(env, **options):
    """A policy that has learned nothing."""
    config = build({"algorithm": "ippo", "env": env, "net": {"hidden": [8]}} | options)
    trainer, _ = make_trainer(config)
    state = trainer.init(jax.random.key(0))
    return TrainedPolicy(config, trainer.env, trainer.players, state.policies)


def told(path, name):
    """Lines without what a clock says."""
    lines = read_lines(path / name)
    return [{k: v for k, v in line.items() if k not in OF_TIME} for line in lines]


def digest(path, update):
    """Of the whole state: parameters, optimiser, worlds, memory, statistics, keys."""
    about = path / "checkpoints" / f"update_{update}" / "about" / "metadata"
    return json.loads(about.read_text(encoding="utf-8"))["digest"]


def same_runs(one, other, update=6):
    assert digest(one, update) == digest(other, update)
    for name in ("metrics.jsonl", "evals.jsonl"):
        assert told(one, name) == told(other, name)
