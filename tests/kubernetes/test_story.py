"""Events on pods and claims: counted when they come again, few enough, and no hold-up while the API server is away."""

from __future__ import annotations

import threading

from cotenant.kubernetes.node import story as stories
from cotenant.kubernetes.node.story import NORMAL, WARNING, About, Story
from tests.kubernetes.fake_cluster import FakeCluster, running_pod

POD = About.of(running_pod())


def test_an_event_that_comes_again_is_counted_on_one_object() -> None:
    cluster = FakeCluster()
    story = Story(cluster, "node")
    for now in (10.0, 20.0, 30.0):
        story.put((POD, "Paused", "why", NORMAL), now)
    story.put((POD, "Joined", "why", NORMAL), 40.0)
    assert cluster.events() == [("pod", "Paused", "why", 3), ("pod", "Joined", "why", 1)]
    [event, _] = cluster.all_of("v1", "Event")
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (
        "1970-01-01T00:00:10Z",
        "1970-01-01T00:00:30Z",
    )
    assert event["involvedObject"]["uid"] == "uid-of-pod" and event["reportingInstance"] == "node"


def test_a_pod_that_has_much_to_tell_floods_nobody_and_hides_no_other() -> None:
    cluster = FakeCluster()
    story = Story(cluster, "node")
    for number in range(stories.BURST * 2):
        story.put((POD, "AllocationRefused", f"the {number}th", WARNING), 100.0)
    story.put((About.of(running_pod("other")), "Joined", "it came", NORMAL), 100.0)
    told = cluster.events()
    assert len(told) == stories.BURST + 1 and told[-1][0] == "other"
    story.put((POD, "Paused", "later", NORMAL), 100.0 + stories.REFILL_SECONDS)
    assert cluster.events()[-1][:2] == ("pod", "Paused")


def test_what_was_one_too_many_forgets_no_count_and_a_later_pod_of_the_name_has_its_own() -> None:
    cluster = FakeCluster()
    story = Story(cluster, "node")
    told = (POD, "Paused", "why", NORMAL)
    for _ in range(stories.BURST + 1):
        story.put(told, 100.0)
    story.put(told, 100.0 + stories.REFILL_SECONDS)
    assert cluster.events() == [("pod", "Paused", "why", stories.BURST + 1)]
    [event] = cluster.all_of("v1", "Event")
    assert event["firstTimestamp"] == "1970-01-01T00:01:40Z"
    later = running_pod()
    later["metadata"]["uid"] = "uid-of-a-later-one"
    story.put((About.of(later), *told[1:]), 200.0)
    assert sorted(count for *_, count in cluster.events()) == [1, stories.BURST + 1]


def test_what_cannot_be_written_is_left_out_and_the_rest_is_told(capsys: object) -> None:
    cluster = FakeCluster()
    cluster.is_away = True
    story, ended = Story(cluster, "node"), threading.Event()
    for number in range(stories.MOST_WAITING + 5):
        story.tell(POD, "Joined", str(number))
    with_one_more = threading.Thread(target=story.write, args=(ended,))
    story.tell(About.of(running_pod("last")), "Joined", "the last")
    applied = cluster.apply

    def back_for_the_last(made: dict[str, object]) -> None:
        cluster.is_away = made["message"] != "the last"
        applied(made)

    cluster.apply = back_for_the_last  # type: ignore[method-assign]
    with_one_more.start()
    ended.set()
    with_one_more.join(30)
    assert not with_one_more.is_alive()
    assert cluster.events() == [("last", "Joined", "the last", 1)]
