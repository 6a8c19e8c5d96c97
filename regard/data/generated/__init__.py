"""The embedded data sets, generated from seeds and from the data of installed packages."""
