"""Help with colours, by rich-argparse. Only imported where somebody looks."""

from __future__ import annotations

from rich_argparse import RawDescriptionRichHelpFormatter


class ColouredHelp(RawDescriptionRichHelpFormatter):
    """Help in which `s3://bucket[/prefix]` is text, not markup."""

    help_markup = False
    text_markup = False
