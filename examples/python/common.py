"""What the two workers share: the options, the events, and the ways in which a hold can end."""

import argparse
import sys
import uuid
from pathlib import Path

# The script that stands for the protected resource: it refuses a fence older than the newest it has seen.
RESOURCE = Path(__file__).parent.with_name("resource.lua").read_text()

DONE, FAILED, NOT_GRANTED, LOST = 0, 1, 2, 3

# The pause before a command is sent again after its connection broke.
PAUSE = 0.05

# The longest wait of one command. A server that is gone without a word is noticed after it.
SLICE = 2.0

# How long the server keeps the place in the queue while no connection waits at it. Longer than a reconnect takes, and
# short, because a worker that died delays those behind it by this.
GRACE = 5.0

# The reply to a command that waits for a slice comes within this.
WAITING_TIMEOUT = SLICE + 2


class Lost(Exception):
    """The lock is no longer held, or nobody knows."""


class Refused(Exception):
    """The resource has seen a newer fence."""


def options() -> argparse.Namespace:
    """Return the options of the command line, times in seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="redis://HOST:PORT of the server")
    parser.add_argument("--lock", required=True, help="the key of the lock")
    parser.add_argument("--resource", required=True, help="the key of the resource that the lock protects")
    parser.add_argument("--ttl", required=True, type=milliseconds, metavar="MS", help="the lease of the lock")
    parser.add_argument("--block", required=True, type=milliseconds, metavar="MS", help="how long to wait for the lock")
    parser.add_argument("--writes", required=True, type=int, metavar="N", help="how often to write, or to read")
    parser.add_argument("--pause", required=True, type=milliseconds, metavar="MS", help="the pause after each")
    parser.add_argument("--shared", action="store_true", help="take a shared lock, and read")
    parser.add_argument("--token", default=uuid.uuid4().hex, help="the owner's name (default: a UUID)")
    return parser.parse_args()


def milliseconds(text: str) -> float:
    """Parse milliseconds into seconds, which Python counts in."""
    return int(text) / 1000


def surely(ttl: float) -> float:
    """Return the part of a ttl that has not ended on the server either, whose clock may be faster by 1 %."""
    return ttl * 0.99 - 0.002


def in_ms(seconds: float) -> int:
    """Return seconds in the module's unit."""
    return int(seconds * 1000)


def acquiring(opt: argparse.Namespace, left: float) -> tuple[object, ...]:
    """Return the command that asks for the lock, and waits for it for a slice if there is time left."""
    command = "RWLOCK.RLOCK" if opt.shared else "LOCK.ACQUIRE"
    slice_ms = in_ms(min(left, SLICE))
    # BLOCK 0 would wait for ever.
    waiting = ("BLOCK", slice_ms, "KEEP", in_ms(GRACE)) if slice_ms > 0 else ()
    return command, opt.lock, opt.token, in_ms(opt.ttl), *waiting


def event(*words: object) -> None:
    """Print an event, in one piece whatever other threads print."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def complain(what: str, error: Exception) -> None:
    """Tell a person what went wrong and goes on."""
    print(f"{what}: {error!r}; trying again", file=sys.stderr, flush=True)
