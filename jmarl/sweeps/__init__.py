"""Many runs: planned, trained, selected and ranked."""
