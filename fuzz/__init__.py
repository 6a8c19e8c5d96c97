"""Fuzzers for every parser of foreign files and requests: `make fuzz MINUTES=10`.

A harness is a file in `harnesses/`: `seeds()` makes small valid inputs, `run(data)` reads one, `READS` names modules
whose lines are counted. An input must be read, or refused by a ValueError; any other error, a crash, 5 seconds of the
processor or half a gigabyte is a finding, whose input is kept in `corpus/` and tried ever after.
"""
