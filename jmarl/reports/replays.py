"""Replays of a report's best policies: pages to embed in the report."""

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from jmarl.reports.data import Run
from jmarl.reports.groups import Setting, WorldResults

FAMILY = "mpe/"  # the worlds that can be drawn
LIMIT = 2_000_000  # bytes of all replays together
SEED = 1  # of the initial states, as in jmarl.render


class Replayed(NamedTuple):
    label: str  # of the setting
    run: str
    page: str  # empty if it could not be made
    why: str  # the reason, if the page is empty


def chosen(worlds: Sequence[WorldResults], count: int) -> list[Setting]:
    """The best setting of every world, then the second best, …"""
    ranks = zip_longest(*(world.settings for world in worlds))
    return [setting for setting in chain.from_iterable(ranks) if setting is not None][:count]


def replays(
    settings: Sequence[Setting], episodes: int, progress: Callable[[str], None]
) -> list[Replayed]:
    """A replay of each setting's best run; `progress` receives messages."""
    made: list[Replayed] = []
    for place, setting in enumerate(settings, start=1):
        progress(f"replay {place} of {len(settings)} …")
        run = setting.best_run
        text, why = "", ""
        if not str(run.config.get("env")).startswith(FAMILY):
            why = f"{run.config.get('env')} cannot be drawn; only the native {FAMILY}… worlds can."
        else:
            text, why = _attempt(run, episodes)
        if sum(len(one.page) for one in made) + len(text) > LIMIT:
            text, why = "", "left out, because the page would become too large."
        made.append(Replayed(setting.label, run.name, text, why))
    return made


def _attempt(run: Run, episodes: int) -> tuple[str, str]:
    """(page, reason why there is none). No error may stop the report: curves remain useful when a
    checkpoint is unreadable."""
    try:
        return _played(run, episodes), ""
    except Exception as error:
        return "", str(error) or type(error).__name__


def _played(run: Run, episodes: int) -> str:
    import jax  # lazily: it takes seconds, and reports without replays do not need it

    from jmarl.evaluation.trained_policy import load_policy
    from jmarl.replays.page import page
    from jmarl.replays.replay import record

    replay = record(load_policy(run.path, "best"), jax.random.key(SEED), episodes)
    about = f"{replay.algorithm}, best checkpoint, most likely actions, seed {SEED}"
    return page(replay, run.directory, about)
