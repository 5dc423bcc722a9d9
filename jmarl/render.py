"""python -m jmarl.render: draw episodes. See `jmarl.commands.render`."""

if __name__ == "__main__":
    from jmarl.commands.render import main

    main()
else:
    raise ImportError("jmarl.render is a command: run `python -m jmarl.render`.")
