"""A fit as one HTML file that a colleague can open: the verdict first, then what is behind it."""

from isvi.report.report import write_report

__all__ = ["write_report"]
