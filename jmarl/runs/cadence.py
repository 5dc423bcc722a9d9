"""When something is due next: after which update."""

from jmarl.config.train_config import Config


def next_multiple(done: int, every: int) -> int:
    return done - done % every + every


def next_evaluation(config: Config, done: int) -> int:
    """Every so many updates; or, if the algorithm prefers a number of evaluations, evenly over the
    run: the k-th of n after ⌈k·updates/n⌉, as many as there are updates to follow."""
    count, updates = config.facts.evaluations, config.num_updates
    if config.eval_every is not None or count is None:
        return next_multiple(done, config.updates_between_evaluations)
    following = done * count // updates + 1
    return -(-following * updates // count)


def next_checkpoint(config: Config, done: int) -> int:
    """With every evaluation, unless the configuration says otherwise."""
    every = config.checkpoint_every
    return next_evaluation(config, done) if every is None else next_multiple(done, every)
