from tests.train.conftest import pairs, small

__all__ = ["pairs", "small"]
