"""Raw files → examples → batches, and the embedded sets."""
