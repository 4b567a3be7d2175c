"""The judge: two solutions compared, and programs of anyone asked, with suspects where they fail."""
