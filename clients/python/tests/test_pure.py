"""What does no I/O, by a clock of ours: when a lease is over, when to renew, how long to pause, what an error means."""

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import LockCancelledError, LockError, LockNotOwnedError, ModuleMissingError, UnsupportedError
from redis_lock_client.acquire import FAILOVER, RESENDS, Patience
from redis_lock_client.core import checked_timeout
from redis_lock_client.keeper import SOON, Plan
from redis_lock_client.lease import Lease
from redis_lock_client.replies import WORDS, Kind, is_unknown_command, kind_of, word_of

ERRORS = Path(__file__).parents[2] / "vectors" / "errors.txt"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_table_is_that_of_all_adapters() -> None:
    if not ERRORS.exists():
        pytest.skip("this is not the repository")
    lines = (line.partition("#")[0].split() for line in ERRORS.read_text().splitlines())
    assert {word: Kind(kind) for word, kind in filter(None, lines)} == WORDS


@pytest.mark.parametrize("word", WORDS)
def test_the_libraries_words_are_found_again(word: str) -> None:
    parser: Any = redis.connection.DefaultParser
    error = parser.parse_error(f"{word} 1 127.0.0.1:7000")
    if word in ("NOAUTH", "WRONGPASS"):
        assert kind_of(error) is Kind.FINAL
    elif word != "ERR":
        assert word_of(error) == word
    assert kind_of(parser.parse_error("SOMETHING else")) is Kind.FINAL


@pytest.mark.parametrize(
    ("text", "is_unknown"),
    [
        ("unknown command 'LOCK.ACQUIRE', with args beginning with: 'k' ", True),
        ("Command is not available: 'lock.acquire'. See https://example.com", True),
        ("unsupported command", True),
        ("UNKNOWN COMMAND", True),
        ("LOCK.ACQUIRE is not supported by this proxy", True),
        ("wrong number of arguments for 'lock.acquire' command", False),
        ("unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER", False),
        ("LOADING the unsupported dataset in memory", False),
        ("ttl must be an integer", False),
    ],
)
def test_servers_say_in_their_own_words_that_they_lack_a_command(text: str, is_unknown: bool) -> None:
    assert is_unknown_command(redis.ResponseError(text), "LOCK.ACQUIRE") is is_unknown


def test_a_cluster_that_was_followed_too_often_says_try_again() -> None:
    assert kind_of(redis.exceptions.ClusterError("TTL exhausted.")) is Kind.TEMPORARY


def test_a_right_to_the_command_is_not_the_command() -> None:
    error = redis.exceptions.NoPermissionError("this user has no permissions to run the 'lock.acquire' command")
    assert not is_unknown_command(error, "LOCK.ACQUIRE")


def test_a_lease_counts_from_the_sending_less_the_drift(clock: Clock) -> None:
    lease = Lease(100_000, clock=clock)
    assert lease.left() == pytest.approx(98.998)
    clock.now += 10
    ends = lease.sends(100_000)
    clock.now += 5
    assert lease.answers(ends, True)
    assert lease.left() == pytest.approx(93.998)
    # A request that shortens it counts, whatever becomes of its reply.
    told: list[bool] = []
    lease.watchers.add(lambda: told.append(True))
    lease.sends(50_000)
    assert lease.left() == pytest.approx(49.498)
    assert told


def test_a_lease_that_is_over_stays_lost(clock: Clock) -> None:
    lease = Lease(10_000, clock=clock)
    ends = lease.sends(10_000)
    clock.now += 9.9
    assert not lease.answers(ends, True)
    assert lease.left() == 0
    lease = Lease(10_000, clock=clock)
    lease.releases()
    assert not lease.answers(lease.sends(10_000), True)


def test_a_grant_that_came_later_than_a_tenth_of_the_ttl_is_late(clock: Clock) -> None:
    lease = Lease(10_000, clock=clock)
    clock.now += 1
    assert lease.is_fresh()
    clock.now += 0.01
    assert not lease.is_fresh()


def test_with_linger_it_is_sure_for_so_long_after_the_last_word_of_its_connection(clock: Clock) -> None:
    lease = Lease(20_000, linger=1, clock=clock)
    clock.now += 0.5
    assert lease.sure() == pytest.approx(0.488)
    ends = lease.sends(20_000)
    clock.now += 0.2
    assert lease.answers(ends, True)
    assert lease.sure() == pytest.approx(0.788)
    # A renewal that binds it to no connection proves nothing.
    assert lease.answers(lease.sends(20_000), True, is_bound=False)
    assert lease.sure() == pytest.approx(0.788)
    clock.now += 0.79
    assert lease.sure() == 0
    # By hand it can still be renewed: the server says whether it holds.
    assert lease.left() > 18


