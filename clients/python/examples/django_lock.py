"""Django: `cache.lock` and a view that holds a lock. Run it beside a server with the module: REDIS_URL=redis://…

It prints

paid 40 times, 40 different answers
the fence is above 0: True
somebody else gets it: False
"""

import os
from concurrent.futures import ThreadPoolExecutor

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"),
            "OPTIONS": {
                "CLIENT_CLASS": "redis_lock_client.contrib.django_redis.LockClient",
                "LOCK_OPTIONS": {"timeout": 30, "grace": 2},
            },
        }
    },
)
django.setup()

from django.core.cache import cache  # noqa: E402
from django.test import Client  # noqa: E402

from redis_lock_client.contrib.django_redis import locked  # noqa: E402


@locked("invoice:{number}", blocking_timeout=10)
def pay(request: HttpRequest, number: int) -> HttpResponse:
    """Read, change and write, which two requests must not do at the same time."""
    paid = cache.get(f"paid:{number}", 0)
    cache.set(f"paid:{number}", paid + 1)
    return HttpResponse(f"{paid + 1}")


urlpatterns = [path("pay/<int:number>", pay)]


def main() -> None:
    """Pay one invoice by eight requests at the same time, then look at the lock of the cache."""
    cache.clear()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: Client().get("/pay/7").content.decode(), range(40)))
    print("paid", cache.get("paid:7"), "times,", len(set(answers)), "different answers")

    with cache.lock("nightly", blocking=False) as lock:
        print("the fence is above 0:", lock.fence > 0)
        print("somebody else gets it:", cache.lock("nightly", blocking=False).acquire())


if __name__ == "__main__":
    main()
