"""The embedded data sets, generated from seeds and from what dependencies carry."""
