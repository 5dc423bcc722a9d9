"""A run, with its effects: chunks of compiled updates, and between them screen and disk."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from jmarl.algorithms import make_trainer
from jmarl.config import Config, to_yaml
from jmarl.errors import ConfigError
from jmarl.evaluation import Episodes, play_episodes
from jmarl.normalize import Normalisers
from jmarl.objective import Hyper
from jmarl.trainer import Trainer
from jmarl.types import State


class Outcome(NamedTuple):
    state: State
    run_dir: Path
    evaluations: list[dict[str, float]]  # update, steps, return of each team


def cache_compiled_programs() -> None:
    """Keep what XLA compiles in the user's cache directory, for the next run."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    jax.config.update("jax_compilation_cache_dir", str(home / "jmarl" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def make_run_dir(config: Config) -> Path:
    """A new directory. A name given and in use is refused; one chosen here is numbered."""
    if config.run_dir is not None:
        if config.run_dir.exists():
            raise ConfigError(f"run_dir={str(config.run_dir)!r} exists; choose another name.")
        return _create(config.run_dir)
    stem = re.sub(r"[^\w.-]+", "-", f"{config.algorithm}-{config.env}-{config.seed}")
    taken = (Path("runs") / (f"{stem}-{n}" if n else stem) for n in range(1_000_000))
    return _create(next(path for path in taken if not path.exists()))


def _create(path: Path) -> Path:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"run directory {str(path)!r} cannot be made: {error}.") from None
    return path


def run(config: Config, console: Console) -> Outcome:
    """Train to the end of the budget, showing progress and writing metrics as they come."""
    trainer, hyper = make_trainer(config)
    if config.compilation_cache:
        cache_compiled_programs()
    run_dir = make_run_dir(config)
    (run_dir / "config.yaml").write_text(to_yaml(config))
    evaluations = []
    with (run_dir / "metrics.jsonl").open("w") as metrics, _progress(console) as progress:
        bar = progress.add_task("compiling", total=config.num_updates, shown="")
        state = None
        for entry, state in train_chunks(trainer, hyper, config):  # noqa: B007 (the last is kept)
            metrics.write(json.dumps(entry) + "\n")
            metrics.flush()
            if "eval/return_greedy" in entry:
                evaluations.append(entry)
            progress.update(
                bar, description="training", completed=entry["update"], shown=_shown(entry)
            )
    assert state is not None
    console.print(f"run: {run_dir}")
    return Outcome(state, run_dir, evaluations)


def compile_programs(
    trainer: Trainer, hyper: Hyper, init_key: jax.Array, eval_key: jax.Array, episodes: int
) -> tuple[Any, Any, Callable[..., Episodes]]:
    """`trainer.init`, `trainer.step` and the scoring of parameters. Scoring is compiled while the
    first updates run already; its first call waits for it."""

    def score(params: tuple[Any, ...], norms: Normalisers, key: jax.Array) -> Episodes:
        return play_episodes(trainer.env, trainer.groups, params, key, episodes, norms=norms)

    init = jax.jit(trainer.init).trace(init_key)
    state = init.out_info
    # Initialisation runs once, for milliseconds: optimising it would cost seconds.
    unoptimised: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
    pool = ThreadPoolExecutor()
    compiled_init = pool.submit(init.lower().compile, unoptimised)
    step = jax.jit(trainer.step, donate_argnums=0).lower(state, hyper).compile()
    compiled_score = pool.submit(
        jax.jit(score).lower(state.params, state.normalisers, eval_key).compile
    )
    pool.shutdown(wait=False)
    return compiled_init.result(), step, lambda *given: compiled_score.result()(*given)


def train_chunks(
    trainer: Trainer, hyper: Hyper, config: Config
) -> Iterator[tuple[dict[str, Any], State]]:
    """Metrics and state after every chunk of `log_every` updates; an evaluation first and last."""
    init_key, eval_key = jax.random.split(jax.random.key(config.seed))
    started = time.perf_counter()
    init, step, score = compile_programs(trainer, hyper, init_key, eval_key, config.eval_episodes)
    compiled = {"charts/compile_s": time.perf_counter() - started}
    state = init(init_key)
    # copied, for a step takes the memory of its state
    untrained = jax.tree.map(jnp.copy, (state.params, state.normalisers))
    started, done = time.perf_counter(), 0
    while done < config.num_updates:
        length = min(config.log_every, config.num_updates - done)
        updates = []
        for _ in range(length):  # dispatched without waiting: nothing is read until the chunk ends
            state, metrics = step(state, hyper)
            updates.append(metrics)
        if not done:
            before = _scores(trainer, score(*untrained, eval_key))
            yield {"update": 0, "steps": 0} | before | compiled, state
        due = (
            done // config.updates_between_evaluations
            < (done + length) // config.updates_between_evaluations
        )
        done += length
        entry: dict[str, Any] = {"update": done, "steps": done * config.steps_per_update}
        chunk = jax.device_get(updates)
        entry |= {name: float(np.mean([update[name] for update in chunk])) for name in chunk[0]}
        entry["charts/SPS"] = entry["steps"] / (time.perf_counter() - started)
        if due or done == config.num_updates:
            entry |= _scores(trainer, score(state.params, state.normalisers, eval_key))
        yield entry, state


def _scores(trainer: Trainer, seen: Episodes) -> dict[str, float]:
    """Mean over episodes, summed over a team's agents; by team where there are several."""
    spec, returns = trainer.env.spec, np.asarray(seen.agent_return).mean(0)
    scores = {"eval/return_greedy": float(returns.sum())}
    if not spec.cooperative:
        scores |= {
            f"eval/return_greedy/{team.name}": float(returns[list(team.agents)].sum())
            for team in spec.teams
        }
    if seen.won is not None:
        scores["eval/win_rate_greedy"] = float(np.asarray(seen.won).mean())
    return scores


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} updates"),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)


def _shown(entry: dict[str, Any]) -> str:
    names = {
        "charts/SPS": "{:,.0f} steps/s",
        "eval/return_greedy": "return {:.1f}",
        "eval/win_rate_greedy": "won {:.0%}",
        "losses/policy_loss": "policy loss {:.3f}",
        "losses/value_loss": "value loss {:.3f}",
    }
    return "  ".join(form.format(entry[name]) for name, form in names.items() if name in entry)
