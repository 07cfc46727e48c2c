"""What the second run changes in redis-py's test files: it asks for a lock's token and ttl in the module's terms.

Each line is (what is replaced, by what, how often in a file).
"""

from pathlib import Path

HELPERS = """

def _first_token(info):
    # A map by RESP3, a flat array by RESP2.
    holder = (info[b"holders"] if isinstance(info, dict) else info[3])[0]
    return holder[b"token"] if isinstance(holder, dict) else holder[1]


def _holder(client, key):
    return _first_token(client.execute_command("LOCK.INFO", key))


async def _async_holder(client, key):
    return _first_token(await client.execute_command("LOCK.INFO", key))
"""

SYNC = [
    ('r.get("foo") == lock.local.token', '_holder(r, "foo") == lock.local.token', 2),
    ('r.get("foo") == b"test"', '_holder(r, "foo") == b"test"', 1),
    ('r.ttl("foo") == -1', 'r.ttl("foo") > 280_000_000_000', 2),
]
ASYNC = [
    ('r.get("foo") == lock.local.token', '_async_holder(r, "foo") == lock.local.token', 2),
    ('r.get("foo") == b"test"', '_async_holder(r, "foo") == b"test"', 1),
    ('r.ttl("foo") == -1', 'r.ttl("foo") > 280_000_000_000', 2),
]


def translate(tests: Path) -> None:
    """Change the two files in place. One that is not as expected is an error."""
    for file, changes in ((tests / "test_lock.py", SYNC), (tests / "test_asyncio" / "test_lock.py", ASYNC)):
        text = file.read_text()
        for old, new, times in changes:
            assert text.count(old) == times, f"{file}: {times} times {old}"
            text = text.replace(old, new)
        file.write_text(text + HELPERS)
