"""Evaluations of sweeps that nobody ran, for tests of what is made of them."""

import json

from jmarl.config.sweep_values import build
from jmarl.runs.files import member_name
from jmarl.sweeps.plan import plan

STEPS = 3200  # of an update with the default options


def planned(**values):
    return plan(build(values))


def write_member(path, index, total, returns, every=1, name=None):
    """One greedy evaluation each, and at last the absolute metric, which is no score."""
    folder = path / (name or member_name(index, total))
    folder.mkdir()
    lines = [
        {
            "update": i * every,
            "steps": i * every * STEPS,
            "seconds": 1.0,
            "eval/return_mean": value,
            "eval/return_iqm": None if value is None else value + 0.5,
            "eval/return_iqm_low": None if value is None else value - 1,
            "eval/return_iqm_high": None if value is None else value + 2,
        }
        for i, value in enumerate(returns)
    ]
    if lines:
        about = {name: lines[-1][name] for name in ("update", "steps", "seconds")}
        lines.append({**about, "absolute": True, "absolute/return_mean": 1e9})
    (folder / "evals.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
    )


def write_sweep(path, made, returns, every=1):
    """`returns`: for every member what it scored in turn."""
    for member, scores in zip(made.members, returns, strict=True):
        write_member(path, member.index, len(made.members), scores, every)
