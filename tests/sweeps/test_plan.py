"""Plans of sweeps: which members there are, and which share a program."""

import contextlib
import itertools

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jmarl.config.sweep_values import build, to_yaml
from jmarl.errors import ConfigError
from jmarl.sweeps.plan import confirmation, plan, resolved, traced

MAPPO = {"algorithm": "mappo"}


def planned(**values):
    return plan(build(values))


def test_a_grid_of_traced_values_is_one_group():
    """2 learning rates × 3 γ × 2 seeds; the last name and the seed go fastest."""
    made = planned(grid={"lr": [1e-3, 2e-3], "gamma": [0.5, 0.6, 0.7]}, seeds=2, base={"seed": 7})
    (group,) = made.groups
    assert made.names == ("ppo.lr", "ppo.gamma")
    assert made.members == group.members
    assert [m.index for m in group.members] == list(range(12))
    assert [m.setting for m in group.members] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [m.seed for m in group.members] == [7, 8] * 6
    assert group.members[3].settings == {"ppo.lr": 1e-3, "ppo.gamma": 0.6}
    assert group.members[11].settings == {"ppo.lr": 2e-3, "ppo.gamma": 0.7}
    for member in group.members:
        assert member.config.seed == member.seed
        assert member.config.ppo.lr == member.settings["ppo.lr"]
        assert member.config.ppo.gamma == member.settings["ppo.gamma"]


def test_every_static_value_is_a_group_of_its_own():
    made = planned(grid={"net.hidden": [[8], [8, 8]], "lr": [1e-3, 2e-3]}, base=MAPPO, seeds=2)
    assert [[m.index for m in group.members] for group in made.groups] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert [group.config.net.hidden for group in made.groups] == [(8,), (8, 8)]
    assert [m.index for m in made.members] == list(range(8))


def test_groups_gather_what_the_order_tears_apart():
    made = planned(grid={"lr": [1e-3, 2e-3], "num_envs": [128, 256]})
    assert [[m.index for m in group.members] for group in made.groups] == [[0, 2], [1, 3]]


def test_algorithms_bring_their_own_defaults():
    made = planned(grid={"algorithm": ["mat", "ppo"]}, base={"ppo.gamma": 0.5})
    mat, ppo = (group.config for group in made.groups)
    assert (mat.ppo.gamma, ppo.ppo.gamma) == (0.5, 0.5)
    assert (mat.ppo.epochs, ppo.ppo.epochs) == (2, 10)


def test_values_are_those_of_the_configuration():
    made = planned(grid={"total_steps": ["1e6"], "env_options.num_agents": [3, 4]})
    assert made.members[1].settings == {"total_steps": 1_000_000, "env_options.num_agents": 4}
    assert isinstance(made.members[0].settings["total_steps"], int)
    assert made.groups[1].config.env_options == {"num_agents": 4}


@pytest.mark.parametrize(
    ("values", "positive"), [([0.0, 0.02], 0.02), ([-1, 0.0], -1), ([0.03, 0.0], 0.03)]
)
def test_the_kl_stop_is_there_if_any_member_has_it(values, positive):
    (group,) = planned(grid={"target_kl": values}).groups
    assert group.config.ppo.target_kl == positive
    assert [m.config.ppo.target_kl for m in group.members] == values


def test_draws_are_combined_with_every_point_and_can_be_read():
    random = {"gamma": {"uniform": [0.9, 0.99]}, "lr": {"log_uniform": [1e-4, 1e-2]}}
    made = planned(grid={"clip_eps": [0.1, 0.2]}, random=random, samples=5, seeds=1)
    drawn = [(m.settings["ppo.gamma"], m.settings["ppo.lr"]) for m in made.members]
    assert len(drawn) == 10
    assert drawn[:5] == drawn[5:]
    assert len(set(drawn)) == 5
    for gamma, lr in drawn:
        assert 0.9 <= gamma <= 0.99
        assert 1e-4 <= lr <= 1e-2
        assert (gamma, lr) == (float(f"{gamma:.6g}"), float(f"{lr:.6g}"))


def test_log_uniform_is_uniform_in_the_exponent():
    """A third of the draws for each of three decades."""
    made = planned(random={"lr": {"log_uniform": [1e-5, 1e-2]}}, samples=900)
    rates = [m.settings["ppo.lr"] for m in made.members]
    for low in (1e-5, 1e-4, 1e-3):
        assert 250 < sum(low <= rate < 10 * low for rate in rates) < 350


def test_the_same_sweep_has_the_same_plan_and_more_samples_begin_alike():
    random = {"lr": {"log_uniform": [1e-4, 1e-2]}, "gamma": {"choice": [0.9, 0.99]}}
    few, again, more = (planned(random=random, samples=n) for n in (4, 4, 9))
    assert few == again
    assert [m.settings for m in more.members[:4]] == [m.settings for m in few.members]
    assert planned(random=random, samples=4, seed=1) != few


def test_equal_draws_are_one_setting():
    made = planned(random={"gamma": {"choice": [0.9, 0.99]}}, samples=20, seeds=2)
    assert [m.setting for m in made.members] == [0, 0, 1, 1]


def stored(sweep):
    """The sweep's file after it began."""
    return to_yaml(sweep.model_copy(update={"resolved": resolved(plan(sweep))}))


