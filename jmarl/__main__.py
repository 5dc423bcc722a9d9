"""python -m jmarl: the commands, one line each."""

COMMANDS = {
    "train": "train a team of agents",
    "evaluate": "score a trained policy",
    "sweep": "train many settings and seeds, and rank them",
    "render": "draw episodes of a trained policy",
    "report": "compare runs on one page",
    "export": "write a policy as a file that acts with jax alone, or for torch",
    "import_torch": "make a run of checkpoints of a torch implementation",
}


def main() -> None:
    print("usage: python -m jmarl.COMMAND [OPTIONS]; --help after a command lists its options")
    for name, what in COMMANDS.items():
        print(f"python -m jmarl.{name:<12} {what}")


if __name__ == "__main__":
    main()
    raise SystemExit(0)
