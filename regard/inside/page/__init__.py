"""The page: all that it shows of one input, as data for a server, as a single file, or in a notebook."""

from regard.inside.page.page import TEMPERATURES, Page

__all__ = ["TEMPERATURES", "Page"]
