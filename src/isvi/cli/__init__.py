"""The command line: one small file per command, put together in :mod:`isvi.cli.main`."""
