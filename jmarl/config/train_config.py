"""The configuration of a run: typed, frozen, unknown keys refused."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic_core import PydanticCustomError

from jmarl.config.algorithms import EVAL_EVERY, FACTS, RECURRENT, TRANSFORMERS, own_sections
from jmarl.config.combinations import (
    LARGEST_SEED,
    check_batches,
    check_networks,
    check_numbers,
    check_start,
)
from jmarl.config.declaration import Section, option, sections_of
from jmarl.config.formatting import listed
from jmarl.config.known_options import FIELDS, OPTIONS, SECTIONS, declare_common
from jmarl.config.options import REMOVED, HostsConfig, NetConfig, PpoConfig, process
from jmarl.config.yaml_files import read_yaml
from jmarl.errors import ConfigError, InapplicableOptionError, refused, unknown
from jmarl.literals import InitParts, NonFinite
from jmarl.plugins import load_plugins, located_plugins
from jmarl.registry import ALGORITHMS, AlgorithmFacts, is_like, lineage

environment = partial(option, group="environment and budget")
record = partial(option, group="evaluation, logs and checkpoints", resumable=True)
output = partial(record, learning=False)


def known_algorithm(name: str) -> str:
    if name in ALGORITHMS:
        return name
    valid = ", ".join(map(repr, ALGORITHMS))
    reason = f"it is none of {valid}. If a plug-in registers it, name that with --plugin"
    raise PydanticCustomError("unknown_algorithm", "{reason}", {"reason": reason})


AlgorithmName = Annotated[str, pydantic.AfterValidator(known_algorithm)]


class Config(Section):
    """Train a team of agents."""

    algorithm: AlgorithmName = environment(
        "mat", "Algorithm that trains the agents.", everyday=True
    )
    env: str = environment("mpe/simple_spread", "Environment, family/name.", everyday=True)
    actions: Literal["discrete", "continuous", "multidiscrete"] | None = environment(
        None, "Form of the actions. None: the environment's own default.", everyday=True
    )
    env_options: dict[str, int | float | bool | str] = environment(
        {}, "Further options of the environment, as pairs: name value name value …"
    )
    plugins: tuple[str, ...] = environment(
        (),
        "Files or modules of Python to import first, which register environments, algorithms or "
        "networks. --plugin FILE.py names one and can be repeated.",
        everyday=True,
        resumable=True,
        learning=False,
        unswept="plug-ins are imported once, for all members",
    )
    num_envs: int = environment(128, "Number of parallel environments.", everyday=True, ge=1)
    rollout_length: int = environment(25, "Steps between updates.", everyday=True, ge=1)
    total_steps: int = environment(
        550_000,
        "Training budget in environment steps, over all parallel environments.",
        everyday=True,
        resumable=True,
        ge=1,
    )
    total_updates: int | None = environment(
        None,
        "Training budget in updates; replaces total_steps.",
        everyday=True,
        resumable=True,
        ge=1,
    )
    stop_at_return: float | None = environment(
        None,
        "Stop when an evaluation's mean greedy return has reached this; of several seeds, when "
        "each one's has. None: train to the end of the budget.",
        resumable=True,
        unswept="members have equal budgets",
        in_base=False,
    )
    seed: int = environment(
        0,
        "Random seed.",
        everyday=True,
        learning=False,
        unswept="members have seeds anyway: say how many with seeds",
        ge=0,
        le=LARGEST_SEED,
    )
    seeds: int = environment(
        1,
        "Number of runs to train together, with seeds seed, seed + 1, …",
        everyday=True,
        learning=False,
        unswept="it is an option of the sweep as a whole",
        in_base=False,
        ge=1,
    )
    members_per_batch: int | None = process(
        None, "Seeds that train at once in one vmapped program. None: as many as is fast.", ge=1
    )
    devices: int | None = process(
        None, "Number of devices that share seeds and environments. None: all.", everyday=True, ge=1
    )
    eval_every: int | None = record(
        None,
        f"Updates between evaluations. None: {EVAL_EVERY}, or what the algorithm prefers (ppo: "
        f"{FACTS['ppo'].evaluations} evaluations per run).",
        ge=1,
    )
    eval_episodes: int = record(1024, "Episodes per evaluation, played greedily.", ge=1)
    log_every: int = output(10, "Updates between lines of metrics.", ge=1)
    checkpoint_every: int | None = output(
        None, "Updates between checkpoints. None: one with each evaluation.", ge=1
    )
    keep_checkpoints: int = output(
        3, "Number of latest checkpoints to keep, besides the best one.", ge=1
    )
    on_nonfinite: NonFinite = environment(
        "stop",
        "What to do when a loss is NaN or infinite: stop the run, or skip the update.",
        resumable=True,
    )
    init_from: Path | None = environment(
        None,
        "Begin with the parameters and statistics of a run (RUN, RUN:best or RUN:latest) or of a "
        "torch checkpoint (FILE.pt, ACTOR.pt,CRITIC.pt or a directory of them). None: with random "
        "parameters.",
    )
    init_parts: InitParts = environment(
        "all",
        "What init_from gives: all parameters, or those of the actor, the critic or the encoder "
        "(the layers that read observations); the others are random.",
    )
    run_dir: Path | None = output(
        None,
        "Directory for results. None: a new one under runs/.",
        everyday=True,
        unswept="members have directories of their own in sweep_dir",
        in_base=False,
    )
    resume: Path | None = output(
        None,
        "Continue the run in this directory.",
        everyday=True,
        unswept="the sweep is resumed as a whole, with --resume DIR",
        in_base=False,
    )
    tensorboard: bool = output(True, "Write curves for TensorBoard.")
    gif: bool = output(True, "Draw a GIF of the best policy at the end, where that is possible.")
    wandb: bool = output(False, "Write curves to Weights & Biases.")
    quiet: bool = output(False, "Print the result only.", everyday=True)
    compilation_cache: bool = option(
        True,
        "Keep compiled programs on disk for later runs.",
        group="devices and processes",
        resumable=True,
        learning=False,
    )
    net: NetConfig = NetConfig()
    ppo: PpoConfig = PpoConfig()
    hosts: HostsConfig = HostsConfig()

    @property
    def steps_per_update(self) -> int:
        return self.num_envs * self.rollout_length

    @property
    def num_updates(self) -> int:
        return self.total_updates or self.total_steps // self.steps_per_update

    def more(self, updates: int) -> str:
        """The option that makes the budget this large."""
        if self.total_updates is not None:
            return f"--total-updates {updates}"
        return f"--total-steps {updates * self.steps_per_update}"

    @property
    def updates_between_evaluations(self) -> int:
        evaluations = self.facts.evaluations
        preferred = max(1, self.num_updates // evaluations) if evaluations else EVAL_EVERY
        return self.eval_every or preferred

    @property
    def facts(self) -> AlgorithmFacts:
        return ALGORITHMS[self.algorithm].facts

    @property
    def transformer(self) -> bool:
        return is_like(self.algorithm, TRANSFORMERS)

    @property
    def recurrent(self) -> bool:
        return is_like(self.algorithm, RECURRENT)

    @property
    def num_minibatches(self) -> int:
        """1 if the algorithm has no minibatches."""
        return self.ppo.num_minibatches if applies("ppo.num_minibatches", self.algorithm) else 1

    @property
    def minibatch_units(self) -> tuple[int, str]:
        """How many rows or sequences minibatches are made of, and what gives that number."""
        if self.ppo.shuffle == "rows":
            return self.steps_per_update, "num_envs × rollout_length"
        if self.ppo.chunk_length:
            count = self.steps_per_update // self.ppo.chunk_length
            return count, "num_envs × rollout_length / chunk_length"
        return self.num_envs, "num_envs"

    def divides(self, shards: int) -> bool:
        """Whether so many devices can share the worlds, and each has as much of every minibatch."""
        return (
            self.num_envs % shards == 0
            and self.minibatch_units[0] % (shards * self.num_minibatches) == 0
        )

    def check_shards(self, shards: int) -> None:
        """Refuse worlds that so many devices cannot share."""
        if self.divides(shards):
            return
        if self.num_envs % shards:
            raise ConfigError(
                f"num_envs={self.num_envs} cannot be shared out evenly over {shards} devices: "
                f"choose a multiple of {shards}."
            )
        units, of = self.minibatch_units
        raise ConfigError(
            f"{of} = {units} on {shards} devices is {units // shards} for each, which "
            f"ppo.num_minibatches={self.ppo.num_minibatches} does not divide: choose {of} as a "
            f"multiple of {shards * self.num_minibatches}."
        )

    def check(self) -> None:
        """Refuse combinations that no single field can see."""
        self.check_applicable()
        check_start(self)
        check_numbers(self)
        check_networks(self)
        check_batches(self)

    def check_applicable(self) -> None:
        """Refuse options that were given, even at their default, and that the algorithm does not
        use."""
        unused = [name for name in self._given() if not applies(name, self.algorithm)]
        if unused:
            raise inapplicable(unused, self.algorithm)

    def _given(self) -> Iterable[str]:
        """Full names of the options that were given, not left at their defaults."""
        for section, kind in sections_of(type(self)).items():
            given = getattr(self, section).model_fields_set
            yield from (f"{section}.{name}" for name in kind.model_fields if name in given)

    def values(self, mode: Literal["python", "json"] = "python") -> dict[str, Any]:
        """The options that the algorithm uses; `build` makes an equal configuration of them."""
        return applicable(self.model_dump(mode=mode))


declare_common(Config)


def config_model(algorithm: str) -> type[Config]:
    """The configuration's class, with the sections that the algorithm has of its own."""
    own = tuple(own_sections(algorithm).items())
    return _with_sections(own) if own else Config


