"""The words that options may be. Apart from the code that they choose, so that a command line is
read without loading it."""

from typing import Literal

Transformer = Literal["mat", "mat_dec", "mat_encoder", "mat_decoder", "mat_gru"]
ActorCritic = Literal["mappo", "ippo", "rmappo", "rippo", "ppo"]

# networks
Activation = Literal["relu", "tanh"]
AgentId = Literal["none", "obs", "features"]
AgentOrder = Literal["fixed", "random"]
Distribution = Literal["gaussian", "tanh", "beta"]
CriticInput = Literal["own", "all", "all_and_state", "state"]
HeadInit = Literal["orthogonal", "torch_default"]
Precision = Literal["float32", "bfloat16"]
Sharing = Literal["team", "all", "none"]
StartState = Literal["stored", "zero"]

# returns and losses
AgentEnd = Literal["own", "team", "world"]
AdvantageNorm = Literal["batch", "minibatch", "none"]
AdvantageEntries = Literal["active", "all"]
Components = Literal["sum", "mean"]
Ratio = Literal["component", "joint"]
Reduction = Literal["mean", "sum"]
Returns = Literal["gae", "monte_carlo"]
RewardShare = Literal["individual", "team_mean", "team_sum"]
TimeLimit = Literal["bootstrap", "terminal", "zero_gae"]
ValueLoss = Literal["huber", "squared"]
ValueScaling = Literal["none", "valuenorm", "popart"]

# running
NonFinite = Literal["stop", "skip"]
InitParts = Literal["all", "actor", "critic", "encoder"]
Which = Literal["best", "latest"]  # checkpoint of a run
ReferenceName = Literal["mat", "on-policy", "xuance", "xuance-2023", "ppo"]

# optimisation
Optimiser = Literal["adam", "sgd"]
Schedule = Literal["constant", "linear", "floor"]
Shuffle = Literal["blocks", "rows", "none"]
