"""Options of runs and sweeps: declared, read and checked."""
