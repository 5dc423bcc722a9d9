"""The modules of MAPPO and IPPO.

They carry the parameter names of marlbenchmark/on-policy, so that its checkpoints load. T steps,
B rows, H hidden. The parity tests compare jmarl's networks with these.
"""

import itertools

import torch
from torch import nn

from benchmarks.torch_baseline.mat_networks import linear

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


def orthogonal_gru(n_in, n_out, **options):
    """GRU with each stacked (3H, ·) weight orthogonal as one matrix, and zero biases."""
    gru = nn.GRU(n_in, n_out, **options)
    for name, parameter in gru.named_parameters():
        if name.startswith("weight"):
            nn.init.orthogonal_(parameter)
        else:
            nn.init.zeros_(parameter)
    return gru


def hidden_layer(n_in, n_out, activation, layer_norm=True):
    """LN(act(W x + b)), W of the activation's gain: √2 for relu, 5/3 for tanh."""
    gain = nn.init.calculate_gain(activation)
    layers = [linear(n_in, n_out, gain), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, *([nn.LayerNorm(n_out)] if layer_norm else []))


class MlpLayers(nn.Module):
    """One layer for every width."""

    def __init__(self, in_dim, hidden, activation, layer_norm=True):
        super().__init__()
        self.fc1 = hidden_layer(in_dim, hidden[0], activation, layer_norm)
        self.fc2 = nn.ModuleList(
            hidden_layer(*sizes, activation, layer_norm) for sizes in itertools.pairwise(hidden)
        )

    def forward(self, x):
        x = self.fc1(x)
        for layer in self.fc2:
            x = layer(x)
        return x


class MlpBase(nn.Module):
    """layers(LN(x)), or layers(x) without feature_norm."""

    def __init__(self, in_dim, hidden, activation, feature_norm=True, layer_norm=True):
        super().__init__()
        self.feature_norm = nn.LayerNorm(in_dim) if feature_norm else nn.Identity()
        self.mlp = MlpLayers(in_dim, hidden, activation, layer_norm)

    def forward(self, x):
        return self.mlp(self.feature_norm(x))


class RnnLayer(nn.Module):
    """h_t = GRU(x_t, m_t h_{t-1}) over x (T, B, H), m (T, B, 1); -> LN(h_1 … h_T), h_T (B, H).

    Between two steps at which some mask is 0 the masks are all 1: there the GRU runs in one call.
    """

    def __init__(self, hidden):
        super().__init__()
        self.rnn = orthogonal_gru(hidden, hidden, num_layers=1)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x, h, masks):
        outputs = []
        cuts = ((masks[1:] != 1).flatten(1).any(1).nonzero()[:, 0] + 1).tolist()
        for start, end in itertools.pairwise([0, *cuts, len(x)]):
            output, last = self.rnn(x[start:end], (h * masks[start]).unsqueeze(0))
            h = last.squeeze(0)
            outputs.append(output)
        return self.norm(outputs[0] if len(outputs) == 1 else torch.cat(outputs)), h


class Trunk(nn.Module):
    """What actor and critic share in structure: base, and the GRU if recurrent."""

    def __init__(self, in_dim, hidden, activation, recurrent, feature_norm, layer_norm=True):
        super().__init__()
        self.base = MlpBase(in_dim, hidden, activation, feature_norm, layer_norm)
        if recurrent:
            self.rnn = RnnLayer(hidden[-1])
        self.recurrent = recurrent

    def features(self, x, h, masks):
        """Feed-forward: x (..., in), h returned as it came. Recurrent: x (T, B, in)."""
        x = self.base(x)
        return self.rnn(x, h, masks) if self.recurrent else (x, h)


class CategoricalHead(nn.Module):
    """Logits."""

    def __init__(self, hidden, n):
        super().__init__()
        self.linear = linear(hidden, n, 0.01)

    def forward(self, x):
        return self.linear(x)


class DiscreteActor(Trunk):
    """Logits (..., n) and the last h."""

    def __init__(self, in_dim, n, hidden, activation, recurrent, feature_norm, layer_norm=True):
        super().__init__(in_dim, hidden, activation, recurrent, feature_norm, layer_norm)
        self.act = nn.ModuleDict({"action_out": CategoricalHead(hidden[-1], n)})

    def forward(self, x, h=None, masks=None):
        x, h = self.features(x, h, masks)
        return self.act["action_out"](x), h


class Critic(Trunk):
    """V (..., 1) and the last h."""

    def __init__(self, in_dim, hidden, activation, recurrent, feature_norm, layer_norm=True):
        super().__init__(in_dim, hidden, activation, recurrent, feature_norm, layer_norm)
        self.v_out = linear(hidden[-1], 1, 1.0)

    def forward(self, x, h=None, masks=None):
        x, h = self.features(x, h, masks)
        return self.v_out(x), h
