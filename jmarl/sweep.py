"""python -m jmarl.sweep: train many settings. See `jmarl.commands.sweep`."""

if __name__ == "__main__":
    from jmarl.runs.signals import end_on_signals

    end_on_signals()  # before the slow imports
    from jmarl.commands.sweep import main

    main()
else:
    raise ImportError("jmarl.sweep is a command: run `python -m jmarl.sweep`.")
