"""A thread for an engine, while there is something to do."""

import threading
from typing import Any


class Driver:
    """Steps an engine until nothing runs or waits any more."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.thread: threading.Thread | None = None
        self.lock = threading.Lock()

    def start(self) -> None:
        """Begins, or goes on."""
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="regard-engine", daemon=True)
                self.thread.start()

    def run(self) -> None:
        engine = self.engine
        while True:
            stuck = engine.waiting[0] if engine.waiting and not engine.running else None
            try:
                engine.step()
            except Exception as error:  # those who were running find it in their tickets
                if stuck is not None and engine.waiting and engine.waiting[0] is stuck:  # it would never be taken up
                    engine.waiting.popleft().ticket.finish(error=error)
            with self.lock:
                if not (engine.waiting or engine.running or engine.gone):
                    self.thread = None
                    return
