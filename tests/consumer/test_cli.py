from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from pydantic import SecretStr

from blobmap.errors import RefusedError
from consumer import cli, commands
from consumer.telemetry import configure_logs
from tests.support.amqp import bench
from tests.support.consumer_process import consumer

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = Path(__file__).parents[2] / "config"


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


async def test_faults_of_the_configuration_are_lines_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[source]\ndialect = "x"\n')
    async with consumer(tmp_path / "process", "run", "--config", str(tmp_path / "c.toml")) as process:
        assert await process.end() == 2
    lines = process.err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("blobmap-consumer: c.toml: ") for line in lines)


@pytest.mark.parametrize("words", [[], ["fly"], ["run", "--fast"], ["--conf", "x", "run"]])
def test_wrong_usage_is_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    assert "usage: blobmap-consumer" in capsys.readouterr().err


def test_options_may_stand_before_or_after_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--config", str(tmp_path / "x"), "run"], ["run", "--config", str(tmp_path / "x")]):
        assert cli.main(words) == 2
        assert "No such file" in capsys.readouterr().err


def test_a_traceback_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--config", "absent.toml"]) == 2
    assert capsys.readouterr().err == "blobmap-consumer: absent.toml: No such file or directory\n"
    assert cli.main(["-v", "run", "--config", "absent.toml"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "blobmap-consumer: interrupted\n"),
        (RefusedError("no"), 3, "blobmap-consumer: no\n"),
        (ZeroDivisionError("oh"), 70, "blobmap-consumer: ZeroDivisionError: oh (a bug of ours; -v shows where)\n"),
    ],
)
def test_how_commands_end(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(commands, "load_settings", fail)
    assert cli.main(["run"]) == code
    assert capsys.readouterr().err == line


def test_without_uvloop_it_runs_on_asyncio(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert cli.main(["demo", "--dir", str(tmp_path / "demo")]) == 0


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "consumer"], [str(Path(sys.executable).with_name("blobmap-consumer"))]]
)
def test_both_ways_to_call_it(command: list[str]) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("blobmap-consumer 0.")


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("structlog", "blobmap-consumer: structlog is not installed: pip install 'blobmap[consumer]'\n"),
        ("consumer.daemon", "ModuleNotFoundError"),
    ],
)
def test_a_library_that_is_not_installed(missing: str, says: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from consumer.cli import main; sys.exit(main(['run']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert says in done.stderr


# --- setup


@pytest.mark.services
async def test_setup_declares_everything(amqp_url: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text((CONFIG / "minimal.toml").read_text().replace("amqp://guest:guest@127.0.0.1:5672/", amqp_url))
    for _ in range(2):
        async with consumer(tmp_path / "process", "setup", "--config", str(config)) as process:
            assert await process.end() == 0
            assert "blobmap-consumer: queue blobmap.events\n" in process.err
    async with bench(amqp_url) as at:
        for queue in ("blobmap.events", "blobmap.objects", "blobmap.flags", "blobmap.dead"):
            assert await at.consumers(queue) == 0
        await at.publish([b"x"], exchange="s3.events", routing_key="any")


@pytest.mark.services
async def test_setup_names_a_queue_with_other_arguments(amqp_url: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text((CONFIG / "minimal.toml").read_text().replace("amqp://guest:guest@127.0.0.1:5672/", amqp_url))
    async with bench(amqp_url) as at:
        await at.channel.queue_declare("blobmap.objects", durable=True)
    async with consumer(tmp_path / "process", "setup", "--config", str(config)) as process:
        assert await process.end() == 2
    assert process.err == (
        "blobmap-consumer: queue 'blobmap.objects' exists with x-queue-type none, and must have 'quorum': delete it, or"
        " use another name\n"
    )


def test_setup_without_a_broker_has_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[embedded]\npath = "x"\n[source]\ndialect = "minio"\n[[bucket]]\nname = "b"\nmanifests = "/m"\n')
    assert cli.main(["setup", "--config", str(config)]) == 2
    assert "setup needs [amqp]" in capsys.readouterr().err


# --- logs


def test_logs_are_json_and_hide_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(verbose=False)
    structlog.get_logger().info("something", hidden=SecretStr("word"), count=3)
    structlog.get_logger().debug("hidden")
    logging.getLogger("aiormq.connection").error("chatter")
    logging.getLogger("other").warning("theirs: %s", 7)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [("something", "info"), ("theirs: 7", "warning")]
    assert lines[0]["hidden"] == "**********"
    assert lines[0]["count"] == 3


def test_logs_are_for_people_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logs(verbose=True)
    structlog.get_logger().debug("something", count=3)
    shown = capsys.readouterr().err
    assert "something" in shown
    assert not shown.startswith("{")


def test_quiet_logs_are_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(verbose=False, quiet=True)
    structlog.get_logger().info("something")
    structlog.get_logger().warning("more")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["more"]
