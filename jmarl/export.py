"""python -m jmarl.export: write a policy as one file. See `jmarl.commands.export`."""

if __name__ == "__main__":
    from jmarl.runs.signals import end_on_signals

    end_on_signals()  # before the slow imports
    from jmarl.commands.export import main

    main()
else:
    raise ImportError("jmarl.export is a command: run `python -m jmarl.export`.")
