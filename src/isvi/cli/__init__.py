"""The command line: one small file per command, put together in :mod:`isvi.cli.main`. Reading arguments and printing
come in; whatever a Python user would want too belongs below."""
