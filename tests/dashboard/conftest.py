"""A real job on the software GPU, as the tests of `cotenant top`'s keys have it."""

from tests.test_top_actions import job, path

__all__ = ["job", "path"]
