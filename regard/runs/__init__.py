"""A run is a directory: the recipe that decides it, and the training that fills it."""
