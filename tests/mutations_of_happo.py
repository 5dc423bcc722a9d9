"""Wrong lines in HAPPO: name, file, right, wrong, tests."""

TAG = "tests/parity/test_happo_parity.py -k tag"  # three agents, several dimensions
UNLIKE = "tests/parity/test_happo_parity.py -k listener"
DRAWN = "tests/parity/test_happo_parity.py -k drawn"
BESIDE_MAPPO = "tests/learning/test_happo.py -k mappo"

HAPPO = [
    (
        "happo: M is ignored",
        "learning/happo.py",
        "rows.advantage * jnp.exp(log_factor)",
        "rows.advantage",
        TAG,
    ),
    (
        "happo: M is only of the agent before",
        "learning/happo.py",
        "log_factor = log_factor + self.log_ratio(",
        "log_factor = self.log_ratio(",
        TAG,
    ),
    (
        "happo: M is of the parameters before the update",
        "learning/happo.py",
        "self.log_ratio(after.params, rows, agent)",
        "self.log_ratio(params, rows, agent)",
        TAG,
    ),
    (
        "happo: M is of one component of the action",
        "learning/happo.py",
        "(log_prob - rows.log_prob).sum(-1) * rows.active",
        "(log_prob - rows.log_prob)[..., 0] * rows.active",
        TAG,
    ),
    (
        "happo: M counts agents that are out",
        "learning/happo.py",
        "(log_prob - rows.log_prob).sum(-1) * rows.active",
        "(log_prob - rows.log_prob).sum(-1)",
        TAG,
    ),
    (
        "happo: every agent learns from the first one's rows",
        "learning/happo.py",
        "rows = agent_batch(batch, agent)",
        "rows = agent_batch(batch, 0 * agent)",
        TAG,
    ),
    (
        "happo: the critic has the actors' learning rate",
        "learning/happo.py",
        "lr=lr * hyper.critic_lr_factor,",
        "lr=lr,",
        TAG,
    ),
    (
        "happo: the order is never drawn",
        "learning/happo.py",
        "jnp.arange(count) if self.fixed_order else",
        "jnp.arange(count) if True else",
        DRAWN,
    ),
    (
        "happo: actors come back in the order of their turns",
        "learning/happo.py",
        "back = jnp.argsort(order)",
        "back = jnp.arange(len(order))",
        DRAWN,
    ),
    (
        "happo: the critic has the actors' epochs",
        "learning/happo.py",
        "step, self.critic_epochs, None, layout",
        "step, self.epochs, None, layout",
        DRAWN,
    ),
    (
        "happo: an agent has the first one's padding",
        "policies/own_actors.py",
        "real[agent][None]",
        "real[0][None]",
        UNLIKE,
    ),
    (
        "happo: the actors' optimisers forget",
        "learning/happo.py",
        '{"actor": opt_states, "critic": critic.opt_state}',
        '{**cast(Any, before.opt_state), "critic": critic.opt_state}',
        BESIDE_MAPPO,
    ),
    (
        "happo: the critic's optimiser forgets",
        "learning/happo.py",
        '{"actor": opt_states, "critic": critic.opt_state}',
        '{**cast(Any, before.opt_state), "actor": opt_states}',
        BESIDE_MAPPO,
    ),
    (
        "happo: all actors start alike",
        "policies/own_actors.py",
        "jax.random.split(key, len(self.net.obs_sizes))",
        "jax.random.split(key, 1)[jax.numpy.zeros(len(self.net.obs_sizes), int)]",
        "tests/learning/test_happo.py -k elsewhere",
    ),
]
