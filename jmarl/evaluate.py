"""python -m jmarl.evaluate: score a trained policy. See `jmarl.commands.evaluate`."""

if __name__ == "__main__":
    from jmarl.runs.signals import end_on_signals

    end_on_signals()  # before the slow imports
    from jmarl.commands.evaluate import main

    main()
else:
    raise ImportError("jmarl.evaluate is a command: run `python -m jmarl.evaluate`.")
