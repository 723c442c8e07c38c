"""The benchmark: quality against time, on equal terms."""
