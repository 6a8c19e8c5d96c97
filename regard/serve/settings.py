"""The settings of a server: where it listens, who may use it, its limits."""

import ipaddress
import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Address, keys and limits of a server."""

    host: str = "127.0.0.1"
    """The address to listen on; the default is reached from this machine alone."""
    port: int = 8000
    """The port to listen on; 0 takes a free one."""
    api_keys: tuple[str, ...] = ()
    """API keys, one of which a client must send (none: no key is needed)."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may use the API."""
    hosts: tuple[str, ...] = ()
    """Host names that requests may use, beside this machine's own."""
    quantize: Literal["none", "bfloat16", "int8", "int4"] | None = None
    """Quantization of the weights (none: as each run says)."""
    max_batch: int = 256
    """Texts that a model generates at once."""
    memory: int = 2**30
    """Bytes for a model's key/value cache."""
    models_memory: int | None = None
    """Bytes for all models together; the one that was used the longest ago leaves for another (none: no limit)."""
    queue: int = 256
    """Requests that may wait; more are refused."""
    timeout: float = 600.0
    """Seconds for one response."""
    max_body: int = 4 * 2**20
    """Largest size of a request in bytes."""
    threads: int | None = None
    """Threads of a model (none: all cores)."""
    grace: float = 30.0
    """Seconds for open responses to end when the server is stopped."""

    def __post_init__(self) -> None:
        for name in ("max_batch", "memory", "models_memory", "queue", "timeout", "max_body"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0 and finite; choose a number")
        if not 0 <= self.port < 2**16:
            raise ValueError(f"port={self.port} is no port; use 1 to 65535, or 0 for a free one")
        if not 0 <= self.grace < math.inf:
            raise ValueError(f"grace={self.grace} must be 0 or more and finite; choose a number")
        if any(not key.strip() or not key.isascii() for key in self.api_keys):
            raise ValueError("an API key is empty or has characters beyond ASCII; choose another one")
        for origin in self.origins:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise ValueError(f"{origin!r} is no origin; write https://example.org, or * for all")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
