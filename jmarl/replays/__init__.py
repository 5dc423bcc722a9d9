"""Episodes of trained policies, drawn."""
