"""Right programs with mistakes planted into them: what does the judge see, and whom does it suspect?"""
