"""The latent space: a map of examples, directions between them, sparse dictionaries, one word in several texts."""
