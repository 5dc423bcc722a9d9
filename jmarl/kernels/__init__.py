"""Operations that are tuned by hand for XLA."""
