"""python -m jmarl.export RUN [--option value …]: a policy as a file that acts with jax alone (and
flatbuffers, which jax needs to read such files). `python -m jmarl.export RUN/policy.zip` checks a
file. `--format torch` writes checkpoints that a torch reference loads."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from jmarl.commands.arguments import check_output, command, read_run_command
from jmarl.errors import ConfigError, RunError
from jmarl.evaluation.exported_policy import ABOUT, unpacked
from jmarl.literals import ReferenceName, Which

if TYPE_CHECKING:
    from jmarl.evaluation.trained_policy import TrainedPolicy

FILE = "policy.zip"
TORCH = "torch"  # the directory of torch checkpoints in a run


class Options(BaseModel):
    """Write the policy of a run as a portable artefact, or as checkpoints of a torch reference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    which: Which = Field(default="best", description="Checkpoint to load.")
    format: Literal["jax", "torch"] = Field(
        default="jax",
        description="A file that acts with jax alone, or state_dicts of a torch reference.",
    )
    reference: ReferenceName | None = Field(
        default=None,
        description="Whose names state_dicts have. None: the first reference with such networks.",
    )
    out: Path | None = Field(
        default=None,
        description="File to write, or directory for state_dicts. None: RUN/policy.zip, RUN/torch.",
    )


def export(run: Path, options: Options, policy: "TrainedPolicy | None" = None) -> Path:
    """The file that was written, beside the run unless an option says where. `policy`: if not that
    of the run's directory."""
    from jmarl.evaluation.export import write
    from jmarl.evaluation.trained_policy import load_policy

    path = options.out or run / FILE
    policy = policy or load_policy(run, options.which)
    check_output("out", path)
    try:
        write(policy, path)
    except OSError as error:
        raise RunError(f"out={str(path)!r} cannot be written: {error}.") from None
    return path


def export_torch(run: Path, options: Options) -> tuple[ReferenceName, list[Path]]:
    """Whose checkpoint was written, and its files."""
    from jmarl.evaluation import torch_export

    directory = options.out or run / TORCH
    if directory.is_file():
        raise RunError(f"out={str(directory)!r} cannot be written: it is a file, not a directory.")
    try:
        return torch_export.write(run, options.which, directory, options.reference)
    except OSError as error:
        raise RunError(f"out={str(directory)!r} cannot be written: {error}.") from None


def main() -> None:
    with command() as (console, _):
        run, options = read_run_command(Options, "python -m jmarl.export RUN", sys.argv[1:])
        if options.format == "torch":
            reference, files = export_torch(run, options)
            names = ", ".join(str(path) for path in files)
            console.print(f"checkpoint of {reference}: {names}", markup=False, soft_wrap=True)
        elif options.reference is not None:
            raise ConfigError(
                f"reference={options.reference!r} is of state_dicts: choose format='torch'."
            )
        elif run.is_file():
            about = json.loads(unpacked(run)[ABOUT])
            whole = f"{run} is whole: {about['algorithm']} for {about['env']}"
            console.print(whole, markup=False, soft_wrap=True)
        else:
            path = export(run, options)
            size = f"{path.stat().st_size / 1e6:.1f} MB"
            console.print(f"policy: {path} ({size})", markup=False, soft_wrap=True)
