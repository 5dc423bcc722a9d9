"""Who is measured by `benchmarks.throughput`: each in a process of its own, which answers calls.

A process waits at its pipe while others have their turn. It does one update per call and says how
long rollout and update took; jmarl's step is one program, so that its rollout is timed as a program
of its own, and the update is what the whole step takes longer.
"""

import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

GEMM = 2048  # rows of the square matrices whose product is this machine's peak


def memory_mb(pids: list[int]) -> float:
    """The most that processes had at a time, added up."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                total += int(line.split()[1])
    return total / 1024


def _children() -> list[int]:
    me = os.getpid()
    found = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    return [int(pid) for pid in found]


def serve(pipe: Connection, subject: str, options: dict[str, Any]) -> None:
    """Tell what starting cost, then times until asked to stop."""
    started = time.perf_counter()
    turn, about = SUBJECTS[subject](options)
    turn()  # the first, which warms up
    about["first_update_s"] = time.perf_counter() - started
    about["peak_mb"] = memory_mb([os.getpid(), *_children()])
    pipe.send(about)
    while pipe.recv():
        pipe.send(turn())
    # workers of worlds end when their pipes close with this process
    os._exit(0)


Turn = Callable[[], dict[str, float]]


def jmarl(options: dict[str, Any]) -> tuple[Turn, dict[str, float]]:
    import jax

    from jmarl import cores
    from jmarl.config import build
    from jmarl.crew import make_crew
    from jmarl.devices import places
    from jmarl.rollout import rollout

    config = build(options | {"total_updates": 1_000_000})
    cores.make_devices(config)
    crew = make_crew(config)
    trainer, mesh = crew.shared_out(1)
    hyper: Any = jax.tree.map(lambda x: float(x[0]), crew.hyper)
    at = None if mesh is None else places(trainer, hyper, mesh, batched=False)
    key = jax.random.key(0)
    begin = time.perf_counter()
    ins = {} if at is None else {"in_shardings": (at.state, at.hyper)}
    outs = {} if at is None else {"out_shardings": (at.state, at.everywhere)}
    first = {} if at is None else {"out_shardings": at.state}
    unoptimised: Any = {"xla_backend_optimization_level": "0"}
    state = jax.jit(trainer.init, compiler_options=unoptimised, **first)(key)
    step = jax.jit(trainer.step, donate_argnums=0, **ins, **outs).lower(state, hyper).compile()
    compile_s = time.perf_counter() - begin
    if at is not None:
        hyper = jax.device_put(hyper, at.hyper)

    def play(state: Any, key: Any) -> Any:
        length, share = trainer.rollout_length, trainer.share
        return rollout(trainer.env, trainer.groups, state, key, length, share, hyper.gamma)

    kept: dict[str, Any] = {"state": state, "play": None}

    def turn() -> dict[str, float]:
        if kept["play"] is None and "metrics" in kept:  # not before memory has been read
            kept["play"] = jax.jit(play).lower(kept["state"], key).compile()
            jax.block_until_ready(kept["play"](kept["state"], key))
        begin = time.perf_counter()
        kept["state"], kept["metrics"] = step(kept["state"], hyper)
        jax.block_until_ready((kept["state"], kept["metrics"]))
        whole = time.perf_counter() - begin
        begin = time.perf_counter()
        if kept["play"] is not None:
            jax.block_until_ready(kept["play"](kept["state"], key))
        played = time.perf_counter() - begin
        return {"whole": whole, "rollout": played, "update": whole - played}

    return turn, {"compile_s": compile_s, "devices": jax.device_count()}


def torch(worlds: str) -> Callable[[dict[str, Any]], tuple[Turn, dict[str, float]]]:
    def make(options: dict[str, Any]) -> tuple[Turn, dict[str, float]]:
        import torch

        from benchmarks.torch_baseline.trainers import Settings, make_trainer

        torch.set_num_threads(os.cpu_count() or 1)
        net, ppo = options.get("net", {}), options["ppo"]
        given = {k: v for k, v in (options | net | ppo).items() if k in Settings.__annotations__}
        given["num_agents"] = options.get("env_options", {}).get("num_agents", 3)
        trainer = make_trainer(Settings(**given), worlds)  # pyright: ignore

        def turn() -> dict[str, float]:
            begin = time.perf_counter()
            trainer.rollout()
            played = time.perf_counter() - begin
            trainer.update()
            whole = time.perf_counter() - begin
            return {"whole": whole, "rollout": played, "update": whole - played}

        return turn, {}

    return make


def gemm(options: dict[str, Any]) -> tuple[Turn, dict[str, float]]:
    """XLA's product of large square matrices: what the others are held against."""
    import jax
    import jax.numpy as jnp

    del options
    a = jnp.ones((GEMM, GEMM))
    product = jax.jit(lambda a, b: a @ b).lower(a, a).compile()

    def turn() -> dict[str, float]:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            jax.block_until_ready(product(a, a))
            times.append(time.perf_counter() - begin)
        return {"whole": sorted(times)[2]}

    return turn, {}


SUBJECTS = {
    "jmarl": jmarl,
    "torch_subprocess": torch("subprocess"),
    "torch_vectorised": torch("vectorised"),
    "gemm": gemm,
}
