"""Results of a sweep: its settings ranked, as JSON, CSV, Markdown and a table on the screen."""

import csv
import io
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jmarl.config.formatting import command_line, formatted, shown
from jmarl.config.option_names import hyperparameters, value_of, with_value
from jmarl.config.train_config import to_yaml
from jmarl.runs.directory import versions
from jmarl.runs.files import (
    BEST,
    RANKED_MEMBERS,
    RANKING,
    RANKING_CSV,
    RANKING_MARKDOWN,
    SUMMARY,
    member_name,
    read_json,
    replace_text,
    write_json,
    write_lines,
)
from jmarl.sweeps.plan import Plan
from jmarl.sweeps.scores import (
    Ranked,
    Ranking,
    Schedule,
    Scored,
    best_member,
    last_evaluations,
    rank,
    read_confirmation,
    schedules,
)

SHOWN = 10  # rows of the table on the screen
CONTEST = (
    "Teams play against each other, so that no return says which setting is better, and settings "
    "are not ranked. Each team's returns are in the members' evals.jsonl and in the report."
)
NONE = "–"  # in place of the interval of a single seed
INTERVAL = (
    "IQM: the interquartile mean over seeds of their mean greedy returns, of fewer than four their "
    "mean. Interval: 95 %, over seeds, by Student's t; a single seed has none."
)


def write_results(path: Path, plan: Plan) -> Ranking:
    """Rank the settings of the sweep in `path`, and write the ranking there."""
    ranking = rank(plan, last_evaluations(path, plan), schedules(path, plan))
    ranking = ranking._replace(confirmed=read_confirmation(path, plan))
    write_lines(path / RANKED_MEMBERS, map(_member_line, ranking.members))
    write_json(path / RANKING, _figures(ranking))
    replace_text(path / RANKING_CSV, _csv(ranking))
    replace_text(path / RANKING_MARKDOWN, _markdown(ranking))
    if ranking.best is None:
        (path / BEST).unlink(missing_ok=True)
    else:
        replace_text(path / BEST, _best(_as_trained(ranking, path), ranking))
    return ranking


def _as_trained(ranking: Ranking, path: Path) -> Ranked:
    """The best setting, with the hyperparameters that its best member had at the end:
    population-based training changes them."""
    best = ranking.best
    assert best is not None
    first = best_member([one for one in ranking.members if one.member.setting == best.setting])
    directory = path / member_name(first.member.index, len(ranking.members))
    ended = read_json(directory / SUMMARY).get("hyper", {})
    config, names = best.config, hyperparameters(best.config.algorithm)
    for name, value in ended.items():
        if not math.isclose(value, value_of(config, names[name]), rel_tol=1e-6):  # float32 on disk
            config = with_value(config, names[name], value)
    return best._replace(config=config)


def _member_line(one: Scored) -> dict[str, Any]:
    return {
        "index": one.member.index,
        "setting": one.member.setting,
        "settings": one.member.settings,
        "seed": one.member.seed,
        "score": None if math.isnan(one.score) else one.score,
        "steps": one.steps,
        "failed": one.failed,
        "reason": one.reason,
    } | ({"schedule": one.schedule} if len(one.schedule) > 1 else {})


def _figures(ranking: Ranking) -> dict[str, Any]:
    """Rows in the form of all figures of jmarl, and the settings that the cases stand for."""
    rows = []
    for one in ranking.settings:
        rows += _rows(one, {**_returns(one), "rank": one.rank})
    confirmed = ranking.confirmed
    if confirmed is not None:
        rows += _rows(confirmed, {f"confirmed_{k}": v for k, v in _returns(confirmed).items()})
    made, typed = versions(), command_line(*sys.argv)
    meta = {"commit": made["commit"], "command": typed, "versions": made["packages"]}
    settings = [
        {
            "setting": one.setting,
            "rank": one.rank,
            "settings": one.settings,
            "failed": one.failed,
            "reasons": one.reasons,
        }
        for one in ranking.settings
    ]
    about = {"interval": INTERVAL, "search": _selected(ranking), "confirmation": None}
    if confirmed is not None:
        about["confirmation"] = {
            "setting": confirmed.setting,
            "seeds": confirmed.seeds,
            "failed": confirmed.failed,
            "reasons": confirmed.reasons,
        }
    return {"rows": rows, "meta": meta, "settings": settings} | about


def _returns(one: Ranked) -> dict[str, float]:
    returns = {"iqm": one.iqm, "low": one.low, "high": one.high, "mean": one.mean}
    return {f"return_{name}": value for name, value in returns.items()} | {"steps": one.steps}


def _rows(one: Ranked, figures: dict[str, float]) -> list[dict[str, Any]]:
    about = {"case": f"setting/{one.setting}", "subject": one.config.algorithm}
    return [
        {**about, "metric": metric, "value": value}
        for metric, value in figures.items()
        if math.isfinite(value)
    ]


