"""python make.py FILE.tar.gz: small runs of the checkout on PYTHONPATH, and what becomes of them.

Run with an older checkout, to store runs in the format that it writes:

    git worktree add ../old COMMIT --detach
    cd ../old && PYTHONPATH=$PWD python .../tests/support/stored_runs/make.py FILE.tar.gz

Each run does two updates. A copy of it then resumes to four with the same older code; the copy's
lines and final parameters are stored as what a resume by newer code must reproduce.
"""

import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # as tests compile

import jax
import numpy as np
from rich.console import Console

import jmarl
from jmarl.config.train_config import build, merged
from jmarl.runs.logs import read_lines
from jmarl.runs.single import resumed_values, run

SMALL = {
    "num_envs": 2,
    "rollout_length": 5,
    "total_updates": 2,
    "log_every": 1,
    "eval_every": 2,
    "eval_episodes": 2,
    "keep_checkpoints": 1,
    "devices": 1,
    "tensorboard": False,
    "gif": False,
    "quiet": True,
    "compilation_cache": False,
    "net": {"n_embd": 8, "hidden": [8]},
    "ppo": {"epochs": 2, "num_minibatches": 1},
}
CONTINUOUS = {"env": "mpe/simple", "actions": "continuous"}
RUNS = {
    "mat": {"algorithm": "mat"},
    "teams": {"algorithm": "rmappo", "env": "mpe/simple_tag", "ppo": {"chunk_length": 5}},
    "ppo": {"algorithm": "ppo", **CONTINUOUS, "ppo": {"num_minibatches": 2}},
    "seeds": {"algorithm": "ippo", "seeds": 2, "members_per_batch": 2},
}
CLOCKS = ("seconds", "charts/SPS", "charts/compile_s")


def train(values: dict) -> None:
    run(build(values), Console(quiet=True))


def lines(path: Path) -> list[dict]:
    """Metrics and evaluations of one run, without clocks."""
    both = read_lines(path / "metrics.jsonl") + read_lines(path / "evals.jsonl")
    return [{k: v for k, v in line.items() if k not in CLOCKS} for line in both]


def final_params(path: Path) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves(jmarl.load_policy(path, which="latest").params)
    return {f"array_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def store(name: str, folder: Path) -> None:
    stored, copy = folder / "runs" / name, folder / "copy"
    train(merged(SMALL, RUNS[name]) | {"run_dir": stored})
    shutil.copytree(stored, copy)
    train(resumed_values(copy) | {"total_updates": 4})
    seeds = sorted(copy.glob("seed_*")) or [copy]
    for seed in seeds:
        into = folder / "expected" / (name if seed == copy else f"{name}-{seed.name}")
        into.parent.mkdir(exist_ok=True)
        np.savez_compressed(into.with_suffix(".npz"), **final_params(seed))
        text = json.dumps(lines(seed), indent=1)
        into.with_suffix(".json").write_text(text, encoding="utf-8")
    shutil.rmtree(copy)


def main() -> None:
    archive = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        folder = Path("stored")
        (folder / "runs").mkdir(parents=True)
        for name in RUNS:
            store(name, folder)
            print(name, flush=True)
        with tarfile.open(archive, "w:gz") as tar:
            for part in ("runs", "expected"):
                tar.add(folder / part, part)


if __name__ == "__main__":
    main()
