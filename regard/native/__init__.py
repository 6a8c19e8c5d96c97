"""Decoding at the speed of the memory: a step as a short program, run by compiled kernels where there is a compiler."""
