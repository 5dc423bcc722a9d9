"""The style of figures. Import it lazily: matplotlib takes a second."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # Okabe & Ito 2008
DPI = 130


def new_figure(width: float = 6.4, height: float = 4.4) -> tuple[Figure, Axes]:
    """A figure of that size in inches, and its axes."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    """Save in the format of the file's suffix."""
    figure.savefig(path, dpi=DPI)
    return path
