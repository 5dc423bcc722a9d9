"""The benchmark commands' pieces on tiny sizes; the commands themselves take minutes."""

import json

import jax
import pytest

from benchmarks import api, deaths, decode, envs, report


@pytest.fixture(scope="module")
def rows():
    with jax.numpy_rank_promotion("allow"), jax.debug_key_reuse(False):
        return envs.measure("simple_speaker_listener", 2, with_jaxmarl=True)


def test_every_subject_has_a_rate_and_every_program_a_compile_time(rows):
    found = {(row.subject, row.metric) for row in rows}
    assert found == {
        ("native", "steps_per_s"),
        ("jaxmarl", "steps_per_s"),
        ("mpe2", "steps_per_s"),
        ("native", "compile_s"),
        ("jaxmarl", "compile_s"),
    }
    assert {row.case for row in rows} == {"simple_speaker_listener/2"}
    assert all(row.value > 0 for row in rows)


def test_figures_are_written_in_the_one_form(rows, tmp_path):
    report.write(tmp_path / "x.json", rows)
    written = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert set(written) == {"rows", "meta"}
    assert set(written["rows"][0]) == {"case", "subject", "metric", "value"}
    assert {"commit", "command", "versions", "cores"} <= set(written["meta"])


def test_the_table_shows_ratios():
    """Of one agent, and of six, whose steps take twice as long per agent."""
    rates = {"native": 30, "jaxmarl": 10, "mpe2": 5.0}
    rows = [report.Row("simple_spread/1", s, "steps_per_s", v) for s, v in rates.items()]
    rows += [report.Row("simple_spread/1", s, "compile_s", 1.0) for s in ("native", "jaxmarl")]
    rows += [report.Row("simple_world_comm/1", "native", "steps_per_s", 7.5)]
    rows += [report.Row("simple_world_comm/1", "mpe2", "steps_per_s", 2.5)]
    assert envs.lines(rows) == [
        ["simple_spread/1", "30", "10", "5", "3.0×", "6×", "1.0×", "1.0", "1.0"],
        ["simple_world_comm/1", "8", "", "2", "", "3×", "2.0×", "", ""],
    ]


def test_views_are_measured_beside_the_worlds_of_their_libraries():
    with jax.numpy_rank_promotion("allow"), jax.debug_key_reuse(False):
        rows = envs.measure("simple", 2, with_jaxmarl=False, views=tuple(envs.BESIDE))
    rates = {row.subject: row.value for row in rows if row.metric == "steps_per_s"}
    assert set(rates) == {"native", "mpe2", *envs.BESIDE}
    assert all(rate > 0 for rate in rates.values())
    lines = {line[1]: line for line in envs.view_lines(rows)}
    assert set(lines) == set(envs.BESIDE)
    assert lines["jaxmarl_view"][4:] == ["", ""]  # JaxMARL was not measured
    quotient = rates["pettingzoo_view"] / rates["mpe2"]
    assert lines["pettingzoo_view"][5] == f"{quotient:,.1f}×"


def test_the_views_of_the_target_are_measured():
    assert envs.views_of("simple_spread", 1) == ("pettingzoo_view",)
    assert all(envs.views_of("simple_spread", n) == ("jaxmarl_view",) for n in (64, 1024, 4096))
    assert envs.views_of("simple", 64) == ("gymnasium_view",)
    assert envs.views_of("simple_crypto", 64) == ()


def test_interleaved_takes_turns_after_a_warm_up():
    order = []
    times = report.interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2)
    assert order == ["a", "b"] * 3
    assert {name: len(taken) for name, taken in times.items()} == {"a": 2, "b": 2}


@pytest.mark.parametrize("arguments", [["--quik"], ["--json"]])
def test_a_mistyped_option_is_refused_in_one_line(arguments, called):
    code, said = called(envs, *arguments)
    assert code == 2
    assert arguments[0] in said.splitlines()[-1]


def test_cached_acting_is_what_recomputing_gives():
    rows = {(row.subject, row.metric): row.value for row in decode.measure(4, rounds=1)}
    assert rows["cached", "log_prob_difference"] < 1e-5
    assert set(rows) == {
        *((subject, m) for subject in ("cached", "recomputed") for m in ("time_s", "compile_s")),
        ("cached", "speedup"),
        ("cached", "log_prob_difference"),
    }


def test_the_decoding_table_shows_milliseconds_and_the_ratio():
    values = {"time_s": 0.002, "compile_s": 1.0, "speedup": 3.0, "log_prob_difference": 1e-7}
    rows = [report.Row("agents/3", s, m, v) for m, v in values.items() for s in ("cached",)]
    rows += [report.Row("agents/3", "recomputed", m, 3 * values[m]) for m in values]
    assert decode.lines(rows) == [["agents/3", "2.00", "6.00", "3.0×", "1.0", "3.0", "1e-07"]]


def test_the_table_of_deaths_has_means_over_seeds_and_extremes_of_victories():
    seeds = {
        "win_rate/100": (0.0, 0.5),
        "return/100": (1.0, 2.0),
        "win_rate/200": (0.5, 1.0),
        "return/200": (3.0, 4.0),
        "value_alive": (0.5, 0.7),
        "value_dead": (2.0, 2.5),
        "part_dead": (0.25, 0.5),
    }
    rows = [
        report.Row("3m", "own", f"{name}/seed_{i}", value)
        for name, values in seeds.items()
        for i, value in enumerate(values)
    ]
    rows.append(report.Row("3m", "own", "seconds", 90.0))
    won = ["25% (0% … 50%)", "75% (50% … 100%)"]
    means = ["1.50 3.50", "0.60", "2.25", "38%", "1.5"]
    assert deaths.lines(rows) == [["3m own, 200 steps", *won, *means]]


def test_figures_of_other_maps_are_kept(tmp_path):
    path, rows = tmp_path / "x.json", [report.Row("3m", "own", "seconds", 90.0)]
    assert deaths.earlier(path) == []
    report.write(path, rows)
    assert deaths.earlier(path) == rows


def test_cases_that_are_not_measured_anew_keep_their_figures(tmp_path):
    known = [report.Row(f"{case}/devices/1", "vmap", "compile_s", 3.0) for case in api.CASES]
    report.write(tmp_path / "x.json", known)
    assert report.others(tmp_path / "x.json", ["mappo_128"]) == known[1:]
    assert report.others(tmp_path / "none.json", ["mappo_128"]) == []
    for case in api.CASES:  # the function and the population train the same
        assert api.configured(case, 1).num_updates == api.configured(case, api.SEEDS).num_updates
