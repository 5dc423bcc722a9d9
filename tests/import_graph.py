"""python -m tests.import_graph [BEFORE …] --out PICTURE: which module of jmarl imports which.

Draws the packages of this checkout by layer, with arrows from importer to imported. `BEFORE` are
directories of earlier versions of the package, drawn beside it as they were.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from tests.test_layering import LAYER, LAYERS, PACKAGE, imported, modules, room_of


def edges(root: Path) -> set[tuple[str, str]]:
    """(importer, imported) of all modules below `root`, lazy imports included."""
    trees = dict(modules(root))
    found = set()
    for name, tree in trees.items():
        for full in imported(tree):
            target = full if full in trees else full.rpartition(".")[0]
            if target in trees and target != name:
                found.add((name, target))
    return found


def draw_flat(axes: plt.Axes, root: Path) -> None:
    """Modules on a circle."""
    pairs = edges(root)
    names = sorted({name for pair in pairs for name in pair})
    angle = dict(zip(names, np.linspace(0, 2 * np.pi, len(names), endpoint=False), strict=True))
    for pair in pairs:
        ends = np.array([[np.cos(angle[name]), np.sin(angle[name])] for name in pair])
        axes.plot(*ends.T, color="#3b6ea5", linewidth=0.4, alpha=0.6)
    for name, a in angle.items():
        turn = np.degrees(a)
        flip = 90 < turn < 270
        axes.text(
            1.03 * np.cos(a),
            1.03 * np.sin(a),
            name.removeprefix("jmarl."),
            fontsize=4.5,
            rotation=turn + 180 * flip,
            rotation_mode="anchor",
            ha="right" if flip else "left",
            va="center",
        )
    axes.set_title(f"{len(names)} modules, {len(pairs)} imports between them", fontsize=9)
    axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")


def draw_layers(axes: plt.Axes, root: Path) -> None:
    """Packages by layer; a line's width grows with the number of imports."""
    counts: dict[tuple[str, str], int] = {}
    pairs = edges(root)
    for importer, target in pairs:
        rooms = room_of(importer), room_of(target)
        if rooms[0] != rooms[1] and "" not in rooms:
            counts[rooms] = counts.get(rooms, 0) + 1
    place = {}
    for names in LAYERS:
        for k, name in enumerate(names):
            place[name] = (k - (len(names) - 1) / 2, LAYER[name])
    for (importer, target), count in counts.items():
        (x0, y0), (x1, y1) = place[importer], place[target]
        bend = 0.06 * abs(y0 - y1) * (1 if (y0 + y1) % 2 else -1)
        axes.annotate(
            "",
            (x1, y1),
            (x0, y0),
            arrowprops={
                "arrowstyle": "-|>",
                "color": "#3b6ea5",
                "alpha": 0.5,
                "linewidth": 0.4 + 0.15 * count,
                "connectionstyle": f"arc3,rad={bend:.2f}",
                "shrinkA": 9,
                "shrinkB": 9,
            },
        )
    for name, (x, y) in place.items():
        if name:
            box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "#3b6ea5"}
            axes.text(x, y, f"{name}/", ha="center", va="center", fontsize=8, bbox=box)
    total = len({name for pair in pairs for name in pair})
    axes.set_title(f"{total} modules in {len(place) - 1} packages; no arrow points up", fontsize=9)
    axes.set(xlim=(-1.6, 1.6), ylim=(0.4, len(LAYERS) - 0.4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    figure, axes = plt.subplots(
        1, 1 + len(options.before), figsize=(6.5 * (1 + len(options.before)), 6.5), squeeze=False
    )
    for axis, root in zip(axes[0], options.before, strict=False):
        draw_flat(axis, root)
    draw_layers(axes[0, -1], PACKAGE)
    for axis in axes[0]:
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(options.out, dpi=130)


if __name__ == "__main__":
    main()
