"""Operations that are tuned by hand for XLA, each beside the plain equation that it must equal."""
