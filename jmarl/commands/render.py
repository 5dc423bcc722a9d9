"""python -m jmarl.render RUN [--option value …]: a trained policy at play, as GIF and web page."""

import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jmarl.commands.arguments import command, read_run_command
from jmarl.errors import ConfigError
from jmarl.runs.terminal import working

GIF, PAGE = Path("RUN/replay.gif"), Path("RUN/replay.html")


class Options(BaseModel):
    """Show what the policy of a run does: a GIF, and a page to look through in a browser."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    which: Literal["best", "latest"] = Field(default="best", description="which checkpoint")
    episodes: int = Field(default=6, ge=1, description="how many are played")
    seed: int = Field(default=1, ge=0, description="of initial states and samples")
    sampled: bool = Field(default=False, description="actions are drawn, not the likeliest")
    gif: Path | None = Field(default=GIF, description="where the GIF goes; --no-gif: nowhere")
    html: Path | None = Field(default=PAGE, description="where the page goes; --no-html: nowhere")
    grid: bool = Field(default=False, description="the GIF shows all episodes, not the first only")
    fps: int = Field(default=8, ge=1, le=50, description="steps of the GIF in a second")


def render(run: Path, options: Options) -> list[Path]:
    """The files that were written."""
    from jmarl.replays.gif import MOST

    if options.gif is None and options.html is None:
        raise ConfigError("with --no-gif and --no-html there is nothing to write.")
    if options.grid and options.gif is not None and options.episodes > MOST:
        raise ConfigError(f"episodes={options.episodes} do not fit in a grid; {MOST} do.")
    files = _drawn(_replayed(run, options), run, options)
    for path, content in files.items():
        path.write_bytes(content)
    return list(files)


def _replayed(run: Path, options: Options) -> Any:
    import jax

    from jmarl.evaluation.trained_policy import load_policy
    from jmarl.replays.replay import record

    policy = load_policy(run, options.which)
    return record(policy, jax.random.key(options.seed), options.episodes, not options.sampled)


def _drawn(replay: Any, run: Path, options: Options) -> dict[Path, bytes]:
    from jmarl.replays.gif import gif
    from jmarl.replays.page import page

    files = {}
    if options.gif is not None:
        shown = range(options.episodes if options.grid else 1)
        files[run / GIF.name if options.gif == GIF else options.gif] = gif(
            replay, shown, options.fps
        )
    if options.html is not None:
        manner = "actions drawn" if options.sampled else "likeliest actions"
        about = f"{replay.algorithm}, {options.which} checkpoint, {manner}, seed {options.seed}"
        made = page(replay, run.resolve().name, about)
        files[run / PAGE.name if options.html == PAGE else options.html] = made.encode()
    return files


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
