"""python -m jmarl.sweep: train many settings. See `jmarl.commands.sweep`."""

if __name__ == "__main__":
    from jmarl.commands.sweep import main

    main()
else:
    raise ImportError("jmarl.sweep is a command: run `python -m jmarl.sweep`.")
