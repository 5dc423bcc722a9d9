"""python -m jmarl.report RUN … [--option value …]: what runs have learned, as one web page."""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from jmarl.commands.arguments import check_output, command, read_runs_command
from jmarl.errors import ConfigError
from jmarl.reports.curves import drawn
from jmarl.reports.data import MOST_LINES, Run, find_runs, printable_path, read_run, stride
from jmarl.reports.groups import WorldResults, compared
from jmarl.runs.terminal import working
from jmarl.runs.user_dirs import give_matplotlib_a_directory

PAGE = Path("RUN/report.html")
EVERYWHERE = Path("report.html")


class Options(BaseModel):
    """Curves, final returns, configurations and replays of runs, seeds and sweeps, as one page
    that needs no network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    html: Path | None = Field(
        default=PAGE,
        description="File for the page, for several runs ./report.html; --no-html: none.",
    )
    replays: int = Field(
        default=3,
        ge=0,
        description="Number of settings whose best policy is shown; --no-replays: none.",
    )
    episodes: int = Field(default=3, ge=1, description="Episodes in each replay.")
    png: Path | None = Field(default=None, description="Directory for figures as PNG.")
    svg: Path | None = Field(default=None, description="Directory for figures as SVG.")
    against: Literal["steps", "time"] = Field(
        default="steps", description="x-axis of the curves; the page can switch it."
    )


def report(given: Sequence[Path], options: Options, tell: Callable[[str], None]) -> list[Path]:
    """The files that were written. `tell` hears what is going on."""
    if options.html is None and options.png is None and options.svg is None:
        raise ConfigError("with --no-html and neither --png nor --svg there is nothing to write.")
    path = _place(given) if options.html == PAGE else options.html
    runs = find_runs(given)
    if path is not None:
        check_output("html", path)
    worlds = compared(_read(given, runs, tell))
    written = []
    if path is not None:
        written.append(_write_page(path, given, worlds, options, tell))
    folders: dict[Literal["png", "svg"], Path | None] = {"png": options.png, "svg": options.svg}
    for kind, folder in folders.items():
        if folder is not None:
            give_matplotlib_a_directory()
            from jmarl.reports.figures import write_figures

            written += write_figures(folder, kind, worlds, options.against, tell)
    return written


def _read(given: Sequence[Path], found: list[Path], tell: Callable[[str], None]) -> list[Run]:
    runs = []
    every = stride(found)
    if every > 1:
        warnings.warn(
            f"the runs have more than {MOST_LINES:,} lines; one of {every} is read.", stacklevel=1
        )
    for path in found:
        tell(f"reading {printable_path(path)} …")
        runs.append(read_run(path, every, drawn))
    if all(run.empty for run in runs):
        names = ", ".join(repr(printable_path(path)) for path in given)
        raise ConfigError(f"there is nothing to show yet: {names} has no figures.")
    return runs


def _place(given: Sequence[Path]) -> Path:
    return given[0] / PAGE.name if len(given) == 1 else EVERYWHERE


def _write_page(
    path: Path,
    given: Sequence[Path],
    worlds: Sequence[WorldResults],
    options: Options,
    tell: Callable[[str], None],
) -> Path:
    from jmarl.reports.page import page
    from jmarl.reports.replays import chosen, replays
    from jmarl.runs.files import replace_text

    shown = replays(chosen(worlds, options.replays), options.episodes, tell)
    tell("curves …")
    title = ", ".join(printable_path(one.resolve()).rpartition("/")[2] for one in given)
    made = time.strftime("%Y-%m-%d %H:%M")
    replace_text(path, page(title, worlds, shown, options.against, made))
    return path


def main() -> None:
    without = {"--no-html": ["--html", "None"], "--no-replays": ["--replays", "0"]}
    given = [part for word in sys.argv[1:] for part in without.get(word, [word])]
    with command() as (console, _):
        runs, options = read_runs_command(Options, "python -m jmarl.report RUN …", given)
        with working(console, "reading …") as tell:
            written = report(runs, options, tell)
        for path in written:
            size = f"{path.stat().st_size / 1e3:.0f} kB"
            line = f"{printable_path(path)} ({size})"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
