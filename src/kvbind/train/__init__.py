"""Writers that learn: distillation from full prefill through the very write, stitch and read that serve."""
