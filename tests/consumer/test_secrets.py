"""No password and no key is in anything that the program says, whatever is wrong, and with `-v` above all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.consumer_process import consumer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.rabbitmq import RabbitMQ

SECRET = "hunter2-geheim"  # noqa: S105 - of nobody
NO_STORE = """
[manifests]
give_up_s = 0.1
[s3]
endpoint = "http://127.0.0.1:1"
allow_http = true
region = "r"
access_key_id = "k"
"""
NOWHERE = "port = 1\ngive_up_s = 0.1\n"

# What is configured, the exit code, and what is said of it.
WRONG = {
    "unescaped": (f'[amqp]\nurl = "amqp://u:{SECRET}#@127.0.0.1/"\n', 2, "must be percent-encoded"),
    "no scheme": (f'[amqp]\nurl = "u:{SECRET}@127.0.0.1"\n', 2, "must begin with amqp://"),
    "no table": (f'amqp = "amqp://u:{SECRET}@127.0.0.1/"\n', 2, "amqp: must be a table"),
    "another kind": (f'[amqp]\npassword = ["{SECRET}"]\n', 2, "amqp.password: a valid string"),
    "misspelt": (f'[amqp]\npasword = "{SECRET}"\n', 2, "the nearest one is password"),
    "not TOML": (f"[amqp]\npassword = {SECRET}\n", 2, "not TOML"),
    "nobody there": (f'[amqp]\npassword = "{SECRET}"\n{NOWHERE}', 3, "Connection refused"),
    "nobody at a URL": (f'[amqp]\nurl = "amqp://u:{SECRET}@127.0.0.1:1/"\ngive_up_s = 0.1\n', 3, "Connection refused"),
    "no store": (f'{NO_STORE}secret_access_key = "{SECRET}"\n[amqp]\n{NOWHERE}', 3, "s3://elsewhere/manifests"),
}


async def said(directory: Path, text: str, *, manifests: str) -> tuple[int, str]:
    """Runs the daemon with -v; its exit code and everything that it said."""
    config = directory.with_suffix(".toml")
    bucket = f'[source]\ndialect = "versitygw"\n[[bucket]]\nname = "b"\nmanifests = "{manifests}"\n'
    config.write_text(text + bucket)
    async with consumer(directory / "process", "-v", "run", "--config", str(config)) as process:
        code = await process.end()
        return code, process.out + process.err


@pytest.mark.parametrize("name", WRONG)
async def test_r13_what_is_wrong_is_said_without_the_secret(tmp_path: Path, name: str) -> None:
    text, code, about = WRONG[name]
    (tmp_path / "manifests").mkdir()
    manifests = "s3://elsewhere/manifests" if name == "no store" else str(tmp_path / "manifests")
    got, output = await said(tmp_path / "run", text, manifests=manifests)
    assert got == code
    assert about in output
    assert "Traceback" in output, "as -v asks for"
    assert SECRET not in output


async def test_keys_in_the_url_of_a_store_are_refused_and_not_shown(tmp_path: Path) -> None:
    got, output = await said(tmp_path / "run", f"[amqp]\n{NOWHERE}", manifests=f"s3://key:{SECRET}@bucket/x")
    assert got == 2
    assert "manifests: must have no keys in it" in output
    assert SECRET not in output


@pytest.mark.services
async def test_r13_a_wrong_password_is_refused_and_not_shown(tmp_path: Path, rabbitmq: RabbitMQ) -> None:
    (tmp_path / "manifests").mkdir()
    as_url = f'[amqp]\nurl = "amqp://guest:{SECRET}@127.0.0.1:{rabbitmq.port}/"\n'
    as_keys = f'[amqp]\nport = {rabbitmq.port}\nuser = "guest"\npassword = "{SECRET}"\n'
    answers = await asyncio.gather(
        *(
            said(tmp_path / name, text, manifests=str(tmp_path / "manifests"))
            for name, text in (("url", as_url), ("keys", as_keys))
        )
    )
    for code, output in answers:
        assert code == 3
        assert "the broker refuses user or password" in output
        assert "Traceback" in output
        assert SECRET not in output
