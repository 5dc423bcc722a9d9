"""The throughput benchmark's pieces: what is counted, what is shown, who is measured."""

import io
import json

import jax
import numpy as np
import pytest

from benchmarks import compare, flops, report, throughput
from benchmarks.report import Row
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build


def products(jaxpr):
    """Operations in matrix products, loops multiplied out; of branches the costlier."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            size = np.prod([eqn.invars[0].aval.shape[axis] for axis in contracted])
            total += 2 * np.prod(eqn.outvars[0].aval.shape) * size
        times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
        inner = [
            products(getattr(leaf, "jaxpr", leaf))
            for leaf in jax.tree.leaves(
                dict(eqn.params), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
            )
            if hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")
        ]
        total += times * (max(inner) if eqn.primitive.name == "cond" and inner else sum(inner))
    return total


@pytest.mark.parametrize(
    ("options", "within"),
    [
        ({"algorithm": "ippo"}, 0.12),
        ({"algorithm": "mappo"}, 0.12),
        ({"algorithm": "rmappo", "net": {"hidden": (32,)}}, 0.12),
        ({"algorithm": "mat", "actions": "continuous"}, 0.12),
    ],
)
def test_the_count_is_about_what_the_program_multiplies(options, within):
    """It is no exact count: gradients of observations are not needed, ends are valued besides."""
    config = build(options | {"num_envs": 16, "ppo": {"epochs": 4, "num_minibatches": 2}})
    trainer, hyper = make_trainer(config)
    state = jax.eval_shape(trainer.init, jax.random.key(0))
    counted = products(jax.make_jaxpr(trainer.step_alike)(state, hyper).jaxpr)
    expected = flops.per_step(config, trainer.env.spec) * config.steps_per_update
    assert counted == pytest.approx(expected, rel=within)


def test_what_the_algorithms_cost():
    """By hand, three agents that see 18 numbers and choose one of 5 moves."""
    spec = make_trainer(build({"algorithm": "ippo", "num_envs": 8}))[0].env.spec
    ippo = build(throughput.JAXMARL_IPPO | {"num_envs": 8})
    row = 18 * 64 + 64 * 64 + 64 * 5 + 18 * 64 + 64 * 64 + 64 * 1
    assert flops.per_step(ippo, spec) == 2 * 3 * row * 13
    mat = build(throughput.MAT | {"num_envs": 8})
    assert flops.per_step(mat, spec) / 1e6 == pytest.approx(14.3, abs=0.2)  # "about 14"


ROWS = [
    Row("ippo/16", subject, metric, value)
    for subject, speed in (("jmarl", 1000.0), ("torch_vectorised", 250.0))
    for metric, value in {
        **{"steps_per_s": speed, "whole_s": 2.0, "rollout_s": 0.5, "update_s": 1.5},
        **{"roofline": 0.4, "first_update_s": 9.0, "peak_mb": 900.0, "training_mb": 300.0},
    }.items()
]


def test_the_table_shows_how_many_times_as_fast_jmarl_is(tmp_path):
    ours, theirs = throughput.lines([*ROWS, Row("ippo/16", "jmarl", "compile_s", 7.0)])
    assert ours == ["ippo/16", "jmarl", "1,000", "1.0×", "25%", "40%", "7.0", "9.0", "900", "300"]
    assert theirs[2:4] == ["250", "4.0×"]
    assert theirs[6] == ""
    throughput.plot(ROWS, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 5000


def test_the_named_shapes_are_measured():
    every = throughput.cases(quick=False)
    for case in ("mat/128", "mappo/128", "ippo/1", "rmappo/16", "mat/4096", "rmappo_jaxmarl/256"):
        assert case in every
    assert {"ippo_jaxmarl/16", "ippo_jaxmarl/1024", "mat_agents/10", "mat_agents/30"} <= set(every)
    assert every["mat/128"][1] == ("jmarl", "torch_subprocess", "torch_vectorised")
    for options, _ in every.values():
        build(options)


@pytest.fixture(scope="module")
def measured():
    options = {"algorithm": "ippo", "num_envs": 2, "ppo": {"epochs": 1, "num_minibatches": 1}}
    with pytest.MonkeyPatch.context() as patch, throughput.process("gemm", {}) as peak:
        patch.setattr(throughput, "ROUNDS", 1)
        peak.recv()
        subjects = ("jmarl", "torch_vectorised")
        return throughput.measure("ippo/2", options, subjects, peak)


@pytest.mark.long
def test_subjects_take_turns_in_processes_of_their_own(measured):
    value = {(row.subject, row.metric): row.value for row in measured}
    for subject in ("jmarl", "torch_vectorised"):
        assert value[subject, "steps_per_s"] == pytest.approx(50 / value[subject, "whole_s"])
        assert value[subject, "rollout_s"] > 0
        assert value[subject, "turns"] == 1
        assert 50 < value[subject, "training_mb"] < value[subject, "peak_mb"] * 1.5 < 5000
        assert value[subject, "first_update_s"] > value[subject, "whole_s"]
        assert 0 < value[subject, "roofline"] < 1
    assert value["jmarl", "compile_s"] > 0
    assert value["gemm", "gflops"] > 1


def written(path, rows):
    path.write_text(
        json.dumps({"rows": [row._asdict() for row in rows], "meta": {}}), encoding="utf-8"
    )
    return path


def test_comparing_flags_what_became_worse(called, monkeypatch, tmp_path):
    slower = [
        row._replace(value=row.value * (0.5 if row.metric == "steps_per_s" else 1)) for row in ROWS
    ]
    old, new = written(tmp_path / "old.json", ROWS), written(tmp_path / "new.json", slower)
    for files, code, words in (((old, new), 1, "2 of 16 worse"), ((new, old), 0, "0 of 16 worse")):
        monkeypatch.setattr(report.console, "file", io.StringIO())
        assert called(compare, *files)[0] == code
        assert words in report.console.file.getvalue()
    message, _ = called(compare, old, "/no/such")  # Python prints it and ends with 1
    assert "/no/such has no figures" in message


def test_less_memory_and_time_are_better():
    assert compare.change("compile_s", 2.0, 1.0) == 2
    assert compare.change("peak_mb", 1.0, 2.0) == 0.5
    assert compare.change("steps_per_s", 1.0, 2.0) == 2
    assert compare.change("turns", 1.0, 2.0) is None