@pytest.mark.parametrize(
    ("timeout", "linger", "due"), [(30, None, 10), (30, 1.5, 0.5), (30, 0.05, 0.1), (1, 60, 1 / 3)]
)
def test_it_is_renewed_at_a_third_of_the_ttl_or_of_a_shorter_linger(
    clock: Clock, timeout: float, linger: float | None, due: float
) -> None:
    plan = Plan(timeout, linger, clock)
    assert plan.due_in() == pytest.approx(due)
    clock.now += due
    assert plan.due_in() == pytest.approx(0)
    plan.done(False)
    assert plan.due_in() <= SOON
    plan.done(True)
    assert plan.due_in() == pytest.approx(due)


def pauses(patience: Patience, clock: Clock, kind: Kind | None, was_silent: bool = False) -> list[float]:
    """Fail until there is no pause more."""
    found: list[float] = []
    while (pause := patience.pause(kind, was_silent)) is not None and len(found) < 1000:
        found.append(pause)
        clock.now += max(pause, 0.001)
    return found


def test_a_server_that_is_away_is_asked_again_for_some_three_seconds(clock: Clock) -> None:
    found = pauses(Patience(None, clock=clock), clock, None)
    assert len(found) == RESENDS
    assert sum(found) == pytest.approx(3.15)
    # Each of these has taken a timeout.
    assert len(pauses(Patience(None, clock=clock), clock, None, was_silent=True)) == 3


def test_where_another_may_take_over_it_is_asked_again_for_a_minute(clock: Clock) -> None:
    assert FAILOVER <= sum(pauses(Patience(None, is_roaming=True, clock=clock), clock, None)) < FAILOVER + 1
    # Not beyond its own time.
    assert sum(pauses(Patience(2, is_roaming=True, clock=clock), clock, Kind.ELSEWHERE)) < 2.1


def test_what_is_temporary_lasts_as_long_as_the_wait(clock: Clock) -> None:
    assert sum(pauses(Patience(15, clock=clock), clock, Kind.TEMPORARY)) == pytest.approx(15, abs=0.1)
    assert len(pauses(Patience(None, clock=clock), clock, Kind.TEMPORARY)) == 1000
    assert pauses(Patience(0, clock=clock), clock, Kind.TEMPORARY) == []


def test_who_does_not_wait_asks_once_more_for_a_reply_that_was_lost(clock: Clock) -> None:
    assert pauses(Patience(0, clock=clock), clock, None) == [0]
    assert pauses(Patience(0, clock=clock), clock, None, was_silent=True) == []


def test_a_wait_goes_in_slices(clock: Clock) -> None:
    patience = Patience(10, socket_timeout=4, clock=clock)
    assert (patience.block(5000), patience.within()) == (("BLOCK", 3000, "KEEP", 5000), 4)
    clock.now += 9
    assert (patience.block(0), patience.within()) == (("BLOCK", 1000), 2)
    clock.now += 1
    assert (patience.block(5000), patience.within()) == ((), 4)
    assert Patience(None, clock=clock).block(0) == ("BLOCK", 30_000)
    assert Patience(None, clock=clock).within() == 35


@pytest.mark.parametrize("timeout", [-0.1, 0.001, 0.003, math.nan, math.inf])
def test_a_timeout_must_leave_a_lease_that_ends(timeout: float) -> None:
    with pytest.raises(ValueError, match=r"^timeout must"):
        checked_timeout(timeout, "timeout")
    assert [checked_timeout(none, "timeout") for none in (None, 0)] == [None, 0]


def test_the_errors_are_those_of_the_library_and_go_through_pickle() -> None:
    library = redis.exceptions
    assert issubclass(LockNotOwnedError, (library.LockNotOwnedError, LockError))
    assert issubclass(LockError, library.LockError)
    assert issubclass(LockError, ValueError)
    assert issubclass(ModuleMissingError, UnsupportedError)
    assert issubclass(UnsupportedError, library.ResponseError)
    for error in (LockError("no", "stock"), LockNotOwnedError("lost", b"stock"), LockCancelledError("no", "stock")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.args, again.lock_name) == (type(error), error.args, error.lock_name)
