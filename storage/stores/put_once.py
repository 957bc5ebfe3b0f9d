"""Looks whether a store keeps what it has: a PUT under a key that is taken must not replace what is there.

Objects are written once, and the log names them by key alone. A server, or a proxy before it, that passes over
If-None-Match lets a PUT that comes late, by whoever was given up, replace an object that is named. No reader could
tell. So such a store is refused before anything is written to it.
"""

from storage.stores.object_store import ObjectExistsError, ObjectStore, StoreRefusedError


async def check_puts_once(store: ObjectStore, key: str, token: bytes) -> None:
    """Put two contents under `key`, which stays taken. `token`: bytes that nobody else has put there.

    Raises StoreRefusedError when the store takes both, and StoreError.
    """
    for content in (b"1 " + token, b"2 " + token):
        try:
            await store.put_new(key, [content])
        except ObjectExistsError:
            return
    raise StoreRefusedError(
        "it replaces objects that are there: it passes over If-None-Match, by which an object is put once;"
        " a PUT that comes late would destroy records (use a server that has conditional writes, as"
        " Amazon S3 and MinIO have, and no proxy that drops the header)"
    )
