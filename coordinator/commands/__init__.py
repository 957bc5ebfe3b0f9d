"""Commands of the metadata log: what they say, how they are written as bytes, and their digest.

Pure, and without state: the tables give commands their meaning. `declaration` says what each command
and each outcome is, `layout` how its fields lie in bytes. Called by everything that
proposes, and by the replica, which reads them.
"""
