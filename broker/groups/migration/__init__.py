"""Groups that change their protocol while their members stay (KIP-848, "Online Upgrade").

Pure. Called by the shell in `broker.groups`.
"""
