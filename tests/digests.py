"""python -m tests.digests record|compare FILE: what small runs of everything compute, bit by bit.

For changes that must change no number: record before, compare after. A digest covers all arrays of
the final state, whatever their names and order, and all metrics and evaluations but for clocks. Not
part of the suite: compilers and processors round differently, so digests hold on one machine only.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import numpy as np

from jmarl.config.train_config import build
from jmarl.runs.in_memory import train

SMALL = {
    "num_envs": 4,
    "rollout_length": 5,
    "total_updates": 3,
    "eval_episodes": 4,
    "eval_every": 2,
    "log_every": 1,
    "devices": 1,
    "quiet": True,
    "ppo": {"num_minibatches": 2, "epochs": 2},
}
NET = {"transformer": {"n_embd": 8}, "actor-critic": {"hidden": [8]}}
TEAMS = {"env": "mpe/simple_world_comm"}
CHUNKS = {"algorithm": "rippo", "ppo": {"num_minibatches": 2, "chunk_length": 5}}
CASES = {
    **{name: {"algorithm": name} for name in ("mat", "mat_dec", "mat_encoder", "mat_decoder")},
    "mat_gru": {"algorithm": "mat_gru"},
    "mat continuous": {"algorithm": "mat", "actions": "continuous"},
    "mat factored": {"algorithm": "mat", "env": "mpe/simple_reference", "actions": "multidiscrete"},
    "mat random order": {"algorithm": "mat", "net": {"n_embd": 8, "agent_order": "random"}},
    "mat two teams": {"algorithm": "mat", **TEAMS},
    "mappo": {"algorithm": "mappo"},
    "mappo two devices": {"algorithm": "mappo", "devices": 2, "ppo": {"num_minibatches": 2}},
    "mappo popart": {"algorithm": "mappo", "ppo": {"num_minibatches": 2, "value_norm": "popart"}},
    "mappo apart": {"algorithm": "mappo", "net": {"hidden": [8], "share": "none"}, **TEAMS},
    "ippo": {"algorithm": "ippo"},
    "ippo rows": {"algorithm": "ippo", "ppo": {"num_minibatches": 2, "shuffle": "rows"}},
    "ippo bfloat16": {"algorithm": "ippo", "net": {"hidden": [8], "precision": "bfloat16"}},
    "rmappo continuous": {"algorithm": "rmappo", "actions": "continuous"},
    "rippo in chunks, two devices": {**CHUNKS, "devices": 2},
    "happo": {"algorithm": "happo", "env": "mpe/simple_speaker_listener"},
    "rhappo in chunks, two devices": {**CHUNKS, "algorithm": "rhappo", "devices": 2},
    "ppo": {"algorithm": "ppo", "ppo": {"num_minibatches": 2, "epochs": 2}},
    "two seeds": {"algorithm": "ippo", "seeds": 2},
}
SWEEP = "--grid lr=1e-3,3e-3 epochs=1,2 --seeds 2 --devices 1 --quiet --no-plots --sweep-dir sweep"


def digest(parts) -> str:
    total = hashlib.sha256()
    for part in sorted(hashlib.sha256(part).hexdigest() for part in parts):
        total.update(part.encode())
    return total.hexdigest()[:16]


def of_state(state) -> str:
    leaves = [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in map(jax.numpy.asarray, jax.tree.leaves(state))
    ]
    return digest(f"{x.dtype}{x.shape}".encode() + np.asarray(x).tobytes() for x in leaves)


def of_lines(lines) -> str:
    clocks = ("seconds", "charts/SPS", "charts/compile_s")
    kept = ({k: v for k, v in line.items() if not k.startswith(clocks)} for line in lines)
    return digest(json.dumps(line, sort_keys=True).encode() for line in kept)


def computed():
    for name, case in CASES.items():
        kind = "transformer" if case["algorithm"].startswith("mat") else "actor-critic"
        options = {**SMALL, "net": NET[kind], **case}
        outcome, _, recorder = train(build(options))
        lines = [*recorder.entries("metrics"), *recorder.entries("evaluation")]
        yield name, [of_state(outcome.state), of_lines(lines)]
    yield "sweep", [of_lines(swept())]


def swept():
    """Lines of all members of a small sweep in two programs, as the command writes them."""
    without = ("devices", "quiet", "ppo")  # options of the sweep itself, and what its grid varies
    base = {name: value for name, value in SMALL.items() if name not in without}
    base |= {"algorithm": "ippo", "net.hidden": "8", "ppo.num_minibatches": 2}
    options = [f"{name}={value}" for name, value in base.items()]
    command = [sys.executable, "-m", "jmarl.sweep", "--base", *options, *SWEEP.split()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for path in sorted(Path("sweep").glob("member_*/*.jsonl")):
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("record", "compare"):
        raise SystemExit(__doc__)
    path, found, different = Path(sys.argv[2]), {}, []
    known = json.loads(path.read_text()) if sys.argv[1] == "compare" else {}
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for name, digests in computed():
            found[name] = digests
            same = not known or known.get(name) == digests
            different += [] if same else [name]
            print(f"{'' if same else 'DIFFERENT '}{name}: {' '.join(digests)}", flush=True)
    if not known:
        path.write_text(json.dumps(found, indent=1) + "\n")
        return
    print(f"{len(found) - len(different)} of {len(found)} equal")
    raise SystemExit(bool(different))


if __name__ == "__main__":
    main()
