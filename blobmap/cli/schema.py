"""Print the JSON Schema of a manifest."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from blobmap.cli.output import write

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: there is one schema."""
    del parser


def run(args: argparse.Namespace) -> int:
    """Print the schema as it is shipped."""
    del args
    write(resources.files("blobmap").joinpath("manifest-v3.schema.json").read_text(encoding="utf-8"))
    return 0
