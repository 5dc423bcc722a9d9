"""A report's curves as image files, one per figure. Imports matplotlib, so import it lazily."""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from jmarl.presentation.figures import COLOURS, new_figure, save
from jmarl.reports.curves import PARTS, Curve, Metric, curve, metrics_of
from jmarl.reports.groups import WorldResults

Format = Literal["png", "svg"]
Against = Literal["steps", "time"]
POINTS = 2000  # per curve
FEW = 12  # up to this many points have markers
AXES = {"steps": "environment steps", "time": "minutes of training"}
REPRODUCIBLE: Any = {"svg.hashsalt": "jmarl"}  # the same ids in every SVG file


def write_figures(
    folder: Path,
    kind: Format,
    worlds: Sequence[WorldResults],
    against: Against,
    progress: Callable[[str], None],
) -> list[Path]:
    """Draw the best settings of every world: `eval_return_mean.png` and so on. `progress` receives
    messages."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for world in worlds:
        runs = [run for setting in world.settings for run in setting.runs]
        for metric in metrics_of(runs):
            path = folder / f"{figure_name(metric, world, len(worlds) > 1)}.{kind}"
            progress(f"{path.name} …")
            if (figure := draw(world, metric, against)) is not None:
                with warnings.catch_warnings(), matplotlib.rc_context(REPRODUCIBLE):
                    warnings.filterwarnings("ignore", "Glyph")  # names may use any script
                    made.append(save(figure, path))
    return made


def figure_name(metric: Metric, world: WorldResults, with_world: bool) -> str:
    """The metric's key with `_` for `/`; with several worlds, preceded by the world's name."""
    name = f"{world.name}.{metric.key}" if with_world else metric.key
    return re.sub(r"[^\w.=-]+", "_", name)


def draw(world: WorldResults, metric: Metric, against: Against) -> Figure | None:
    curves = []
    for setting in world.settings:
        found = curve(setting.runs, metric, POINTS)
        if found is not None:
            curves.append((setting, found))
        if len(curves) == len(COLOURS):
            break
    if not curves:
        return None
    figure, axes = new_figure(7.2, 4.2 + 0.25 * len(curves))
    lines = [
        _line(axes, found, against, colour)
        for (_, found), colour in zip(curves, COLOURS, strict=False)
    ]
    axes.set_xlabel(AXES[against])
    axes.set_ylabel(_label(metric), parse_math=False)
    if against == "steps":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    with_interval = any((found.seeds > 1).any() for _, found in curves)
    order = "" if world.opponents or len(world.settings) < 2 else ", best first"
    over = "IQM over seeds with 95% interval" if with_interval else "one seed each"
    legend = figure.legend(
        lines,
        [str(i) for i in range(len(lines))],
        loc="outside lower center",
        ncols=1,
        frameon=False,
        title=over + order,
        fontsize=9,
    )
    # Set afterwards: names are not formulas, and matplotlib drops labels that begin with "_".
    for text, (setting, _) in zip(legend.get_texts(), curves, strict=True):
        text.set_parse_math(False)
        text.set_text(setting.label)
    return figure


def _label(metric: Metric) -> str:
    if metric.section == PARTS:
        return f"greedy return of {metric.title}"
    return f"{metric.title.lower()}, {metric.about}" if metric.about else metric.title.lower()


def _line(axes: Axes, found: Curve, against: Against, colour: str) -> Line2D:
    x = found.steps if against == "steps" else found.seconds / 60
    marker = "o" if len(x) <= FEW else ""
    (line,) = axes.plot(x, found.middle, color=colour, marker=marker, markersize=4)
    axes.fill_between(
        x, found.low, found.high, where=np.isfinite(found.low), color=colour, alpha=0.15, lw=0
    )
    return line
