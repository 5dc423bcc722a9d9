"""Training that writes nothing: for notebooks."""

from rich.console import Console

from jmarl.config import Config
from jmarl.cores import make_devices, worthwhile
from jmarl.crew import make_crew
from jmarl.interruption import Interruption
from jmarl.recording import Unrecorded
from jmarl.runner import Outcome, Runner, Start
from jmarl.screen import Screen


def train(config: Config, console: Console | None = None) -> Outcome:
    """`console`: where progress is shown, if anywhere."""
    config.check()
    make_devices(worthwhile(config, config.seeds))
    with Screen(console or Console(), config.num_updates, quiet=console is None) as screen:
        return Runner(config, make_crew(config), Start(), Unrecorded(), screen).run(Interruption())
