"""What a run looks like: lines for a terminal, a table for pandas, one self-contained page for everyone else.

`table` holds the lines and the CSV, `page` the HTML page (`page.render`), `figures` its pictures.
"""
