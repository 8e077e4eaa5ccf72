"""A run while it runs: the compiled loops, the host that drives them, records begun ahead or elsewhere, who is told.
What is decided before belongs one room up."""
