"""Models over HTTP: the API that OpenAI's clients speak, a few routes more, and a page to use it from.

A thin layer over the engine: nothing about decoding is decided here.
"""