def test_a_resumed_sweep_has_the_settings_that_it_began_with():
    """Not those of today's defaults: here the file says what another version began."""
    base = {"net": {"hidden": [8]}, "env_options": {"num_agents": 4}}
    random = {"lr": {"log_uniform": [1e-4, 1e-2]}}
    sweep = build(
        {"base": base, "grid": {"algorithm": ["mat", "ppo"]}, "random": random, "seeds": 2}
    )
    began = yaml.safe_load(stored(sweep))
    assert plan(build(began | {"resume": "there"})) == plan(sweep)
    began["resolved"]["shared"]["keep_checkpoints"] = 77
    again = plan(build(began | {"resume": "there"}))
    assert {member.config.keep_checkpoints for member in again.members} == {77}
    assert plan(build(began)) == plan(sweep)  # a new sweep from the same file
    del began["resolved"]  # as earlier versions wrote it
    assert plan(build(began | {"resume": "there"})) == plan(sweep)


def test_a_thousand_settings_are_stored_shortly():
    random = {"lr": {"log_uniform": [1e-4, 1e-2]}, "gamma": {"uniform": [0.9, 0.99]}}
    text = stored(build({"random": random, "samples": 1000, "base": MAPPO}))
    assert len(text) < 60_000
    assert "&" not in text  # nothing stands for something else
    assert len(yaml.safe_load(text)["resolved"]["settings"]) == 1000


def test_a_confirmation_has_seeds_that_the_search_did_not_see():
    made = planned(grid={"lr": [1e-3, 2e-3]}, seeds=3, base={"seed": 7})
    group = confirmation(made, 1, 4)
    assert [member.seed for member in group.members] == [10, 11, 12, 13]
    assert {(m.settings["ppo.lr"], m.config.ppo.lr) for m in group.members} == {(2e-3, 2e-3)}
    assert [member.config.seed for member in group.members] == [10, 11, 12, 13]


@pytest.mark.parametrize(
    ("values", "seeds"),
    [
        ({"grid": {"lr": [1, 2]}}, 0),
        ({"grid": {"lr": [1, 2]}, "halving": True}, 3),
        ({"grid": {"lr": [1, 2]}, "halving": True, "seeds": 5}, 5),
        ({"random": {"lr": {"choice": [1, 2]}}}, 3),
        ({"random": {"lr": {"choice": [1, 2]}}, "pbt": True}, 0),
        ({"random": {"lr": {"choice": [1, 2]}}, "confirm_seeds": 0}, 0),
        ({"grid": {"lr": [1, 2]}, "confirm_seeds": 2}, 2),
    ],
)
def test_searches_are_confirmed_unless_told_otherwise(values, seeds):
    assert build(values).confirmations == seeds


def test_a_narrow_range_is_kept_whatever_the_digits():
    made = planned(random={"lr": {"uniform": [0.12345678, 0.12345679]}}, samples=3)
    assert all(0.12345678 <= m.settings["ppo.lr"] <= 0.12345679 for m in made.members)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"grid": {"gamma": [0.5, 1.5]}}, "with ppo.gamma=1.5: ppo.gamma=1.5 is refused"),
        ({"grid": {"lr": [1e-3, "fast"]}}, "with ppo.lr=fast: ppo.lr='fast' is refused"),
        (
            {"grid": {"lr": [1e-3], "num_minibatches": [4, 3]}},
            "with ppo.lr=0.001, ppo.num_minibatches=3: ppo.num_minibatches=3 does not divide",
        ),
        ({"base": {"num_envs": 0}, "seeds": 2}, "num_envs=0 is refused"),
        ({"grid": {"lr": [1e-3]}, "pbt": True}, "pbt needs at least 2 members"),
        ({"seeds": 8, "halving": True}, "keeps one of 2 settings, but there is only 1"),
        (
            {"grid": {"lr": [1, 2, 3]}, "halving": True, "halving_factor": 4},
            "keeps one of 4 settings, but there are only 3",
        ),
        ({"grid": {"n_embd": [8, 16]}, "seeds": 2, "halving": True}, "here each setting has its"),
    ],
)
def test_faults_are_told_with_their_setting(values, words):
    with pytest.raises(ConfigError) as refused:
        planned(**values)
    assert words in str(refused.value)
    assert not str(refused.value).startswith("with :")


def test_floats_of_ppo_are_traced_and_shapes_are_not():
    assert traced("ppo.lr")
    assert traced("ppo.target_kl")
    assert not any(map(traced, ["ppo.epochs", "ppo.adam_eps", "num_envs", "net.n_embd", "lr"]))


RATES = st.lists(st.floats(1e-6, 1), min_size=1, max_size=3, unique=True)
WIDTHS = st.lists(st.sampled_from([8, 16, 32]), min_size=1, max_size=3, unique=True)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(RATES, WIDTHS, st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**32))
def test_every_combination_is_there_once_and_groups_are_static(rates, widths, seeds, samples, seed):
    made = planned(
        grid={"lr": rates, "n_embd": widths},
        random={"gamma": {"uniform": [0, 1]}},
        samples=samples,
        seeds=seeds,
        seed=seed,
    )
    members = made.members
    assert [m.index for m in members] == list(range(len(rates) * len(widths) * samples * seeds))
    assert len({(m.setting, m.seed) for m in members}) == len(members)
    found = {(m.settings["ppo.lr"], m.settings["net.n_embd"]) for m in members}
    assert found == set(itertools.product(rates, widths))
    assert len(made.groups) == len(widths)
    for group in made.groups:
        assert {m.config.net.n_embd for m in group.members} == {group.config.net.n_embd}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.sampled_from(["lr", "gamma", "num_envs", "env", "net.hidden", "env_options.x"]),
        st.lists(
            st.integers(-3, 300) | st.floats() | st.text(max_size=3) | st.lists(st.integers(1, 9)),
            max_size=3,
        ),
        max_size=3,
    )
)
def test_wild_grids_are_planned_or_refused_never_more(grid):
    with contextlib.suppress(ConfigError):  # any other exception fails the test
        planned(grid=grid, seeds=2)
