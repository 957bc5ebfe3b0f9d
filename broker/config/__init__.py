"""Settings: of the agent, of topics, of groups, of tables; names, types, defaults and checks.

Pure: words in, frozen values out. Imports nothing else of this package, so that everything may be
configured. `reference` writes the page of all settings. Called by everybody.
"""
