"""What a sweep found: its settings ranked, as JSON, CSV, Markdown and a table on the screen."""

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from jmarl.config.formatting import command_line, shown, told
from jmarl.config.train_config import Config
from jmarl.runs.directory import replace_text, versions
from jmarl.runs.files import EVALUATIONS, SUMMARY
from jmarl.runs.logs import read_lines
from jmarl.stats import bootstrap_interval, iqm
from jmarl.sweeps.plan import Member, Plan

SHOWN = 10  # rows of the table on the screen


class Scored(NamedTuple):
    """A member and its last greedy evaluation."""

    member: Member
    score: float  # NaN: failed
    steps: int
    line: dict[str, Any]

    @property
    def failed(self) -> bool:
        return math.isnan(self.score)

    @property
    def progress(self) -> float:
        """Part of its budget that the member came through. One digit: rungs of halving are whole
        updates, so they are not quite the same part of every budget."""
        config = self.member.config
        return float(f"{self.steps / (config.num_updates * config.steps_per_update):.1g}")


class Ranked(NamedTuple):
    """A setting. Its figures are of the seeds that went furthest; NaN if all failed."""

    rank: int  # from 1
    setting: int
    settings: dict[str, Any]
    config: Config
    iqm: float
    low: float
    high: float
    mean: float
    seeds: int
    failed: int
    steps: int
    progress: float


class Ranking(NamedTuple):
    names: tuple[str, ...]  # of swept options
    settings: tuple[Ranked, ...]  # the best first
    members: tuple[Scored, ...]

    @property
    def best(self) -> Ranked | None:
        first = self.settings[0]
        return None if math.isnan(first.iqm) else first


def member_name(index: int, total: int) -> str:
    """Of a member's directory, such that names sort as members do."""
    return f"member_{index:0{max(3, len(str(total - 1)))}}"


def evaluations(path: Path, plan: Plan) -> list[list[dict[str, Any]]]:
    """Of every member its greedy evaluations, in the order in which they were made."""
    members = plan.members
    files = (path / member_name(member.index, len(members)) / EVALUATIONS for member in members)
    return [[line for line in read_lines(file) if "absolute" not in line] for file in files]


def write_results(path: Path, plan: Plan) -> Ranking:
    """Rank what members of the sweep in `path` have come to, and write it there."""
    ranking = rank(plan, evaluations(path, plan))
    replace_text(path / "members.jsonl", "".join(_member_line(m) for m in ranking.members))
    replace_text(path / "ranking.json", json.dumps(_figures(ranking), indent=1))
    replace_text(path / "ranking.csv", _csv(ranking))
    replace_text(path / "ranking.md", _markdown(ranking))
    if ranking.best is None:
        (path / "best.yaml").unlink(missing_ok=True)
    else:
        replace_text(path / "best.yaml", _best(_as_trained(ranking, path)))
    return ranking


def _as_trained(ranking: Ranking, path: Path) -> Ranked:
    """The best setting with the hyperparameters that its best member ended with: population-based
    training changes them."""
    best = ranking.best
    assert best is not None
    mine = [one for one in ranking.members if one.member.setting == best.setting]
    first = max(mine, key=lambda one: (one.steps, -math.inf if one.failed else one.score))
    file = path / member_name(first.member.index, len(ranking.members)) / SUMMARY
    ended = json.loads(file.read_text(encoding="utf-8"))["hyper"] if file.exists() else {}
    began = best.config.ppo
    changed = {
        name: value
        for name, value in ended.items()
        if not math.isclose(value, getattr(began, name), rel_tol=1e-6)  # float32 on disk
    }
    ppo = began.model_copy(update=changed)
    return best._replace(config=best.config.model_copy(update={"ppo": ppo}))


def rank(plan: Plan, evaluations: Sequence[list[dict[str, Any]]]) -> Ranking:
    """Better is what went further through its budget; of that, what failed with no seed; of that,
    what has the larger interquartile mean."""
    scored = [
        _scored(member, lines) for member, lines in zip(plan.members, evaluations, strict=True)
    ]
    by_setting: dict[int, list[Scored]] = {}
    for one in scored:
        by_setting.setdefault(one.member.setting, []).append(one)
    unranked = [_figures_of(members) for members in by_setting.values()]
    unranked.sort(key=lambda s: (math.isnan(s.iqm), -s.progress, s.failed > 0, -s.iqm, s.setting))
    ranked = [setting._replace(rank=place) for place, setting in enumerate(unranked, start=1)]
    return Ranking(plan.names, tuple(ranked), tuple(scored))


def _scored(member: Member, lines: list[dict[str, Any]]) -> Scored:
    last = lines[-1] if lines else {}
    score = last.get("eval/return_mean")
    score = float(score) if score is not None and math.isfinite(score) else math.nan
    return Scored(member, score, last.get("steps", 0), last)


