"""The tests import redis-py. With CLIENT_LIBRARY=valkey they find valkey-py under its name."""

import importlib
import os
import pkgutil
import sys

if os.environ.get("CLIENT_LIBRARY") == "valkey":
    import valkey

    valkey.Redis, valkey.RedisCluster = valkey.Valkey, valkey.ValkeyCluster
    sys.modules["redis"] = valkey
    for module in pkgutil.walk_packages(valkey.__path__, "valkey."):
        if "_parsers.hiredis" not in module.name and "ocsp" not in module.name:
            sys.modules[module.name.replace("valkey", "redis", 1)] = importlib.import_module(module.name)
    asyncio = sys.modules["redis.asyncio"]
    asyncio.Redis, asyncio.RedisCluster = asyncio.Valkey, asyncio.ValkeyCluster  # type: ignore[attr-defined]
