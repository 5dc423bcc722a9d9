"""Training that writes nothing: for notebooks."""

from typing import Any

from rich.console import Console

from jmarl.config import Config
from jmarl.crew import Crew, make_crew
from jmarl.interruption import Interruption
from jmarl.runner import Entry, Outcome, Runner, Start
from jmarl.screen import Screen


class Nowhere:
    """Keeps nothing."""

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        del entries, overall

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        del entries, overall

    def save(self, update: int, crew: Crew, score: float, about: dict[str, Any]) -> None:
        del update, crew, score, about

    def last_saved(self) -> int | None:
        return None


def train(config: Config, console: Console | None = None) -> Outcome:
    """`console`: where progress is shown, if anywhere."""
    config.check()
    screen = Screen(console or Console(), config.num_updates, quiet=console is None)
    with screen:
        return Runner(config, make_crew(config), Start(), Nowhere(), screen).run(Interruption())
