"""Rows in files: npy, Zarr, Parquet. A further format is one more file with a :class:`isvi.data.Source`; how rows are
shuffled into mini-batches is told above."""
