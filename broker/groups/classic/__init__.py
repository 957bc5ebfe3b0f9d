"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup as decisions.

Pure. Called by the shell in `broker.groups`, and by `broker.groups.migration.protocol_change`.
"""
