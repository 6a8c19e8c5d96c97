"""Models as directories: our own runs, and the Hugging Face layout in and out. No pickle is ever loaded."""

from regard.hub.checkpoint import export_model, load_generation, load_model, save_generation, save_model

__all__ = ["export_model", "load_generation", "load_model", "save_generation", "save_model"]
