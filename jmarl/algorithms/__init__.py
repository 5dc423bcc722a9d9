"""From an algorithm's name to its players, learners and trainer."""
