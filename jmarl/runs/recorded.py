"""Training with a record on disk: begun, or resumed from the latest checkpoint."""

import contextlib
from pathlib import Path

import jax
from rich.console import Console

from jmarl.config.train_config import Config
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from jmarl.execution.population import Population
from jmarl.runs import directory as run_dir
from jmarl.runs.callbacks import Callbacks
from jmarl.runs.loop import LoopResult, ResumePoint, Runner, Selection, has_ended
from jmarl.runs.progress import Screen
from jmarl.runs.recorder import NullRecorder, Recorder
from jmarl.runs.restore import shared_resume_point
from jmarl.runs.signals import Interruption
from jmarl.runs.user_dirs import cache_compiled_programs


def run_recorded(
    config: Config,
    population: Population,
    recorder: Recorder,
    path: Path,
    console: Console,
    selection: Selection | None = None,
    assess: bool = True,
    callbacks: Callbacks | None = None,
) -> LoopResult:
    """Train to the end of the budget. Of several processes, the main one writes."""
    main = multihost.is_main_process()
    recorder = recorder if main else NullRecorder()
    lock = run_dir.lock(path) if main else contextlib.nullcontext()
    with lock, contextlib.closing(recorder):
        start = shared_resume_point(population, recorder)
        _check_budget(config, start, path)
        recorder.open(start)
        if main:
            devices = len(population.devices)
            backend = jax.default_backend()
            warm = population.warm_start
            begun = None if warm is None or start.states is not None else warm.about
            run_dir.record_devices(path, backend, devices, start.update, start.run, begun)
        cache_compiled_programs(config.compilation_cache)
        interruption = Interruption(recorder.last_written, config.num_updates)
        quiet = config.quiet or not main
        with Screen(console, config.num_updates, quiet) as screen, interruption.watched():
            if start.update:
                screen.note(f"resumed {path} after update {start.update}")
                if population.trainer.env.spec.on_host:
                    screen.note(
                        "its worlds begin new episodes: a checkpoint cannot hold worlds that "
                        "Python steps"
                    )
            given = (config, population, start, recorder, screen, selection, assess, callbacks)
            outcome = Runner(*given).run(interruption)
            recorder.wait()
    return outcome


def _check_budget(config: Config, start: ResumePoint, path: Path) -> None:
    """A run that has ended is refused, unless something of its end is missing."""
    over = has_ended(config, start) and start.complete
    if start.update > config.num_updates or (over and start.update == config.num_updates):
        raise ConfigError(
            f"{str(path)!r} has done its {start.update} updates; give it more, such as "
            f"{config.more(2 * start.update)}."
        )
    if over:
        raise ConfigError(
            f"{str(path)!r} has reached stop_at_return={config.stop_at_return:g}; give it a higher "
            "--stop-at-return, or None to train to the end of its budget."
        )
