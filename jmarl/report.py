"""python -m jmarl.report: compare runs on one page. See `jmarl.commands.report`."""

if __name__ == "__main__":
    from jmarl.runs.signals import end_on_signals

    end_on_signals()  # before the slow imports
    from jmarl.commands.report import main

    main()
else:
    raise ImportError("jmarl.report is a command: run `python -m jmarl.report`.")
