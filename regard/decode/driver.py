"""A background thread that steps an engine while it has work."""

import threading
from typing import Any


class Driver:
    """Steps an engine in a thread until no request runs or waits."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.thread: threading.Thread | None = None
        self.lock = threading.Lock()

    def start(self) -> None:
        """Start the thread, unless it is running."""
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="regard-engine", daemon=True)
                self.thread.start()

    def run(self) -> None:
        engine = self.engine
        while True:
            with engine.lock:  # so that nobody cancels the first request in between
                first = engine.waiting[0] if engine.waiting and not engine.running else None
                try:
                    engine.step()
                except Exception as error:  # the requests that were running have it in their tickets
                    if engine.waiting and engine.waiting[0] is first:  # it could never be started
                        engine.waiting.popleft().ticket.finish(error=error)
            with self.lock:
                if engine.scheduler.idle:
                    self.thread = None
                    return
