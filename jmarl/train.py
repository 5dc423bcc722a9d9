"""python -m jmarl.train: train a team. See `jmarl.commands.train`."""

if __name__ == "__main__":
    from jmarl.runs.signals import end_on_signals

    end_on_signals()  # before the slow imports
    from jmarl.commands.train import main

    main()
else:
    raise ImportError(
        "jmarl.train is a command: run `python -m jmarl.train`. The function is `jmarl.train()`."
    )
