"""Logs: one line for each change of state, on standard error, JSON for programs and colours for a terminal."""

from __future__ import annotations

import logging
import sys

import structlog

# They tell of every try to reach a broker or a client, and of frames; what matters comes to us as errors.
_CHATTY = ("aiormq", "aiohttp", "asyncio")


def configure_logs(*, verbose: bool, quiet: bool = False) -> None:
    """Sends our logs, and the warnings of the libraries, to standard error.

    A secret is a `SecretStr` wherever it goes, and shows as stars.

    Args:
        verbose: debug lines of ours, warnings of the libraries.
        quiet: warnings only.
    """
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if sys.stderr.isatty():
        renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer()
    else:
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer(default=str)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING if verbose else logging.CRITICAL)
