"""A scenario with a reward and colours of its own: two couriers meet a guide."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from jmarl.envs.mpe import register
from jmarl.envs.mpe.world import Agent, Entities, Landmark, at_rest, distance, relative
from jmarl.replays.legend import Role, ScenarioLegend, Thing


@register
@dataclass(frozen=True)
class Rendezvous:
    """Everybody is rewarded for being near the guide, minus a price for haste."""

    name: ClassVar[str] = "rendezvous"
    price: float = 0.1  # an option: --env-options price 0.2

    @property
    def entities(self):
        couriers = tuple(Agent(f"courier_{i}") for i in range(2))
        guide = Agent("guide", radius=0.1)
        return Entities(agents=(*couriers, guide), landmarks=(Landmark("lake", radius=0.2),))

    @property
    def legend(self):  # optional: without it, replays draw every team in a colour
        return ScenarioLegend(
            aim="Couriers learn to meet the guide without haste.",
            roles=(
                Role("courier", "#7b3294", "is rewarded for being near the guide", (0, 1)),
                Role("guide", "#e08214", "is rewarded for standing still", (2,)),
            ),
            things=(Thing("lake", "#92c5de", "is only there to look at"),),
        )

    def start(self, keys):  # [E], one for each world
        return at_rest(self.entities, keys)

    def observe(self, world):  # blocks [agents, features, worlds]
        to_guide = relative(world.pos[2:], world.pos)[:, 0]
        return [jnp.concatenate([world.vel, to_guide], axis=1)]

    def reward(self, world):  # [agents, worlds]
        near = -distance(world.pos, world.pos[2:])
        speed = jnp.sqrt((world.vel**2).sum(1))
        return near - self.price * speed
