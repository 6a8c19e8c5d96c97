"""Scores, reports, comparisons, probes and pruning of trained models."""
