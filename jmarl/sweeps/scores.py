"""What the members of a sweep have scored, and the ranking of their settings."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jmarl.config.option_names import hyperparameters
from jmarl.config.train_config import Config
from jmarl.ranking import Standing, ranked, training_progress
from jmarl.runs.files import (
    CHOSEN,
    CONFIRMATION,
    EXCHANGES,
    GROUP_FINISHED,
    SUMMARY,
    group_name,
    member_name,
    read_greedy_evaluations,
    read_json,
    read_lines,
    seed_name,
)
from jmarl.stats import interval, iqm
from jmarl.sweeps.plan import Member, Plan, confirmation

Schedule = tuple[dict[str, Any], ...]  # swept options from an update on, the first at update 0


class Scored(NamedTuple):
    """A member and its last greedy evaluation."""

    member: Member
    score: float  # NaN: failed, or in a contest
    reason: str | None  # why it failed, if that is known
    steps: int
    schedule: Schedule
    contest: bool = False  # teams play against each other: no return says who is better

    @property
    def failed(self) -> bool:
        return math.isnan(self.score) and (self.reason is not None or not self.contest)

    @property
    def progress(self) -> float:
        config = self.member.config
        return training_progress(self.steps, config.num_updates * config.steps_per_update)

    @property
    def standing(self) -> Standing:
        return Standing(self.score, self.progress)


class Ranked(NamedTuple):
    """A setting. Its figures are over the seeds that trained furthest; NaN if all failed. A single
    seed has no interval."""

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
    reasons: tuple[str, ...]  # why seeds failed, as far as that is known
    schedule: Schedule  # of its best member
    steps: int
    progress: float  # see `jmarl.ranking`


class Ranking(NamedTuple):
    names: tuple[str, ...]  # of swept options
    settings: tuple[Ranked, ...]  # the best first
    members: tuple[Scored, ...]
    confirmed: Ranked | None = None  # the best setting, with seeds that the search did not see

    @property
    def best(self) -> Ranked | None:
        first = self.settings[0]
        return None if math.isnan(first.iqm) else first


def last_evaluations(path: Path, plan: Plan) -> list[dict[str, Any]]:
    """Every member's last greedy evaluation; empty if there is none."""
    members = plan.members
    return [_last(path / member_name(member.index, len(members))) for member in members]


def _last(directory: Path) -> dict[str, Any]:
    """A member may fail after its last evaluation; then its summary says so."""
    lines = read_greedy_evaluations(directory)
    failed = read_json(directory / SUMMARY).get("failed")
    return (lines[-1] if lines else {}) | ({} if failed is None else {"failed": failed})


def schedules(path: Path, plan: Plan) -> list[Schedule]:
    """What population-based training made of every member: the swept options that its parameters
    were trained with, back to the member that they were first copied from."""
    found: dict[int, Schedule] = {}
    for number, group in enumerate(plan.groups):
        own = [({"update": 0, **member.settings},) for member in group.members]
        names = hyperparameters(group.config.algorithm)
        for line in read_lines(path / group_name(number) / EXCHANGES):
            changed = {names[name]: value for name, value in line["hyper"].items()}
            own[line["member"]] = (*own[line["copies"]], {"update": line["update"], **changed})
        found |= {member.index: one for member, one in zip(group.members, own, strict=True)}
    return [found[member.index] for member in plan.members]


def read_confirmation(path: Path, plan: Plan) -> Ranked | None:
    """None: there was no confirmation, or it has not finished."""
    where = path / CONFIRMATION
    known = read_json(where / CHOSEN)
    if not known or not (where / GROUP_FINISHED).is_file():
        return None
    fresh = confirmation(plan, known["setting"], len(known["seeds"])).members
    return _figures_of(
        [_scored(one, _last(where / seed_name(one.seed)), (one.settings,)) for one in fresh]
    )


def best_member(members: Sequence[Scored]) -> Scored:
    return members[ranked(one.standing for one in members)[0]]


def rank(plan: Plan, lasts: Sequence[dict[str, Any]], schedules: Sequence[Schedule]) -> Ranking:
    """Settings in the order of `jmarl.ranking`, by every member's last evaluation."""
    scored = [_scored(*each) for each in zip(plan.members, lasts, schedules, strict=True)]
    by_setting: dict[int, list[Scored]] = {}
    for one in scored:
        by_setting.setdefault(one.member.setting, []).append(one)
    settings = [_figures_of(members) for members in by_setting.values()]
    order = ranked(Standing(one.iqm, one.progress, one.failed > 0) for one in settings)
    best_first = [settings[i]._replace(rank=place) for place, i in enumerate(order, start=1)]
    return Ranking(plan.names, tuple(best_first), tuple(scored))


def _scored(member: Member, last: dict[str, Any], schedule: Schedule) -> Scored:
    value, reason = last.get("eval/return_mean"), last.get("failed")
    score = math.nan if value is None or reason is not None else float(value)
    score = score if math.isfinite(score) else math.nan
    contest = value is None and bool(last.get("teams"))
    return Scored(member, score, reason, last.get("steps", 0), schedule, contest)


def _figures_of(members: list[Scored]) -> Ranked:
    """Over the seeds that trained furthest: halving stops some before others."""
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
        reasons=tuple(one.reason for one in members if one.reason is not None),
        steps=furthest.steps,
        progress=furthest.progress,
        schedule=best_member(members).schedule,
    )


def _interval(counted: list[Scored]) -> tuple[float, float, float]:
    """The interquartile mean over seeds with its interval."""
    if not counted:
        return math.nan, math.nan, math.nan
    scores = np.array([one.score for one in counted])
    low, high = interval(scores)
    return float(iqm(scores)), float(low), float(high)
