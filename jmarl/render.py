"""python -m jmarl.render: draw episodes. See `jmarl.commands.render`."""

if __name__ == "__main__":
    from jmarl.runs.signals import end_on_signals

    end_on_signals()  # before the slow imports
    from jmarl.commands.render import main

    main()
else:
    raise ImportError("jmarl.render is a command: run `python -m jmarl.render`.")
