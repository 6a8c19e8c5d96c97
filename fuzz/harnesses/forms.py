"""Forms with files, as the uploads of recordings."""

from regard.serve.multipart import read_form

READS = ("regard.serve.multipart",)
TYPE = b"multipart/form-data; boundary=b\n"


def seeds() -> list[bytes]:
    """Return forms, each behind its content type."""
    field = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\x00\xff\r\n'
    coded = b"--b\r\nContent-Disposition: form-data; name*=utf-8''f%C3%BC; filename=\"\"\r\n\r\n\r\n"
    return [TYPE + field + file + b"--b--\r\n", TYPE.replace(b"=b", b'="b"') + coded + b"--b--"]


def run(data: bytes) -> None:
    """Read a form."""
    type_, _, body = data.partition(b"\n")
    read_form(body, type_.decode("latin-1"))
