"""pytest in forks of a process that has imported what is slow to import and never changes.

Neither the package nor its tests are imported before the fork: they may differ from fork to fork.
"""

import multiprocessing
import os
import sys
from pathlib import Path
from typing import NamedTuple

# neither plugins of pytest, which it rewrites as it imports them, nor what starts jax's devices
SLOW = ["jax", "flax.linen", "optax", "distrax", "orbax.checkpoint", "torch", "mpe2", "PIL.Image"]


class Ended(NamedTuple):
    exit_code: int  # negative: the signal that ended it
    output: str


def _in_fork(place: Path, arguments: tuple[str, ...], output: Path) -> None:
    """Become a process that was started in `place`, and run pytest there."""
    import pytest

    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    here = str(Path(__file__).parents[2])
    sys.path[:] = [str(place), *(path for path in sys.path if path not in ("", here))]
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "__mp_main__")]:
        del sys.modules[name]
    os.chdir(place)
    os.environ |= {"PYTHONPATH": str(place), "COLUMNS": "300"}
    sys.exit(pytest.main(["-q", "-n", "0", "-rfE", "-m", "", *arguments]))


def forked_pytest(place: Path, *arguments: str) -> Ended:
    """Run tests of the checkout in `place`."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as tests/conftest.py, but before torch is here
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(SLOW)
    output = place / "output"
    fork = forks.Process(target=_in_fork, args=(place, arguments, output))
    fork.start()
    fork.join()
    return Ended(fork.exitcode or 0, output.read_text(encoding="utf-8", errors="replace"))
