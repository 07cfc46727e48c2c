"""The tests of redis-py's suite that do not apply to a lock of the module, and why. PEER-SUITE.md quotes them."""

import os

GET = "reads the lock's value by GET: the key holds a lock, not a string, and GET answers WRONGTYPE"
TTL = "looks for a key without ttl (TTL -1): the module has no hold without deadline, it is 2^48 ms"
SLEEPS = "counts the sleeps of a polling loop on a clock of its own: the wait is in the server, nothing sleeps here"

# Where the value or the ttl is all that stands in the way, and `translation.py` asks for it in the module's terms.
TRANSLATED = {
    "tests/test_lock": f"{GET}; {TTL}",
    "tests/test_lock_token": f"{GET}; {TTL}",
    "tests/test_lock_token_thread_local_false": f"{GET}; {TTL}",
    "tests/test_context_manager": GET,
    "test_asyncio/test_lock": f"{GET}; {TTL}",
    "test_asyncio/test_lock_token": f"{GET}; {TTL}",
    "test_asyncio/test_lock_token_thread_local_false": f"{GET}; {TTL}",
    "test_asyncio/test_context_manager": GET,
}

NEVER = {
    "tests/test_blocking_timeout": SLEEPS,
    "tests/test_context_manager_blocking_timeout": SLEEPS,
    "test_asyncio/test_blocking_timeout": SLEEPS,
}

NOT_APPLYING = NEVER if os.environ.get("PEER_SUITE_TRANSLATED") else NEVER | TRANSLATED
