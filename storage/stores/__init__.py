"""Object stores: the port (`object_store`), its adapters, and the way from a URL to one of them.

The adapters touch disks and networks; the port, `adapter_rules` and `retry_policy` are pure. Nobody
but `open_store` names an adapter. `retry` makes a call again that failed. Called by whoever puts,
gets, lists or deletes objects.
"""