def _csv(ranking: Ranking) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = ("return_iqm", "return_low", "return_high", "return_mean", "seeds", "failed", "steps")
    again = [f"confirmed_{name}" for name in figures] if ranking.confirmed else []
    writer.writerow(["rank", "setting", *ranking.names, *figures, *again])
    for one in ranking.settings:
        confirmed = ranking.confirmed
        fresh = [""] * len(again)
        if confirmed is not None and confirmed.setting == one.setting:
            fresh = _csv_cells(confirmed)
        swept = [shown(value) for value in one.settings.values()]
        writer.writerow([one.rank, one.setting, *swept, *_csv_cells(one), *fresh])
    return text.getvalue()


def _csv_cells(one: Ranked) -> list[Any]:
    returns = (one.iqm, one.low, one.high, one.mean)
    cells = ["" if math.isnan(value) else value for value in returns]
    return [*cells, one.seeds, one.failed, one.steps]


def _header(ranking: Ranking) -> list[str]:
    return ["rank", *ranking.names, "IQM", "95% interval", "mean", "seeds", "steps"]


def notes(ranking: Ranking) -> list[str]:
    """What the table's figures are, and what the best setting scored with fresh seeds."""
    if any(one.contest for one in ranking.members):
        return [CONTEST]
    return [*filter(None, (INTERVAL, _selected(ranking), _confirmation_line(ranking)))]


def _selected(ranking: Ranking) -> str:
    """What the figure of the first of several settings is worth."""
    count = len(ranking.settings)
    if count < 2 or ranking.best is None:
        return ""
    scheduled = any(len(one.schedule) > 1 for one in ranking.settings)
    fresh = not scheduled and ranking.confirmed is None
    better = "; --confirm-seeds scores the best with fresh seeds" if fresh else ""
    return (
        f"The first is selected as the best of {count} settings by these figures, so that its own "
        f"is optimistic{better}."
    )


def _confirmation_line(ranking: Ranking) -> str:
    one = ranking.confirmed
    if one is None:
        return ""
    found = f"{_described(one)}; in the search {_in_search(ranking, one.setting)} (selected)"
    return f"Confirmed: {formatted(one.settings) or 'the only setting'} with fresh seeds: {found}."


def _in_search(ranking: Ranking, setting: int) -> str:
    return next(f"{one.iqm:.2f}" for one in ranking.settings if one.setting == setting)


def _described(one: Ranked) -> str:
    """`IQM -3.00 (-5.00 … -1.00), seeds: 4`."""
    failed = f", {one.failed} failed at {one.reasons[0]}" if one.reasons else ""
    if math.isnan(one.iqm):
        return f"no score, seeds: 0{failed}"
    return f"IQM {one.iqm:.2f}{_within(one, ' ({})')}, seeds: {one.seeds}{failed}"


def _within(one: Ranked, template: str) -> str:
    """The interval; empty where there is none."""
    return "" if math.isnan(one.low) else template.format(f"{one.low:.2f} … {one.high:.2f}")


def _cells(one: Ranked) -> list[str]:
    swept = [_over_time(one.schedule, name) for name in one.settings]
    why = f" at {one.reasons[0]}" if one.reasons else ""
    seeds = str(one.seeds) if not one.failed else f"{one.seeds} ({one.failed} failed{why})"
    if math.isnan(one.iqm):
        why = "failed" if one.failed else "no score"
        return [str(one.rank), *swept, why, "", "", seeds, f"{one.steps:,}"]
    within = _within(one, "{}") or NONE
    figures = [f"{one.iqm:.2f}", within, f"{one.mean:.2f}", seeds, f"{one.steps:,}"]
    return [str(one.rank), *swept, *figures]


def _over_time(schedule: Schedule, name: str) -> str:
    return " → ".join(shown(part[name]) for part in schedule if name in part)


def _markdown(ranking: Ranking) -> str:
    def row(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    header = _header(ranking)
    body = "".join(row(_cells(one)) for one in ranking.settings)
    return (
        row(header)
        + row("---:" for _ in header)
        + body
        + "".join(f"\n{x}\n" for x in notes(ranking))
    )


def _best(best: Ranked, ranking: Ranking) -> str:
    values = to_yaml(best.config, without=("run_dir", "resume"))
    found = f"IQM of greedy returns {best.iqm:.2f} after {best.steps:,} steps, seeds: {best.seeds}"
    about = [f"The best of the sweep: {formatted(best.settings) or 'its only setting'}. {found}."]
    return "".join(f"# {line}\n" for line in about + notes(ranking)[1:]) + values


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
    for note in notes(ranking):
        console.print(note, markup=False, soft_wrap=True)
