"""Rows that belong to groups, in memory or in files, and mini-batches of whole groups."""
