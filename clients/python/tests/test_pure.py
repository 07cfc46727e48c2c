"""What does no I/O, by a clock of ours: when a lease is over, when to renew, how long to pause, what an error means."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import LockCancelledError, LockError, LockNotOwnedError, ModuleMissingError, UnsupportedError
from redis_lock_client.acquire import AWAY, FAILOVER, RESENDS, Patience
from redis_lock_client.lease import Lease
from redis_lock_client.replies import WORDS, Kind, is_unknown_command, kind_of, word_of

ERRORS = Path(__file__).parents[2] / "vectors" / "errors.txt"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.skipif(not ERRORS.exists(), reason="this is not the repository")
def test_the_table_is_that_of_all_adapters_and_finds_the_libraries_words():
    lines = (line.partition("#")[0].split() for line in ERRORS.read_text().splitlines())
    assert {word: Kind(kind) for word, kind in filter(None, lines)} == WORDS
    parser: Any = redis.connection.DefaultParser
    for word, kind in WORDS.items():
        error = parser.parse_error(f"{word} 1 127.0.0.1:7000")
        assert kind_of(error) is kind
        # Of some only the class is left, which means the same.
        assert word_of(error) == word or word in ("ERR", "NOAUTH", "WRONGPASS")
    assert kind_of(parser.parse_error("SOMETHING else")) is Kind.FINAL
    # A cluster that was followed too often.
    assert kind_of(redis.exceptions.ClusterError("TTL exhausted.")) is Kind.TEMPORARY


@pytest.mark.skipif(not ERRORS.exists(), reason="this is not the repository")
def test_servers_say_in_their_own_words_that_they_lack_a_command():
    parser: Any = redis.connection.DefaultParser
    for line in ERRORS.with_name("unknown.txt").read_text().splitlines()[1:]:
        says, text = line.split(" ", 1)
        assert is_unknown_command(parser.parse_error(text), "LOCK.ACQUIRE") is (says == "lacks"), text


def test_a_lease_counts_from_the_sending_less_the_drift(clock):
    lease = Lease(100_000, clock=clock)
    assert lease.left() == pytest.approx(98.998)
    clock.now += 10
    # A grant that came later than a tenth of the ttl is late.
    assert lease.is_fresh()
    ends = lease.sends(100_000)
    clock.now += 5
    assert not lease.is_fresh()
    assert lease.answers(ends, True)
    assert lease.left() == pytest.approx(93.998)
    # A request that shortens it counts, whatever becomes of its reply.
    told: list[bool] = []
    lease.watchers.add(lambda: told.append(True))
    ends = lease.sends(50_000)
    assert lease.left() == pytest.approx(49.498)
    assert told
    # What is over stays lost.
    clock.now += 94
    assert not lease.answers(ends, True)
    assert lease.left() == 0


@pytest.mark.parametrize(
    ("seconds", "is_roaming", "kind", "was_silent", "number", "total"),
    [
        # A server that is away, and one whose silence takes its time.
        (None, False, None, False, 9, AWAY + 0.25),
        (None, False, None, True, RESENDS, 0.35),
        # Where another may take over, but not beyond its own time.
        (None, True, None, False, 123, FAILOVER),
        (2, True, Kind.ELSEWHERE, False, 7, 2),
        # What is temporary lasts as long as the wait.
        (15, False, Kind.TEMPORARY, False, 33, 15),
        (None, False, Kind.TEMPORARY, False, 1_000, 500),
        (0, False, Kind.TEMPORARY, False, 0, 0),
        # Who does not wait asks once more for a reply that was lost, and not for one that did not come.
        (0, False, None, False, 1, 0),
        (0, False, None, True, 0, 0),
    ],
)
def test_after_a_failure_it_is_asked_again(clock, seconds, is_roaming, kind, was_silent, number, total):
    patience, count, paused = Patience(seconds, is_roaming=is_roaming, clock=clock), 0, 0.0
    while (pause := patience.pause(kind, was_silent)) is not None and count < 1_000:
        count, paused, clock.now = count + 1, paused + pause, clock.now + pause + (5 if was_silent else 0.001)
    assert count == number
    assert paused == pytest.approx(total, rel=0.02)


def test_a_refusal_ends_the_failures_in_a_row(clock):
    patience = Patience(60, clock=clock)
    for kind in (None, *[Kind.TEMPORARY] * 9, None):
        assert patience.pause(kind)
        clock.now += 1


def test_a_wait_goes_in_slices(clock):
    patience = Patience(10, socket_timeout=4, clock=clock)
    assert (patience.block(5000), patience.within()) == (("BLOCK", 3000, "KEEP", 5000), 4)
    clock.now += 9
    assert (patience.block(0), patience.within()) == (("BLOCK", 1000), 2)
    clock.now += 1
    assert (patience.block(5000), patience.within()) == ((), 4)
    assert Patience(None, clock=clock).block(0) == ("BLOCK", 30_000)
    assert Patience(None, clock=clock).within() == 35


def test_the_errors_are_those_of_the_library_and_go_through_pickle():
    library = redis.exceptions
    assert issubclass(LockNotOwnedError, (library.LockNotOwnedError, LockError))
    assert issubclass(LockError, library.LockError)
    assert issubclass(LockError, ValueError)
    assert issubclass(ModuleMissingError, UnsupportedError)
    assert issubclass(UnsupportedError, library.ResponseError)
    for error in (LockError("no", "stock"), LockNotOwnedError("lost", b"stock"), LockCancelledError("no", "stock")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.args, again.lock_name) == (type(error), error.args, error.lock_name)
