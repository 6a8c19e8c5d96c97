"""Boxes in Pascal VOC's XML."""

from fuzz.harnesses.images import seeds as images
from fuzz.scratch import put
from regard.data.readers.annotations import list_voc

READS = ("regard.data.readers.annotations",)
WORDS = [
    b"<!DOCTYPE a [<!ENTITY b 'bbbb'>]>",
    b"&b;",
    b"<!ENTITY c SYSTEM 'file:///dev/zero'>",
    b"<object>",
    b"</object>",
    b"<bndbox>",
    b"<xmin>",
    b"nan",
    b"inf",
    b"<![CDATA[",
    b"]]>",
    b"<?xml version='1.0' encoding='utf-16'?>",
]


def seeds() -> list[bytes]:
    """Return the annotation of one image, and one with an entity of its own."""
    box = b"<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>5</ymax></bndbox>"
    body = (
        b"<annotation><filename>a.png</filename><size><width>7</width><height>5</height><depth>3</depth></size><object><name>%s</name><difficult>0</difficult>"
        + box
        + b"</object></annotation>"
    )
    return [body % b"bird", b"<?xml version='1.0'?>\n" + body % b"big bird"]


def run(data: bytes) -> None:
    """Read the folder of annotations, and its image."""
    put("voc/JPEGImages/a.png", images()[0])
    for image in list_voc(put("voc/Annotations/a.xml", data).parents[1])[0]:
        image.read()
