"""The configuration of a run: typed, frozen, unknown keys refused."""

from pathlib import Path
from typing import Any, Literal, get_args

import pydantic
import yaml
from pydantic import Field

from jmarl.config.options import HostsConfig, NetConfig, PpoConfig, Section
from jmarl.errors import ConfigError, refused, unknown
from jmarl.literals import Algorithm, NonFinite, Transformer


class Config(Section):
    """Train a team. Everyday options are here; the rest is under `net` and `ppo`."""

    algorithm: Algorithm = Field(default="mat", description="what learns")
    env: str = Field(default="mpe/simple_spread", description="the world, family/name")
    actions: Literal["discrete", "continuous", "multidiscrete"] | None = Field(
        default=None, description="form of actions; None: the world's own"
    )
    env_options: dict[str, int | float | bool | str] = Field(
        default={}, description="further options of the world, name value …"
    )
    num_envs: int = Field(default=128, ge=1, description="worlds that are played at once")
    rollout_length: int = Field(default=25, ge=1, description="steps between updates")
    total_steps: int = Field(default=550_000, ge=1, description="budget in steps of single worlds")
    total_updates: int | None = Field(default=None, ge=1, description="budget in updates instead")
    seed: int = Field(default=0, ge=0, description="of everything random")
    seeds: int = Field(default=1, ge=1, description="runs side by side, of seed, seed + 1, …")
    members_per_batch: int | None = Field(
        default=None, ge=1, description="seeds in one vmapped program; None: as many as is fast"
    )
    devices: int | None = Field(
        default=None, ge=1, description="devices that share seeds and worlds; None: all"
    )
    eval_every: int | None = Field(
        default=None, ge=1, description="updates between evaluations; None: 25, of ppo a 150th"
    )
    eval_episodes: int = Field(default=1024, ge=1, description="episodes per evaluation, greedy")
    log_every: int = Field(default=10, ge=1, description="updates between lines of metrics")
    checkpoint_every: int | None = Field(
        default=None, ge=1, description="updates between checkpoints; None: with evaluations"
    )
    keep_checkpoints: int = Field(
        default=3, ge=1, description="latest checkpoints kept; the best is kept besides"
    )
    on_nonfinite: NonFinite = Field(
        default="stop", description="when a loss is NaN or infinite: stop, or skip the update"
    )
    run_dir: Path | None = Field(default=None, description="where results go; None: runs/<name>")
    resume: Path | None = Field(default=None, description="continue the run in this directory")
    tensorboard: bool = Field(default=True, description="write curves for TensorBoard")
    gif: bool = Field(default=True, description="end with a GIF of the best policy, where drawable")
    wandb: bool = Field(default=False, description="write curves to Weights & Biases")
    quiet: bool = Field(default=False, description="show nothing but the outcome")
    compilation_cache: bool = Field(
        default=True, description="keep compiled programs for the next run"
    )
    net: NetConfig = Field(default=NetConfig(), description="sizes of the networks")
    ppo: PpoConfig = Field(default=PpoConfig(), description="how a batch is learned from")
    hosts: HostsConfig = Field(default=HostsConfig(), description="processes that train together")

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
        seldom = max(1, self.num_updates // 150) if self.algorithm == "ppo" else 25
        return self.eval_every or seldom

    @property
    def transformer(self) -> bool:
        return self.algorithm in get_args(Transformer)

    @property
    def recurrent(self) -> bool:
        return self.algorithm in ("rmappo", "rippo")

    @property
    def _minibatch_units(self) -> tuple[int, str]:
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
            and self._minibatch_units[0] % (shards * self.ppo.num_minibatches) == 0
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
        units, of = self._minibatch_units
        raise ConfigError(
            f"{of} = {units} on {shards} devices is {units // shards} for each, which "
            f"ppo.num_minibatches={self.ppo.num_minibatches} does not divide: choose {of} as a "
            f"multiple of {shards * self.ppo.num_minibatches}."
        )

    def check(self) -> None:
        """Refuse combinations that no single field can see."""
        self._check_networks()
        self._check_batches()

    def _check_networks(self) -> None:
        if self.net.encode_state:
            raise ConfigError(
                "net.encode_state=True is refused: the reference's version feeds zeros to its "
                "state encoder, so the network would be blind."
            )
        if self.net.n_embd % self.net.n_head:
            raise ConfigError(
                f"net.n_head={self.net.n_head} does not divide net.n_embd={self.net.n_embd}."
            )
        if self.algorithm in ("mat_dec", "mat_encoder") and self.net.agent_order == "random":
            raise ConfigError(
                f"net.agent_order='random' cannot go with algorithm={self.algorithm!r}, whose "
                "agents all act at once: choose 'fixed'."
            )
        if self.net.gru_layers > 1 and not self.recurrent:
            raise ConfigError(
                f"net.gru_layers={self.net.gru_layers} is for rmappo and rippo: "
                f"{self.algorithm!r} has no GRU to stack."
            )
        if self.net.share == "none" and self.net.agent_id != "none":
            raise ConfigError(
                f"net.agent_id={self.net.agent_id!r} cannot go with net.share='none': an agent "
                "with networks of its own needs no id; choose 'none'."
            )
        if self.net.squash_mean and self.net.distribution in ("tanh", "beta"):
            raise ConfigError(
                f"net.squash_mean=True cannot go with net.distribution="
                f"{self.net.distribution!r}, which keeps within the bounds by itself: choose "
                "'gaussian'."
            )
        if self.transformer and self.net.share == "none":
            raise ConfigError(
                f"net.share='none' cannot go with algorithm={self.algorithm!r}, which is one "
                "network for a team: choose 'team' or 'all'."
            )

    def _check_batches(self) -> None:
        ppo = self.ppo
        if ppo.chunk_length and not self.recurrent:
            raise ConfigError(
                f"ppo.chunk_length={ppo.chunk_length} is for rmappo and rippo: "
                f"{self.algorithm!r} has no memory."
            )
        if self.rollout_length % (ppo.chunk_length or 1):
            raise ConfigError(
                f"ppo.chunk_length={ppo.chunk_length} does not divide "
                f"rollout_length={self.rollout_length}."
            )
        if ppo.advantage_entries == "all" and ppo.advantage_norm != "minibatch":
            raise ConfigError(
                f"ppo.advantage_entries='all' cannot go with ppo.advantage_norm="
                f"{ppo.advantage_norm!r}: choose 'minibatch'."
            )
        if self.recurrent and ppo.shuffle == "rows":
            raise ConfigError(
                "ppo.shuffle='rows' would tear sequences apart; rmappo and rippo need 'blocks'."
            )
        units, of = self._minibatch_units
        if units % ppo.num_minibatches:
            raise ConfigError(
                f"ppo.num_minibatches={ppo.num_minibatches} does not divide {of} = {units}."
            )
        if self.num_updates < 1:
            raise ConfigError(
                f"total_steps={self.total_steps} is less than one update of num_envs × "
                f"rollout_length = {self.steps_per_update} steps."
            )


def read_preset(path: Path) -> dict[str, Any]:
    """A YAML mapping, loaded safely."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"preset {str(path)!r} cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        where = str(error).replace("\n", " ")
        raise ConfigError(f"preset {str(path)!r} is not YAML: {where}.") from None
    if not isinstance(loaded, dict):
        raise ConfigError(f"preset {str(path)!r} is not a mapping of options.")
    return loaded


# Where an algorithm's own defaults are others than those above. With MAT's, the default run learns
# to play well in about a minute (configs/sweeps/mat_simple_spread.yaml). Continuous PPO's are its
# seed's, with 16 worlds where that has one.
OWN_DEFAULTS: dict[str, dict[str, Any]] = {
    "mat": {
        "total_steps": 6_400_000,
        "eval_every": 200,
        "net": {"n_embd": 32},
        "ppo": {"lr": 3e-3, "epochs": 2, "entropy_coef": 0.05},
    },
    "ppo": {
        "env": "gymnax/Pendulum-v1",
        "num_envs": 16,
        "rollout_length": 128,
        "total_steps": 500_000,
        "eval_episodes": 50,
        "net": {
            "activation": "tanh",
            "input_norm": False,
            "layer_norm": False,
            "gain": 2**0.5,
            "distribution": "gaussian",
        },
        "ppo": {
            "lr": 3e-4,
            "gamma": 0.99,
            "epochs": 10,
            "num_minibatches": 32,
            "shuffle": "rows",
            "value_coef": 0.5,
            "entropy_coef": 0.0,
            "max_grad_norm": 0.5,
            "value_loss": "squared",
            "value_norm": "none",
            "advantage_norm": "minibatch",
            "advantage_eps": 1e-8,
            "advantage_ddof": 1,
            "target_kl": 0.02,
            "normalise_obs": True,
            "normalise_reward": True,
        },
    },
}


def with_own_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in the algorithm's own defaults under the given values."""
    algorithm = values.get("algorithm", Config.model_fields["algorithm"].default)
    return merged(OWN_DEFAULTS.get(str(algorithm), {}), values)


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both mappings, section by section; what is in `above` counts."""
    both = {
        key: merged(below[key], above[key])
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return below | above | both


def build(values: dict[str, Any]) -> Config:
    """A checked configuration; the first fault is named in one sentence."""
    try:
        config = Config(**with_own_defaults(values))
    except pydantic.ValidationError as error:
        raise _explained(error.errors()[0]) from None
    except TypeError as error:
        raise ConfigError(f"the configuration's keys must be names: {error}.") from None
    config.check()
    return config


def _explained(fault: Any) -> ConfigError:
    path = [str(part) for part in fault["loc"]]
    if fault["type"] == "extra_forbidden":
        sections = {"net": NetConfig, "ppo": PpoConfig, "hosts": HostsConfig}
        section = sections.get(path[0], Config)
        prefix = f"{path[0]}." if section is not Config else ""
        return unknown("option", ".".join(path), [prefix + name for name in section.model_fields])
    return refused(fault)


def to_yaml(config: Config) -> str:
    """The resolved configuration; `build(yaml.safe_load(…))` gives it back. Who computed it is not
    part of it."""
    return yaml.safe_dump(config.model_dump(mode="json", exclude={"hosts"}), sort_keys=False)
