"""Decisions measured on the user's own data: a cheaper model for a trained one, and which family to train at all."""
