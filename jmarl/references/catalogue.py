"""All references, and which of them files and policies belong to."""

from collections.abc import Collection, Iterable

from jmarl.errors import ConfigError
from jmarl.policies.base import Policy
from jmarl.references.base import Reference, check_fit, misfit_of
from jmarl.references.mat import MAT
from jmarl.references.onpolicy import ON_POLICY
from jmarl.references.ppo import PPO
from jmarl.references.xuance import XUANCE, XUANCE_2023

# Tried in this order; files of both of XuanCe's versions are read as of `xuance`.
REFERENCES: dict[str, Reference] = {
    reference.name: reference for reference in (MAT, PPO, ON_POLICY, XUANCE, XUANCE_2023)
}


def recognised(names: Collection[str], where: str) -> tuple[Reference, str]:
    """Whose file has these names, and what goes before them."""
    for reference in REFERENCES.values():
        if (prefix := reference.prefix(names)) is not None:
            return reference, prefix
    some = ", ".join(sorted(names)[:3])
    raise ConfigError(
        f"{where} is of none of the references that jmarl knows (MAT, on-policy, XuanCe, "
        f"continuous PPO): its weights are {some}…"
    )


def fitting(policies: Iterable[Policy], name: str | None = None) -> Reference:
    """The reference that has networks like all these policies; the first, or the named one."""
    policies = tuple(policies)
    if name is not None:
        for policy in policies:
            check_fit(REFERENCES[name], policy)
        return REFERENCES[name]
    why = {}
    for reference in REFERENCES.values():
        misfits = [misfit for policy in policies if (misfit := misfit_of(reference, policy))]
        if not misfits:
            return reference
        why[reference.name] = misfits[0]
    reasons = "; ".join(f"{name}: {misfit.given}" for name, misfit in why.items())
    raise ConfigError(f"no reference has networks like this policy's ({reasons}).")
