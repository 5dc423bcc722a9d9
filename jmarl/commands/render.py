"""python -m jmarl.render RUN [--option value …]: a trained policy at play, as GIF and web page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jmarl.commands.arguments import check_output, command, read_run_command
from jmarl.config.combinations import LARGEST_SEED
from jmarl.errors import ConfigError
from jmarl.runs.terminal import working

if TYPE_CHECKING:
    from jmarl.evaluation.trained_policy import TrainedPolicy

GIF, PAGE = Path("RUN/replay.gif"), Path("RUN/replay.html")


class Options(BaseModel):
    """Show what the policy of a run does: a GIF, and a page to look through in a browser."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    which: Literal["best", "latest"] = Field(default="best", description="Checkpoint to load.")
    episodes: int = Field(default=6, ge=1, description="Number of episodes.")
    seed: int = Field(
        default=1, ge=0, le=LARGEST_SEED, description="Random seed of initial states and actions."
    )
    sampled: bool = Field(
        default=False, description="Sample actions instead of the most likely ones."
    )
    gif: Path | None = Field(default=GIF, description="File for the GIF; --no-gif: none.")
    html: Path | None = Field(default=PAGE, description="File for the page; --no-html: none.")
    grid: bool = Field(
        default=False, description="Show all episodes in the GIF, not just the first."
    )
    fps: int = Field(default=8, ge=1, le=50, description="Steps per second in the GIF.")


def render(run: Path, options: Options, policy: "TrainedPolicy | None" = None) -> list[Path]:
    """The files that were written, beside the run unless options say where. `policy`: if not that
    of the run's directory."""
    from jmarl.replays.gif import MOST
    from jmarl.runs.files import replace_bytes

    if options.gif is None and options.html is None:
        raise ConfigError("with --no-gif and --no-html there is nothing to write.")
    if options.grid and options.gif is not None and options.episodes > MOST:
        raise ConfigError(f"episodes={options.episodes} do not fit in a grid; {MOST} do.")
    files = _drawn(_replayed(run, options, policy), run, options)
    for path, content in files.items():
        replace_bytes(path, content)
    return list(files)


def _replayed(run: Path, options: Options, policy: "TrainedPolicy | None") -> Any:
    import jax

    from jmarl.evaluation.trained_policy import load_policy
    from jmarl.execution.memory import check_worlds_fit
    from jmarl.replays.replay import record

    policy = policy or load_policy(run, options.which)
    for name, path in (("gif", _gif(run, options)), ("html", _page(run, options))):
        if path is not None:
            check_output(name, path)
    check_worlds_fit(policy.env, options.episodes)
    return record(policy, jax.random.key(options.seed), options.episodes, not options.sampled)


def _drawn(replay: Any, run: Path, options: Options) -> dict[Path, bytes]:
    from jmarl.replays.gif import gif
    from jmarl.replays.page import page

    files = {}
    if (path := _gif(run, options)) is not None:
        files[path] = gif(replay, range(options.episodes if options.grid else 1), options.fps)
    if (path := _page(run, options)) is not None:
        manner = "actions drawn" if options.sampled else "likeliest actions"
        about = f"{replay.algorithm}, {options.which} checkpoint, {manner}, seed {options.seed}"
        made = page(replay, run.resolve().name, about)
        files[path] = made.encode()
    return files


def _gif(run: Path, options: Options) -> Path | None:
    return run / GIF.name if options.gif == GIF else options.gif


def _page(run: Path, options: Options) -> Path | None:
    return run / PAGE.name if options.html == PAGE else options.html


def main() -> None:
    without = {"--no-gif": ["--gif", "None"], "--no-html": ["--html", "None"]}
    given = [part for word in sys.argv[1:] for part in without.get(word, [word])]
    with command() as (console, _):
        run, options = read_run_command(Options, "python -m jmarl.render RUN", given)
        with working(console, f"playing {options.episodes} episodes …"):
            written = render(run, options)
        for path in written:
            size = f"{path.stat().st_size / 1e3:.0f} kB"
            console.print(f"{path} ({size})", markup=False, highlight=False, soft_wrap=True)
