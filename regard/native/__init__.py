"""Fast decoding on CPUs: a step as a short program, run by compiled kernels where there is a compiler."""