def command_line_model() -> type[Config]:
    """With the sections of all algorithms, so that one that does not apply is refused by name."""
    own = tuple((name, kind) for name, kind in SECTIONS.items() if name not in Config.model_fields)
    return _with_sections(own) if own else Config


@functools.cache  # configurations of one algorithm are of one class, else they were never equal
def _with_sections(own: tuple[tuple[str, type[Section]], ...]) -> type[Config]:
    fields: dict[str, Any] = {name: (kind, kind()) for name, kind in own}
    return pydantic.create_model("Config", __base__=Config, __doc__=Config.__doc__, **fields)


def inapplicable(names: Sequence[str], *algorithms: str) -> InapplicableOptionError:
    """The refusal of options that none of these algorithms uses; it names the first one."""
    chosen = f"algorithm={listed(map(repr, algorithms))}"
    do_not = "does not" if len(algorithms) == 1 else "do not"
    users = listed(OPTIONS[names[0]].algorithms)
    return InapplicableOptionError(
        names, f"{names[0]} is an option of {users}; {chosen} {do_not} use it."
    )


def applies(name: str, algorithm: str) -> bool:
    """Whether an algorithm uses the option of this full name. Names and algorithms that do not
    exist are left to those who refuse them."""
    known = name in OPTIONS and algorithm in ALGORITHMS
    return not known or OPTIONS[name].used_by(algorithm)


