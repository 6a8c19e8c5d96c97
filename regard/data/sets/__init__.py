"""One config and one stream of batches for each kind of training data."""
