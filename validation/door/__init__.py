"""The door: a problem in, a solution out, and what every question and answer is held to."""
