"""What Orbax does besides saving and a run does without: logs, late tracebacks, metrics."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import orbax.checkpoint  # noqa: F401 (METRICS lies in it)
from absl import logging as absl_logging

# If one of several writes fails, Orbax closes its event loop while tensorstore's threads still do
# the others; each would print a traceback when it is done.
LATE = "Event loop is closed"
METRICS = "orbax.checkpoint._src.serialization.tensorstore_utils", "get_tensorstore_raw_bytes"


def turn_off() -> None:
    """For this process."""
    absl_logging.set_verbosity(absl_logging.FATAL)  # Orbax logs every save, and raises what it logs
    sys.unraisablehook = partial(_tell_unless_late, sys.unraisablehook)
    # Tensorstore (0.1.86) never frees the metrics that Orbax (0.12.8) asks it for at every save, to
    # log how fast it was: 24 lists a save. Orbax has no option for it; other versions may not ask.
    module, function = METRICS
    if hasattr(sys.modules.get(module), function):
        setattr(sys.modules[module], function, _unknown)


def _tell_unless_late(tell: Callable[[Any], object], raised: Any) -> None:
    if str(raised.exc_value) != LATE:
        tell(raised)


def _unknown(*direction: Any) -> int:
    del direction
    return 0
