"""Generation of token ids: greedy, sampled and beam search, for every model with `prefill` and `step`."""

from regard.decode.batch import beam_search, generate
from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.decode.sample import Hypothesis, Sampling, filter_logits

__all__ = ["Engine", "Hypothesis", "Request", "Sampling", "beam_search", "filter_logits", "generate"]
