"""The verbs: plan, write, fetch, stitch, read, decode."""
