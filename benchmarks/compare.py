"""Compares the figures of two runs of a benchmark and flags those that became slower or larger.

    python -m benchmarks.compare OLD.json NEW.json [--by 1.1]

Exits with 1 if any figure became worse by more than the factor.
"""

import argparse
import json
from pathlib import Path

from benchmarks.report import console, table

LESS_IS_BETTER = ("_s", "_mb", "_ms", "bytes", "collectives")
MORE_IS_BETTER = ("per_s", "per_minute", "roofline", "speedup", "gflops")
Figures = dict[tuple[str, str, str], float]


def read(path: Path) -> Figures:
    """Figures by case, subject and metric."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {(row["case"], row["subject"], row["metric"]): row["value"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} has no figures of a benchmark: {error!r}.") from None


def change(metric: str, old: float, new: float) -> float | None:
    """How many times better the new figure is; None for metrics without a better direction."""
    if min(old, new) <= 0:
        return None
    if metric.endswith(MORE_IS_BETTER):
        return new / old
    return old / new if metric.endswith(LESS_IS_BETTER) else None


def compared(old: Figures, new: Figures) -> list[tuple[tuple[str, str, str], float, float, float]]:
    """The figures that both runs have, worst first."""
    found = []
    for key in old.keys() & new.keys():
        times = change(key[2], old[key], new[key])
        if times is not None:
            found.append((key, old[key], new[key], times))
    return sorted(found, key=lambda pair: (pair[3], pair[0]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--by", type=float, default=1.1, help="the factor that counts as worse")
    options = parser.parse_args()
    if options.by < 1:
        parser.error(f"--by: {options.by} is below 1")
    old, new = read(options.old), read(options.new)
    pairs = compared(old, new)
    if not pairs:
        raise SystemExit(f"{options.old} and {options.new} have no figure in common.")
    worse = [pair for pair in pairs if pair[3] * options.by < 1]
    table(
        "new against old, worst first",
        ["case", "subject", "metric", "old", "new", "better by", ""],
        [
            [*key, f"{a:,.4g}", f"{b:,.4g}", f"{times:.2f}×", "worse" * (times * options.by < 1)]
            for key, a, b, times in pairs
        ],
    )
    lost = len(old.keys() - new.keys())
    of = f"{len(worse)} of {len(pairs)}"
    console.print(f"{of} worse by more than {options.by}×; {lost} old figures are missing in new")
    raise SystemExit(bool(worse))


if __name__ == "__main__":
    main()
