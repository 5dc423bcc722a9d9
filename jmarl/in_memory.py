"""Training that writes nothing: for notebooks."""

import sys

from jmarl.config import Config
from jmarl.cores import make_devices
from jmarl.crew import make_crew
from jmarl.interruption import Interruption
from jmarl.recording import Unrecorded
from jmarl.runner import Outcome, Runner, Start
from jmarl.screen import Screen
from jmarl.terminal import make_console


def train(config: Config) -> Outcome:
    """Shows progress on standard output, unless `config.quiet`. Signals stay the caller's, jax's
    configuration too: programs are cached only if the caller has set up a cache."""
    config.check()
    make_devices([(config, config.seeds)])
    with Screen(make_console(sys.stdout), config.num_updates, config.quiet) as screen:
        return Runner(config, make_crew(config), Start(), Unrecorded(), screen).run(Interruption())
