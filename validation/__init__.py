"""The judge: problems, solutions, checks, the ledger of equations, reports and the command line."""

from validation.problem import Problem
from validation.solution import Solution
from validation.solve import solve

__all__ = ["Problem", "Solution", "solve"]
