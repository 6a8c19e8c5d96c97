"""What a server allows."""

import ipaddress
import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Limits and locks of a server."""

    host: str = "127.0.0.1"
    """The address it listens on; the default is reached from this machine alone."""
    port: int = 8000
    """0 takes a free one."""
    api_keys: tuple[str, ...] = ()
    """Whoever asks must know one of them (none: nobody has to)."""
    origins: tuple[str, ...] = ()
    """Pages of other sites that may ask (none: no others)."""
    hosts: tuple[str, ...] = ()
    """Names under which it may be called, beside this machine's own."""
    quantize: Literal["none", "int8", "int4"] = "none"
    """Weights as whole numbers."""
    max_batch: int = 256
    """Texts written at once by a model."""
    memory: int = 2**30
    """Bytes for a model's keys and values."""
    queue: int = 256
    """Requests that wait; more are refused."""
    timeout: float = 600.0
    """Seconds for one answer."""
    max_body: int = 4 * 2**20
    """Bytes of a request."""
    threads: int | None = None
    """Cores for a model (none: all)."""
    grace: float = 30.0
    """Seconds that open answers have to end when the server is stopped."""

    def __post_init__(self) -> None:
        for name in ("max_batch", "memory", "queue", "timeout", "max_body"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0, and have an end")
        if not 0 <= self.port < 2**16:
            raise ValueError(f"port={self.port} is none; use 1 to 65535, or 0 for a free one")
        if not 0 <= self.grace < math.inf:
            raise ValueError(f"grace={self.grace} must be 0 or more, and have an end")
        if any(not key.strip() or not key.isascii() for key in self.api_keys):
            raise ValueError("an API key is empty or has letters beyond ASCII; choose another one")
        for origin in self.origins:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise ValueError(f"{origin!r} is no origin; write https://example.org, or * for any")

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
