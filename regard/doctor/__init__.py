"""The doctor: laws for models and kernels, the examination of a module, the watch over a training run."""
