"""Speed and memory, as ratios to a floor measured in the same run; never asserted in tests."""
