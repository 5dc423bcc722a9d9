"""The options that HAPPO has of its own."""

from jmarl.config.declaration import Section, option


class HappoConfig(Section):
    """How agents are updated one after the other."""

    fixed_order: bool = option(
        False,
        "Update the agents of a team in their own order. By default every update draws an order.",
    )
    critic_epochs: int | None = option(
        None, "Passes of the critic over each batch. None: ppo.epochs.", ge=1
    )
