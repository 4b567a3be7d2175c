"""Python loads this by its name when a process starts whose PYTHONPATH has this folder: plans hold in children too."""

import planting

if planting.plan():
    planting.start()
