"""Objectives: functions from a model and a batch to the loss that is minimised."""
