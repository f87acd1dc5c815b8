"""An hour of series in bounded memory."""

from __future__ import annotations

from cotenant.dashboard.history import MOST_SERIES, History


def test_a_bucket_is_the_mean_of_its_looks() -> None:
    history = History(seconds=10, bucket_seconds=2)
    for at, value in ((100.0, 0.2), (100.9, 0.4), (101.9, 0.6), (102.0, 1.0)):
        history.add(at, {"a": value})
    assert history.as_json() == {
        "bucket_seconds": 2,
        "hour_buckets": 5,
        "newest": 51,
        "series": {"a": [0.4, 1.0]},
    }
    assert history.newest_as_json() == {"number": 51, "values": {"a": 1.0}}
    history.add(103.0, {"a": 0.0})  # the second look of its own bucket
    assert history.newest_as_json() == {"number": 51, "values": {"a": 0.5}}
    history.add(101.0, {"a": 9.0})  # a look that came late
    history.add(103.5, {"a": 0.5})
    assert history.as_json()["series"] == {"a": [0.4, 0.5]}


def test_only_the_last_hour_is_kept() -> None:
    history = History(seconds=10, bucket_seconds=2)
    for at in range(0, 40, 2):
        history.add(at, {"a": at})
    assert history.as_json()["series"] == {"a": [30, 32, 34, 36, 38]}


def test_where_nobody_looked_is_a_gap() -> None:
    history = History(seconds=10, bucket_seconds=2)
    history.add(0, {"a": 1.0})
    history.add(6, {"a": 2.0})
    assert history.as_json()["series"] == {"a": [1.0, None, None, 2.0]}
    history.add(600, {"a": 3.0})  # the machine slept
    assert history.as_json()["series"] == {"a": [None, None, None, None, 3.0]}


def test_nothing_is_kept_of_a_job_that_has_ended() -> None:
    history = History(seconds=10, bucket_seconds=2)
    history.add(0, {"gpu": 1.0, "job": 0.5})
    history.add(2, {"gpu": 1.0})
    assert list(history.series) == ["gpu"]
    history.add(4, {"gpu": 1.0, "job": 0.25})
    assert history.as_json()["series"]["job"] == [None, None, 0.25]


def test_the_number_of_series_is_bounded() -> None:
    history = History(seconds=4, bucket_seconds=2)
    history.add(0, {f"job {i}": 1.0 for i in range(2 * MOST_SERIES)})
    assert len(history.series) == MOST_SERIES
    history.add(2, {f"job {i}": 0.5 for i in range(2 * MOST_SERIES)})
    assert set(history.newest_as_json()["values"].values()) == {0.5}  # those that are known go on
    assert len(history.series) == MOST_SERIES


def test_before_the_first_look_there_is_nothing() -> None:
    assert History().as_json()["series"] == {} and History().newest_as_json()["values"] == {}
    history = History(seconds=4, bucket_seconds=2)
    history.add(0.5, {"a": 1.0})  # in the first bucket of all
    assert history.as_json()["series"] == {"a": [1.0]}
