"""Algorithms that come in through `register_algorithm`: their options, like built-in ones."""

import pytest
import yaml

import jmarl
from jmarl.algorithms.build import make_trainer
from jmarl.commands import sweep, train
from jmarl.config.known_options import OPTIONS
from jmarl.config.option_names import hyperparameters
from jmarl.config.train_config import build, to_yaml
from jmarl.errors import ConfigError
from jmarl.registry import ALGORITHMS
from jmarl.sweeps.plan import plan
from jmarl.sweeps.run import _members

pytestmark = pytest.mark.usefixtures("registry")


class Own(jmarl.Section):
    coef: float = jmarl.option(0.5, "Weight of a term.", traced=True, ge=0)
    width: int = jmarl.option(3, "Width of a layer.", ge=1)


@pytest.fixture(autouse=True)
def own(registry):  # which must have noted what is registered before
    jmarl.register_algorithm(
        "own", like="mappo", options=Own, without=("net.share",), defaults={"ppo": {"lr": 1e-4}}
    )


def test_own_options_are_read_stored_and_traced():
    config = build({"algorithm": "own", "own": {"coef": 0.25}, "num_envs": 8})
    assert (config.own.coef, config.own.width, config.ppo.lr) == (0.25, 3, 1e-4)
    assert config.facts.critic_input == "all"  # MAPPO's
    assert build(yaml.safe_load(to_yaml(config))) == config
    assert train.parse(["--algorithm", "own", "--own.coef", "0.125"]).own.coef == 0.125
    trainer, hyper = make_trainer(config)
    assert hyper.coef == 0.25
    assert hyper.lr == 1e-4
    assert hyperparameters("own")["coef"] == "own.coef"
    assert "coef" not in hyperparameters("mappo")
    assert trainer.players[0].policy.critic.reads == "all"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"algorithm": "mat", "own": {"coef": 1}},
            r"own\.coef is an option of own; algorithm='mat'",
        ),
        (
            {"algorithm": "own", "net": {"share": "all"}},
            r"net\.share is an option of mat, .* 'own'",
        ),
        ({"algorithm": "own", "net": {"n_embd": 8}}, r"net\.n_embd is an option of mat"),
        ({"algorithm": "own", "own": {"cof": 1}}, r"'own\.cof': did you mean 'own\.coef'"),
        (
            {"algorithm": "own", "own": {"coef": -1}},
            r"own\.coef=-1 is refused: .* than or equal to 0",
        ),
        ({"algorithm": "owner"}, r"algorithm='owner' is refused: .*'own'.* --plugin"),
    ],
)
def test_what_does_not_apply_is_refused_by_name(values, words):
    with pytest.raises(ConfigError, match=words.replace(" 'own'", " algorithm='own'")):
        build(values)


def test_own_options_are_shown_in_the_help(called, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, said = called(train, "--algorithm", "own", "--help")
    assert code == 0
    assert "--own.coef" in said
    assert "--net.share" not in said
    assert "--own.coef" not in called(train, "--help")[1]


def test_members_of_a_sweep_share_a_program_if_they_differ_in_traced_options():
    typed = ["--base", "algorithm=own", "--grid", "coef=0.1,0.2", "own.width=1,2"]
    groups = plan(sweep.parse(typed)).groups
    assert [[m.settings["own.coef"] for m in group.members] for group in groups] == [[0.1, 0.2]] * 2
    found = _members(groups[0].members).hyper
    assert found.coef.tolist() == pytest.approx([0.1, 0.2])
    assert found.lr.tolist() == pytest.approx([1e-4] * 2)


def test_a_sweep_over_algorithms_gives_each_its_own():
    grid = ["algorithm=own,mat", "own.width=1,2"]
    settings = [m.settings for m in plan(sweep.parse(["--grid", *grid])).members]
    assert [each["own.width"] for each in settings] == [1, 2, "–"]


def test_an_algorithm_like_none_uses_only_what_it_names():
    jmarl.register_algorithm(
        "bare", make_policy=lambda *_: None, make_learner=lambda *_: None, uses=("ppo.lr",)
    )
    used = {name for name, option in OPTIONS.items() if option.used_by("bare")}
    assert {name for name in used if name.startswith(("net.", "ppo."))} == {"ppo.lr"}
    assert {"env", "num_envs", "hosts.join"} <= used
    assert build({"algorithm": "bare", "num_envs": 7}).num_minibatches == 1


class Taken(jmarl.Section):
    lr: float = jmarl.option(0.5, "Rate.")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "mat", "like": "mappo"}, "'mat' is built in"),
        ({"name": "x", "like": "mapo"}, "'x' cannot be like 'mapo'"),
        ({"name": "x y", "like": "mappo"}, "'x y' cannot name an algorithm"),
        ({"name": "x", "make_policy": print}, "'x' has no make_learner"),
        ({"name": "x", "like": "mappo", "options": Taken}, r"x\.lr, .* the name of ppo\.lr"),
        ({"name": "net", "like": "mappo", "options": Own}, "'net' cannot name the options"),
        ({"name": "x", "like": "mappo", "options": dict}, "not a subclass of Section"),
    ],
)
def test_a_registration_that_cannot_be_is_refused(given, words):
    before = dict(ALGORITHMS), dict(OPTIONS)
    with pytest.raises(ConfigError, match=words):
        jmarl.register_algorithm(**given)
    assert before == (ALGORITHMS, OPTIONS)
