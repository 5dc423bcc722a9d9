"""Sections of the configuration: the networks, how a batch is learned from, and processes."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from jmarl.config.algorithms import ACTOR_CRITICS, IN_TURN, RECURRENT, TRANSFORMERS, WITH_ATTENTION
from jmarl.config.declaration import Section, option
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

# Options that earlier versions stored with every run, and the one value that they accepted.
REMOVED = {"net.encode_state": False}

DEEPEST = 1000  # layers; each is compiled
Width = Annotated[int, Field(ge=1)]  # of a layer

network = partial(option, group="networks")
mat_network = partial(network, algorithms=TRANSFORMERS)
torso = partial(network, algorithms=ACTOR_CRITICS)
gru = partial(network, algorithms=RECURRENT)


class NetConfig(Section):
    """The networks."""

    n_embd: int = mat_network(64, "Width of the transformer's embeddings.", everyday=True, ge=1)
    n_head: int = network(
        1, "Number of attention heads; must divide net.n_embd.", algorithms=WITH_ATTENTION, ge=1
    )
    n_block: int = network(
        1,
        "Number of blocks in the encoder and in the decoder.",
        algorithms=WITH_ATTENTION,
        ge=1,
        le=DEEPEST,
    )
    share_actor: bool = network(
        True, "Use one actor for all agents instead of one per agent.", algorithms=("mat_dec",)
    )
    agent_order: AgentOrder = network(
        "fixed",
        "Order in which agents decide: always the same, or drawn at random at every step.",
        algorithms=IN_TURN,
    )
    hidden: tuple[Width, ...] = torso(
        (64, 64), "Widths of the hidden layers of actor and critic.", everyday=True, min_length=1
    )
    critic_hidden: tuple[Width, ...] | None = torso(
        None, "Widths of the critic's hidden layers. None: the same as net.hidden.", min_length=1
    )
    head_hidden: tuple[Width, ...] = torso(
        (), "Widths of further layers between the agent id (net.agent_id=features) and the output."
    )
    critic_head_hidden: tuple[Width, ...] | None = torso(
        None, "The same for the critic. None: the same as net.head_hidden."
    )
    body: str | None = torso(
        None,
        "Flax module, as module:Class, in place of the hidden layers of actor and critic. It turns "
        "inputs […, D] into features […, F].",
    )
    conv_features: tuple[Width, ...] = network(
        (32, 32, 32),
        "Channels of the 3×3 convolutions through which networks see images, where the world's "
        "observations are images. None given: networks read images as vectors.",
    )
    activation: Activation = torso("relu", "Activation function of the hidden layers.")
    input_norm: bool = torso(True, "Apply layer normalisation to observations.")
    layer_norm: bool = torso(True, "Apply layer normalisation after each hidden layer.")
    gain: float | None = torso(
        None,
        "Gain of the hidden layers' orthogonal initialisation. None: torch's recommended gain for "
        "net.activation.",
        gt=0,
    )
    actor_gain: float = torso(0.01, "Gain of the actor's output layer at initialisation.", gt=0)
    critic_gain: float = torso(1.0, "Gain of the critic's output layer at initialisation.", gt=0)
    head_init: HeadInit = torso(
        "orthogonal",
        "Initialisation of the head layers and the outputs. torch_default: weights and biases "
        "uniform within ±1/√inputs, ignoring gains.",
    )
    gru_layers: int = gru(1, "Number of stacked GRU layers.", ge=1, le=DEEPEST)
    gru_norm: bool = gru(True, "Apply layer normalisation to the GRU's output.")
    start_state: StartState = gru(
        "stored",
        "GRU state at the start of each training sequence: the state stored during the rollout, "
        "or zero.",
    )
    agent_id: AgentId = torso(
        "none",
        "Append a one-hot agent id to the observations (obs) or to the hidden features (features).",
    )
    critic_input: CriticInput | None = torso(
        None,
        "Input of the critic. None: the agent's own observations for ippo, rippo and ppo, else all "
        "agents'.",
    )
    share: Sharing = network(
        "team",
        "Which agents share parameters: the agents of a team, all agents, or none. Transformers "
        "cannot use none.",
    )
    precision: Precision = network(
        "float32",
        "Precision of matrix products and activations; parameters and losses stay float32.",
    )
    distribution: Distribution | None = option(
        None,
        "Distribution of continuous actions. gaussian: unbounded, the environment clips; tanh: a "
        "Gaussian squashed into the bounds; beta: a Beta distribution between the bounds. None: "
        "tanh where all agents share finite bounds, else gaussian.",
        group="actions",
    )
    log_std: float | None = option(
        None,
        "Initial log standard deviation of continuous actions. Transformers with gaussian use "
        "σ = sigmoid(log_std)/2; beta uses a concentration of 1/σ². None: 1 for tanh and for "
        "transformers with gaussian, else 0.",
        group="actions",
    )
    squash_mean: bool = option(
        False,
        "Pass the mean of Gaussian actions through a sigmoid, so that it stays within the bounds.",
        group="actions",
        algorithms=ACTOR_CRITICS,
    )


optimisation = partial(option, group="optimiser")
minibatch = partial(option, group="minibatches")
advantage = partial(option, group="returns and advantages")
loss = partial(option, group="losses")


class PpoConfig(Section):
    """How a batch is learned from."""

    lr: float = optimisation(7e-4, "Learning rate.", everyday=True, traced=True, gt=0)
    lr_schedule: Schedule = optimisation(
        "linear",
        "Learning rate over the run: constant, a linear decay to lr·lr_end_factor, or a linear "
        "decay towards 0 that stops at that floor.",
    )
    lr_end_factor: float = optimisation(
        0.0, "Final learning rate as a fraction of ppo.lr.", ge=0, le=1
    )
    optimiser: Optimiser = optimisation("adam", "Optimiser.")
    adam_eps: float = optimisation(1e-5, "ε of Adam.", gt=0)
    momentum: float = optimisation(0.9, "Momentum of sgd.", ge=0, lt=1)
    weight_decay: float = optimisation(
        0.0, "L2 penalty: this multiple of the parameters is added to clipped gradients.", ge=0
    )
    max_grad_norm: float = optimisation(
        10.0, "Global norm to which gradients are clipped.", traced=True, gt=0
    )
    clip_apart: bool = optimisation(
        False,
        "Clip the gradients of actor and critic separately instead of together.",
        algorithms=ACTOR_CRITICS,
    )
    critic_lr_factor: float = optimisation(
        1.0,
        "The critic's learning rate as a multiple of ppo.lr.",
        algorithms=ACTOR_CRITICS,
        traced=True,
        gt=0,
    )
    epochs: int = minibatch(5, "Passes over each batch.", everyday=True, ge=1)
    num_minibatches: int = minibatch(
        8,
        "Minibatches per pass; must divide num_envs (or the number of rows or sequences that are "
        "shuffled).",
        everyday=True,
        ge=1,
    )
    shuffle: Shuffle = minibatch(
        "blocks",
        "What is shuffled into minibatches: environments in blocks, single rows (time step and "
        "environment), or nothing.",
    )
    chunk_length: int | None = minibatch(
        None,
        "Length of the sequences that GRUs learn from; must divide rollout_length. None: whole "
        "rollouts.",
        algorithms=RECURRENT,
        ge=1,
    )
    target_kl: float = minibatch(
        0.0,
        "Stop the passes over a batch once the policy's KL divergence exceeds this; 0 or less: "
        "never.",
        traced=True,
    )
    gamma: float = advantage(0.95, "Discount factor.", everyday=True, traced=True, ge=0, le=1)
    gae_lambda: float = advantage(0.95, "λ of GAE.", traced=True, ge=0, le=1)
    returns: Returns = advantage("gae", "How returns and advantages are estimated.")
    time_limit: TimeLimit = advantage(
        "bootstrap",
        "What an episode's time limit means: bootstrap from the value of the last state, treat it "
        "as terminal, or treat it as terminal and drop the last step (zero_gae, as MAT does).",
    )
    agent_end: AgentEnd | None = advantage(
        None,
        "When an agent's return ends: at its own termination, its team's, or the environment's "
        "(as the reference implementations do). None: its team's if ppo.reward is shared, else "
        "its own.",
    )
    reward: RewardShare = advantage(
        "team_mean",
        "Reward that each agent learns from: its own, or the mean or sum over its team.",
    )
    advantage_norm: AdvantageNorm = advantage(
        "batch", "Normalise advantages over the whole batch, over each minibatch, or not at all."
    )
    advantage_entries: AdvantageEntries = advantage(
        "active",
        "Advantages that count in the minibatch's mean and deviation: of active agents, or of all "
        "agents, as in XuanCe.",
    )
    advantage_eps: float = advantage(
        1e-5, "Added to the standard deviation of advantages before dividing by it.", gt=0
    )
    advantage_ddof: Literal[0, 1] = advantage(
        0, "Degrees of freedom subtracted in that standard deviation; torch's std uses 1."
    )
    normalise_obs: bool = advantage(
        False, "Normalise observations by running statistics and clip them to ±10."
    )
    normalise_reward: bool = advantage(
        False,
        "Divide rewards by the running deviation of their discounted sum and clip them to ±10.",
    )
    clip_eps: float = loss(
        0.2, "Clipping range ε of the probability ratio.", everyday=True, traced=True, gt=0
    )
    ratio: Ratio | None = loss(
        None,
        "Clip one probability ratio per action component, or one of the joint action. None: per "
        "component, except for continuous actions of actor-critics.",
    )
    entropy_coef: float = loss(
        0.01, "Weight of the entropy bonus.", everyday=True, traced=True, ge=0
    )
    entropy: Components = loss("sum", "Sum or mean of the entropy over an action's components.")
    value_coef: float = loss(1.0, "Weight of the value loss.", traced=True, ge=0)
    value_loss: ValueLoss = loss("huber", "Form of the value loss.")
    huber_delta: float = loss(
        10.0, "Error at which the Huber loss becomes linear.", traced=True, gt=0
    )
    squared_factor: float = loss(0.5, "Factor of the squared value loss.", gt=0)
    clip_value: bool = loss(True, "Clip the change of value predictions in the value loss.")
    value_clip_eps: float = loss(0.2, "Clipping range ε of value predictions.", traced=True, gt=0)
    value_norm: ValueScaling = loss(
        "valuenorm", "Normalise value targets by running statistics: ValueNorm, PopArt or not."
    )
    agent_reduction: Reduction = loss(
        "mean", "Mean or sum (as in XuanCe) of policy loss and entropy over agents."
    )


process = partial(
    option,
    group="devices and processes",
    resumable=True,
    learning=False,
    unswept="it is an option of the sweep as a whole",
    in_base=False,
)


class HostsConfig(Section):
    """Several processes that train one run together."""

    join: bool = process(
        False, "Find the other processes from the environment of Slurm, Kubernetes or a TPU pod."
    )
    coordinator: str | None = process(None, "Address and port of the first process, host:port.")
    processes: int | None = process(None, "Number of processes.", ge=1)
    process_id: int | None = process(None, "Index of this process.", ge=0)

    @property
    def several(self) -> bool:
        return self.join or self.coordinator is not None
