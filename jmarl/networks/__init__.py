"""Networks, as Flax modules that take any leading axes."""
