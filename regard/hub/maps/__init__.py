"""Other projects' names live here and nowhere else: one file a `model_type`."""

from regard.hub.mapping import Map
from regard.hub.maps.marian import MARIAN

MAPS: dict[str, Map] = {"marian": MARIAN}
