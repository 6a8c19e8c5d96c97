"""From a model's scores to text: greedy, sampled and beam search, for every model that can `prefill` and `step`."""

from regard.decode.beam import beam_search
from regard.decode.sample import Hypothesis, Sampling, filter_scores, generate, steps

__all__ = ["Hypothesis", "Sampling", "beam_search", "filter_scores", "generate", "steps"]
