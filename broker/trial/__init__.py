"""What is made for trying security out: an authority, certificates of agents, and clients' settings.

It touches files of the folders that it is given, and settings. Called by `broker.cli`, for `frazil dev
--secure` and `frazil certificates`.
"""