def _figures_of(members: list[Scored]) -> Ranked:
    """Halving stops some seeds of a setting before others; only the furthest are compared."""
    whole = [one for one in members if not one.failed]
    furthest = max(whole or members, key=lambda one: one.steps)
    counted = [one for one in whole if one.steps == furthest.steps]
    middle, low, high = _interval(counted)
    first = members[0].member
    return Ranked(
        rank=0,
        setting=first.setting,
        settings=first.settings,
        config=first.config,
        iqm=middle,
        low=low,
        high=high,
        mean=float(np.mean([one.score for one in counted])) if counted else math.nan,
        seeds=len(counted),
        failed=len(members) - len(whole),
        steps=furthest.steps,
        progress=furthest.progress,
    )


def _interval(counted: list[Scored]) -> tuple[float, float, float]:
    """The interquartile mean over seeds and how sure it is; of one seed, over its episodes."""
    if not counted:
        return math.nan, math.nan, math.nan
    if len(counted) == 1:
        (one,) = counted
        parts = (one.line.get(f"eval/return_{part}") for part in ("iqm", "iqm_low", "iqm_high"))
        middle, low, high = (one.score if part is None else float(part) for part in parts)
        return middle, low, high
    scores = np.array([one.score for one in counted])
    return float(iqm(scores)), *bootstrap_interval(scores)


def _member_line(one: Scored) -> str:
    entry = {
        "index": one.member.index,
        "setting": one.member.setting,
        "settings": one.member.settings,
        "seed": one.member.seed,
        "score": None if one.failed else one.score,
        "steps": one.steps,
        "failed": one.failed,
    }
    return json.dumps(entry) + "\n"


def _figures(ranking: Ranking) -> dict[str, Any]:
    """The form that all figures have, and which settings the cases are."""
    rows = []
    for one in ranking.settings:
        figures = {
            "return_iqm": one.iqm,
            "return_low": one.low,
            "return_high": one.high,
            "return_mean": one.mean,
            "steps": one.steps,
            "rank": one.rank,
        }
        about = {"case": f"setting/{one.setting}", "subject": one.config.algorithm}
        rows += [
            {**about, "metric": metric, "value": value}
            for metric, value in figures.items()
            if math.isfinite(value)
        ]
    made, typed = versions(), command_line(*sys.argv)
    meta = {"commit": made["commit"], "command": typed, "versions": made["packages"]}
    settings = [
        {"setting": one.setting, "rank": one.rank, "settings": one.settings, "failed": one.failed}
        for one in ranking.settings
    ]
    return {"rows": rows, "meta": meta, "settings": settings}


def _csv(ranking: Ranking) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = ("return_iqm", "return_low", "return_high", "return_mean", "seeds", "failed", "steps")
    writer.writerow(["rank", "setting", *ranking.names, *figures])
    for one in ranking.settings:
        returns = (one.iqm, one.low, one.high, one.mean)
        cells = ["" if math.isnan(value) else value for value in returns]
        swept = [shown(value) for value in one.settings.values()]
        writer.writerow([one.rank, one.setting, *swept, *cells, one.seeds, one.failed, one.steps])
    return text.getvalue()


def _header(ranking: Ranking) -> list[str]:
    return ["rank", *ranking.names, "IQM", "95% interval", "mean", "seeds", "steps"]


def _cells(one: Ranked) -> list[str]:
    swept = [shown(value) for value in one.settings.values()]
    seeds = str(one.seeds) if not one.failed else f"{one.seeds} ({one.failed} failed)"
    if math.isnan(one.iqm):
        return [str(one.rank), *swept, "failed", "", "", seeds, f"{one.steps:,}"]
    interval = f"{one.low:.2f} … {one.high:.2f}"
    figures = [f"{one.iqm:.2f}", interval, f"{one.mean:.2f}", seeds, f"{one.steps:,}"]
    return [str(one.rank), *swept, *figures]


def _markdown(ranking: Ranking) -> str:
    def row(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    header = _header(ranking)
    body = "".join(row(_cells(one)) for one in ranking.settings)
    return row(header) + row("---:" for _ in header) + body


def _best(best: Ranked) -> str:
    values = best.config.model_dump(mode="json", exclude={"run_dir", "resume"})
    found = f"IQM of greedy returns {best.iqm:.2f} after {best.steps:,} steps, seeds: {best.seeds}"
    about = f"The best of the sweep: {told(best.settings) or 'its only setting'}. {found}."
    return f"# {about}\n{yaml.safe_dump(values, sort_keys=False)}"


def show(ranking: Ranking, console: Console) -> None:
    """The first settings as a table."""
    count = len(ranking.settings)
    title = f"the best {SHOWN} of {count} settings" if count > SHOWN else "settings"
    table = Table(title=f"{title}, by greedy return")
    for name in _header(ranking):
        table.add_column(name, justify="right")
    for one in ranking.settings[:SHOWN]:
        table.add_row(*_cells(one))
    console.print(table)
