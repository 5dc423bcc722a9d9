"""Sections of the configuration: the networks, and how a batch is learned from."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jmarl.literals import (
    Activation,
    AdvantageEntries,
    AdvantageNorm,
    AgentEnd,
    AgentId,
    AgentOrder,
    Components,
    CriticInput,
    Distribution,
    HeadInit,
    Optimiser,
    Precision,
    Ratio,
    Reduction,
    Returns,
    RewardShare,
    Schedule,
    Sharing,
    Shuffle,
    StartState,
    TimeLimit,
    ValueLoss,
    ValueScaling,
)

# Members of one compiled program may differ in an option with this mark.
TRACED_OPTION: Any = {"traced": True}


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NetConfig(Section):
    """The networks. First what MAT and its variants have, then all, then MAPPO and IPPO."""

    n_embd: int = Field(default=64, ge=1, description="mat: width of embeddings")
    n_head: int = Field(default=1, ge=1, description="mat: attention heads; must divide n_embd")
    n_block: int = Field(default=1, ge=1, description="mat: blocks of encoder and decoder")
    share_actor: bool = Field(
        default=True, description="mat_dec: one actor for all agents, or one each"
    )
    agent_order: AgentOrder = Field(
        default="fixed",
        description="mat, mat_decoder, mat_gru: in which order agents decide; random: drawn every "
        "step",
    )
    encode_state: bool = Field(
        default=False, description="mat: refused, the reference's version is blind"
    )
    share: Sharing = Field(
        default="team", description="who shares parameters; none: every agent learns by itself"
    )
    precision: Precision = Field(
        default="float32", description="of products and activations; the rest is float32"
    )
    hidden: tuple[int, ...] = Field(
        default=(64, 64), min_length=1, description="mappo, ippo: widths of the representation"
    )
    critic_hidden: tuple[int, ...] | None = Field(
        default=None, min_length=1, description="mappo, ippo: the critic's, if others than hidden"
    )
    head_hidden: tuple[int, ...] = Field(
        default=(), description="mappo, ippo: widths between agent id and output"
    )
    critic_head_hidden: tuple[int, ...] | None = Field(
        default=None, description="mappo, ippo: the critic's, if others than head_hidden"
    )
    activation: Activation = Field(default="relu", description="mappo, ippo: of hidden layers")
    input_norm: bool = Field(default=True, description="mappo, ippo: layer norm of observations")
    layer_norm: bool = Field(default=True, description="mappo, ippo: layer norm of activations")
    gain: float | None = Field(
        default=None,
        gt=0,
        description="mappo, ippo: of hidden layers; None: torch's for activation",
    )
    actor_gain: float = Field(default=0.01, gt=0, description="mappo, ippo: of the actor's output")
    critic_gain: float = Field(default=1.0, gt=0, description="mappo, ippo: of the critic's output")
    head_init: HeadInit = Field(
        default="orthogonal",
        description="mappo, ippo: how layers after the representation start; torch_default: "
        "weights and biases uniform within ±1/√inputs, whatever their gains",
    )
    gru_layers: int = Field(
        default=1, ge=1, description="rmappo, rippo: GRUs, each reading the one before"
    )
    gru_norm: bool = Field(
        default=True, description="rmappo, rippo: layer norm of what the GRU gives"
    )
    agent_id: AgentId = Field(
        default="none", description="mappo, ippo: where agents are told who they are"
    )
    critic_input: CriticInput | None = Field(
        default=None, description="what critics see; None: mappo all observations, ippo its own"
    )
    distribution: Distribution | None = Field(
        default=None,
        description="of continuous actions; gaussian: without bounds, the world clips; tanh: a "
        "Gaussian squashed into the bounds; beta: a Beta between the bounds; None: tanh where all "
        "agents share finite bounds, else gaussian; ppo: gaussian",
    )
    log_std: float | None = Field(
        default=None,
        description="log σ of continuous actions at the start (mat's gaussian: "
        "σ = sigmoid(log_std)/2; beta: its concentration is 1/σ²); None: 0, tanh 1, mat's "
        "gaussian 1",
    )
    squash_mean: bool = Field(
        default=False, description="mappo, ippo: sigmoid of Gaussian means, between the bounds"
    )
    start_state: StartState = Field(
        default="stored", description="rmappo, rippo: memory at the start of learned sequences"
    )


class PpoConfig(Section):
    """How a batch is learned from. Floats are traced: changing them compiles nothing anew."""

    lr: float = Field(
        default=7e-4, json_schema_extra=TRACED_OPTION, gt=0, description="learning rate"
    )
    lr_schedule: Schedule = Field(
        default="linear", description="of lr over the run; floor: linear to 0, but held at the end"
    )
    lr_end_factor: float = Field(default=0.0, ge=0, le=1, description="part of lr at the end")
    optimiser: Optimiser = Field(default="adam", description="what follows gradients")
    adam_eps: float = Field(default=1e-5, gt=0, description="ε of Adam")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(
        default=0.0, ge=0, description="times the parameters, added to clipped gradients (L2)"
    )
    returns: Returns = Field(default="gae", description="how advantages are counted")
    gamma: float = Field(
        default=0.95, json_schema_extra=TRACED_OPTION, ge=0, le=1, description="discount"
    )
    gae_lambda: float = Field(
        default=0.95, json_schema_extra=TRACED_OPTION, ge=0, le=1, description="λ of GAE"
    )
    epochs: int = Field(default=5, ge=1, description="passes over each batch")
    num_minibatches: int = Field(
        default=8, ge=1, description="parts of a batch; must divide num_envs"
    )
    shuffle: Shuffle = Field(
        default="blocks", description="what is shuffled: blocks of worlds, or rows"
    )
    clip_eps: float = Field(
        default=0.2, json_schema_extra=TRACED_OPTION, gt=0, description="ε of the clipped ratio"
    )
    value_clip_eps: float = Field(
        default=0.2, json_schema_extra=TRACED_OPTION, gt=0, description="ε of the clipped value"
    )
    clip_value: bool = Field(default=True, description="clip the value loss")
    value_coef: float = Field(
        default=1.0, json_schema_extra=TRACED_OPTION, ge=0, description="weight of the value loss"
    )
    entropy_coef: float = Field(
        default=0.01,
        json_schema_extra=TRACED_OPTION,
        ge=0,
        description="weight of the entropy bonus",
    )
    max_grad_norm: float = Field(
        default=10.0,
        json_schema_extra=TRACED_OPTION,
        gt=0,
        description="global norm at which gradients are cut",
    )
    clip_apart: bool = Field(
        default=False, description="mappo, ippo: cut actor's and critic's gradients apart"
    )
    critic_lr_factor: float = Field(
        default=1.0,
        json_schema_extra=TRACED_OPTION,
        gt=0,
        description="mappo, ippo: the critic's lr as a multiple of lr",
    )
    chunk_length: int | None = Field(
        default=None, ge=1, description="rmappo, rippo: steps of learned sequences; None: all"
    )
    ratio: Ratio | None = Field(
        default=None, description="per component or joint; None: mat and factored, else joint"
    )
    entropy: Components = Field(default="sum", description="over an action's components")
    value_loss: ValueLoss = Field(default="huber", description="form of the value loss")
    squared_factor: float = Field(default=0.5, gt=0, description="of the squared value loss")
    huber_delta: float = Field(
        default=10.0,
        json_schema_extra=TRACED_OPTION,
        gt=0,
        description="where Huber's loss becomes linear",
    )
    value_norm: ValueScaling = Field(
        default="valuenorm", description="running units in which values are learned"
    )
    advantage_norm: AdvantageNorm = Field(
        default="batch", description="over what advantages are normalised"
    )
    advantage_entries: AdvantageEntries = Field(
        default="active",
        description="which advantages of a minibatch count in their mean and deviation; all: also "
        "those of agents that were not there, as in XuanCe",
    )
    advantage_eps: float = Field(default=1e-5, gt=0, description="added to their deviation")
    advantage_ddof: Literal[0, 1] = Field(
        default=0, description="1: their deviation as torch's std has it"
    )
    agent_reduction: Reduction = Field(
        default="mean", description="over agents: mean, or XuanCe's sum"
    )
    time_limit: TimeLimit = Field(default="bootstrap", description="what a time limit means to GAE")
    agent_end: AgentEnd | None = Field(
        default=None,
        description="when an agent's future ends: with its own end (death), its team's, or its "
        "world's, as in the references, which do not learn values of the dead; None: its team's "
        "where it is paid its team's reward, else its own",
    )
    reward: RewardShare = Field(default="team_mean", description="whose reward an agent is paid")
    target_kl: float = Field(
        default=0.0,
        json_schema_extra=TRACED_OPTION,
        description="stop a batch's epochs beyond this KL; 0 or less: never",
    )
    normalise_obs: bool = Field(
        default=False, description="observations in running units, within ±10"
    )
    normalise_reward: bool = Field(
        default=False, description="rewards in units of their discounted sum's, within ±10"
    )


class HostsConfig(Section):
    """Several processes that train one run together."""

    join: bool = Field(
        default=False, description="find the others by what Slurm, Kubernetes or a TPU pod say"
    )
    coordinator: str | None = Field(
        default=None, description="where the first process listens, address:port"
    )
    processes: int | None = Field(default=None, ge=1, description="how many there are")
    process_id: int | None = Field(default=None, ge=0, description="which of them this one is")

    @property
    def several(self) -> bool:
        return self.join or self.coordinator is not None
