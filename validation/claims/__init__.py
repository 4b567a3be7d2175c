"""The claims: every table, figure and statement of the five papers, and the verdict on each."""
