"""From an algorithm's name to its policy and trainer."""
