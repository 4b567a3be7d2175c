"""Experiments of the papers run again: what they print beside what comes out here."""