def applicable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values, section by section, without the options that their algorithm does not use."""
    algorithm = algorithm_of(values)
    of_others = SECTIONS.keys() - config_model(algorithm).model_fields
    kept = {name: value for name, value in values.items() if name not in of_others}
    for section in SECTIONS.keys() & kept.keys():
        if isinstance(inner := kept[section], Mapping):
            kept[section] = {
                name: value
                for name, value in inner.items()
                if applies(f"{section}.{name}", algorithm)
            }
    return kept


def flat_values(config: Config) -> Iterator[tuple[str, Any]]:
    """The options that the algorithm uses, by full name, in the form that files have."""
    for name, value in config.values("json").items():
        if name in SECTIONS:
            yield from ((f"{name}.{inner}", part) for inner, part in value.items())
        else:
            yield name, value


def read_preset(path: Path) -> dict[str, Any]:
    """A file of options that someone wrote. The plug-ins that it names, files from where it lies,
    are imported."""
    values = read_yaml(path, "preset")
    if "plugins" not in values:
        return values
    return {**values, "plugins": load_plugins(located_plugins(values["plugins"], path.parent))}


def with_algorithm_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in the algorithm's own defaults under the given values, and then those options of the
    algorithm that it is like that it uses itself."""
    chosen = {"algorithm": algorithm_of(values)}
    for each in lineage(chosen["algorithm"]):
        own = dict(each.defaults)
        values = merged(own if each.name in chosen.values() else applicable(own | chosen), values)
    return values


def algorithm_of(values: Mapping[str, Any]) -> str:
    """The algorithm that values choose, or the default one."""
    return str(values.get("algorithm", FIELDS["algorithm"].default))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both mappings, section by section; what is in `above` counts."""
    both = {
        key: merged(below[key], above[key])
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return below | above | both


def build(values: dict[str, Any]) -> Config:
    """A checked configuration; the first fault is named in one sentence. Plug-ins are imported
    before anything is looked up."""
    values = {**values, "plugins": load_plugins(values.get("plugins", ()))}
    try:
        config = config_model(algorithm_of(values))(**with_algorithm_defaults(values))
    except pydantic.ValidationError as error:
        raise _explained(error.errors()[0], algorithm_of(values)) from None
    except TypeError as error:
        raise ConfigError(f"the configuration's keys must be names: {error}.") from None
    config.check()
    return config


def _explained(fault: Any, algorithm: str) -> ConfigError:
    path = [str(part) for part in fault["loc"]]
    if path[0] in SECTIONS and path[0] not in config_model(algorithm).model_fields:
        given = fault["input"] if isinstance(fault["input"], Mapping) else {}
        names = [name for name in OPTIONS if name.rpartition(".")[0] == path[0]]
        return inapplicable([n for n in names if n.rpartition(".")[2] in given] or names, algorithm)
    if (name := ".".join(path)) in REMOVED:
        return InapplicableOptionError([name], f"{name} is no longer an option.")
    if fault["type"] == "extra_forbidden":
        section, prefix = SECTIONS.get(path[0], Config), f"{path[0]}."
        names = section.model_fields
        valid = names if section is Config else [prefix + name for name in names]
        return unknown("option", name, valid)
    return refused(fault)


def to_yaml(config: Config, without: tuple[str, ...] = ()) -> str:
    """The resolved configuration; `build(yaml.safe_load(…))` gives it back. Who computed it is not
    part of it."""
    left_out = {"hosts", *without}
    values = {name: x for name, x in config.values("json").items() if name not in left_out}
    return yaml.safe_dump(values, sort_keys=False)
