"""The subjects of `benchmarks.throughput`, each in its own process, which answers requests.

A process waits at its pipe while others have their turn. For each request it returns the seconds of
rollout and learning of one update. jmarl's train step is one program; its rollout is timed as a
step with no epochs, and learning is the difference to a whole step.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

GEMM = 2048  # rows of the square matrices that measure this machine's peak
TURN_S = 0.3  # shorter updates are timed together until they take this long


def memory_mb(pids: list[int]) -> float:
    """The sum of the processes' peaks."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM"):
                total += int(line.split()[1])
    return total / 1024


def _children() -> list[int]:
    me = os.getpid()
    found = Path(f"/proc/{me}/task/{me}/children").read_text(encoding="utf-8").split()
    return [int(pid) for pid in found]


def serve(pipe: Connection, subject: str, options: dict[str, Any]) -> None:
    """Send the costs of starting, then times until the request to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when to end
    started = time.perf_counter()
    turn, about = SUBJECTS[subject](options)
    turn(1)  # a warm-up
    about["first_update_s"] = time.perf_counter() - started
    about["peak_mb"] = memory_mb([os.getpid(), *_children()])
    for pid in (os.getpid(), *_children()):
        Path(f"/proc/{pid}/clear_refs").write_text(
            "5", encoding="utf-8"
        )  # measure the peak from here on
    updates = max(1, int(TURN_S / turn(1)["whole"]))
    about["training_mb"] = memory_mb([os.getpid(), *_children()])
    pipe.send(about)
    with suppress(EOFError):  # the parent has closed the pipe
        while pipe.recv():
            pipe.send(turn(updates))
    # Workers that step worlds end when their pipes close with this process.
    os._exit(0)


Turn = Callable[[int], dict[str, float]]  # number of updates → seconds per update


def jmarl(options: dict[str, Any]) -> tuple[Turn, dict[str, float]]:
    import jax

    from jmarl.config.train_config import build
    from jmarl.execution import cpu_devices
    from jmarl.execution.compilation import compile_step, jitted_init
    from jmarl.execution.in_flight import Bounded
    from jmarl.execution.population import make_population
    from jmarl.execution.sharding import places

    config = build(options | {"total_updates": 1_000_000})
    cpu_devices.make_devices([(config, 1)])
    population = make_population(config)
    trainer, mesh = population.shard_trainer(1)
    hyper: Any = jax.tree.map(lambda x: float(x[0]), population.hyper)
    at = None if mesh is None else places(trainer, hyper, mesh, batched=False)
    begin = time.perf_counter()
    state = jitted_init(trainer, 1, at)(jax.random.key(0))
    step = Bounded(compile_step(trainer, 1, at, state, hyper))
    compile_s = time.perf_counter() - begin
    given = hyper if at is None else jax.device_put(hyper, at.hyper)
    kept: dict[str, Any] = {"state": state, "only_play": None, "turns": 0}

    def seconds(program: Any, updates: int) -> float:
        """Seconds per update, in a chunk that is waited for only at its end, as in training."""
        begin = time.perf_counter()
        for _ in range(updates):
            kept["state"], kept["metrics"] = program(kept["state"], given)
        jax.block_until_ready((kept["state"], kept["metrics"]))
        return (time.perf_counter() - begin) / updates

    def turn(updates: int) -> dict[str, float]:
        kept["turns"] += 1
        if kept["turns"] == 3:  # not before memory has been read
            still = tuple(replace(learner, epochs=0) for learner in trainer.learners)
            idle = replace(trainer, learners=still)
            kept["only_play"] = Bounded(compile_step(idle, 1, at, kept["state"], hyper))
            seconds(kept["only_play"], 1)
        whole = seconds(step, updates)
        played = 0.0 if kept["only_play"] is None else seconds(kept["only_play"], updates)
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

        def turn(updates: int) -> dict[str, float]:
            played, begin = 0.0, time.perf_counter()
            for _ in range(updates):
                start = time.perf_counter()
                trainer.rollout()
                played += (time.perf_counter() - start) / updates
                trainer.update()
            whole = (time.perf_counter() - begin) / updates
            return {"whole": whole, "rollout": played, "update": whole - played}

        return turn, {}

    return make


def gemm(options: dict[str, Any]) -> tuple[Turn, dict[str, float]]:
    """XLA's matmul of large square matrices, the reference of `roofline`."""
    import jax
    import jax.numpy as jnp

    del options
    a = jnp.ones((GEMM, GEMM))
    product = jax.jit(lambda a, b: a @ b).lower(a, a).compile()

    def turn(updates: int) -> dict[str, float]:
        del updates
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
