"""Training that writes nothing: for notebooks."""

import sys

from jmarl.config.train_config import Config
from jmarl.execution.cpu_devices import make_devices
from jmarl.execution.population import make_crew
from jmarl.runs.loop import Outcome, Runner, Start
from jmarl.runs.progress import Screen
from jmarl.runs.recorder import Unrecorded
from jmarl.runs.signals import Interruption
from jmarl.runs.terminal import make_console


def train(config: Config) -> Outcome:
    """Shows progress on standard output, unless `config.quiet`. Signals stay the caller's, jax's
    configuration too: programs are cached only if the caller has set up a cache."""
    config.check()
    make_devices([(config, config.seeds)])
    with Screen(make_console(sys.stdout), config.num_updates, config.quiet) as screen:
        return Runner(config, make_crew(config), Start(), Unrecorded(), screen).run(Interruption())
