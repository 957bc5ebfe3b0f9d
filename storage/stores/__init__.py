"""Object stores: the port (`object_store`), its adapters, and the way from a URL to one of them.

The adapters touch disks and networks; the port and `adapter_rules` are pure. Nobody but
`open_store` names an adapter. Called by whoever puts, gets, lists or deletes objects.
"""
