"""Measurements: what a reuse step costs, and how the default method compares with other tools."""
