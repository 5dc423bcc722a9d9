"""python -m jmarl.import_torch: a run of torch checkpoints. See `jmarl.commands.import_torch`."""

if __name__ == "__main__":
    from jmarl.runs.signals import end_on_signals

    end_on_signals()  # before the slow imports
    from jmarl.commands.import_torch import main

    main()
else:
    raise ImportError(
        "jmarl.import_torch is a command: run `python -m jmarl.import_torch`. To begin training "
        "with a checkpoint from Python, give `jmarl.train()` the option init_from."
    )
