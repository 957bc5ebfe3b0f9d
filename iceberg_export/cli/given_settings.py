"""The settings that the arguments of a command say, by themselves or by the file that they name."""

import argparse

from iceberg_export.settings import Settings, parse


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Returns all settings. Raises SettingsError."""
    assignments = list(arguments.set)
    if arguments.agent:
        assignments.append(f"agent={arguments.agent}")
    if master := getattr(arguments, "master", None):
        assignments.append(f"spark.master={master}")
    return parse(data=arguments.data, config=arguments.config, assignments=assignments)
