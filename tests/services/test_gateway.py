from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
import obstore
import pytest

from tests.services import gateway_binary as binaries
from tests.services.fixtures import EVENT_EXCHANGE
from tests.services.gateway import AmqpEvents, Gateway
from tests.services.ports import is_free, lease_port
from tests.services.process import ServiceError, ServiceMissingError
from tests.support.processes import living

if TYPE_CHECKING:
    from tests.services.webhook import WebhookListener

pytestmark = pytest.mark.services

PUT_A_KEY = """
import sys, obstore
from obstore.store import S3Store
obstore.put(S3Store(sys.argv[1]), "key", b"from outside")
"""


async def test_objects_come_back_and_are_files(gateway: Gateway, bucket: str) -> None:
    store = gateway.store(bucket)
    for key in ("a/b c", "d"):
        obstore.put(store, key, b"hello")

    assert [entry["path"] for entry in obstore.list(store).collect()] == ["a/b c", "d"]
    assert obstore.get(store, "a/b c").bytes() == b"hello"
    assert (gateway.root / bucket / "a" / "b c").read_bytes() == b"hello"


def test_a_store_can_begin_at_a_prefix(gateway: Gateway, bucket: str) -> None:
    obstore.put(gateway.store(bucket, prefix="deep/er"), "key", b"")

    assert [entry["path"] for entry in obstore.list(gateway.store(bucket)).collect()] == ["deep/er/key"]


def test_a_program_finds_the_gateway_by_its_environment(gateway: Gateway, bucket: str) -> None:
    environment = {**os.environ, **gateway.environment()}
    subprocess.run([sys.executable, "-c", PUT_A_KEY, bucket], env=environment, check=True, timeout=60)

    assert obstore.get(gateway.store(bucket), "key").bytes() == b"from outside"


def test_a_bucket_cannot_be_created_twice_or_with_a_bad_name(gateway: Gateway, bucket: str) -> None:
    with pytest.raises(ServiceError, match=rf"bucket '{bucket}' was not created: 409 .*\n.*BucketAlreadyOwnedByYou"):
        gateway.create_bucket(bucket)
    with pytest.raises(ServiceError, match=r"bucket 'X_' was not created: 400 .*\n.*InvalidBucketName"):
        gateway.create_bucket("X_")


async def test_an_event_arrives_in_a_bound_queue(event_gateway: Gateway, amqp_url: str) -> None:
    event_gateway.create_bucket("bucket")
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("events")
        await queue.bind(EVENT_EXCHANGE, "#")

        obstore.put(event_gateway.store("bucket"), "some/key", b"12345")
        async with queue.iterator(no_ack=True) as messages:
            event = json.loads((await anext(messages)).body)

    (record,) = event["Records"]
    assert record["s3"]["bucket"]["name"] == "bucket"
    assert record["s3"]["object"]["key"] == "some/key"
    assert record["s3"]["object"]["size"] == 5
    assert record["userIdentity"]["PrincipalId"] == event_gateway.access_key


def test_an_event_is_posted(webhook_gateway: Gateway, webhook_listener: WebhookListener) -> None:
    webhook_gateway.create_bucket("bucket")
    obstore.put(webhook_gateway.store("bucket"), "some/key", b"12345")

    greeting, event = (json.loads(webhook_listener.bodies.get(timeout=60)) for _ in range(2))

    assert greeting["Event"] == "s3:TestEvent"
    assert event["Records"][0]["s3"]["object"]["key"] == "some/key"


@pytest.fixture
def own(gateway_binary: Path, tmp_path: Path) -> Gateway:
    """A gateway that has not started yet."""
    return Gateway(gateway_binary, tmp_path)


def test_objects_outlive_a_restart_and_a_kill(own: Gateway) -> None:
    with own:
        endpoint = own.endpoint
        own.create_bucket("bucket")
        store = own.store("bucket")
        etag = obstore.put(store, "key", b"hello")["e_tag"]

        own.restart()
        assert obstore.head(store, "key")["e_tag"] == etag
        own.kill()
        with pytest.raises(ServiceError, match="is not running"):
            own.stop()
        own.start()

        assert own.endpoint == endpoint
        assert obstore.head(store, "key")["e_tag"] == etag


def test_nothing_is_left_after_the_context(own: Gateway) -> None:
    with own:
        pid, port = own.pid, int(own.address.rpartition(":")[2])
        assert living(pid)
        assert not is_free(port)

    assert not living(pid)
    assert is_free(port)


def test_a_file_system_without_attributes_gets_a_sidecar(
    own: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.services.gateway.keeps_attributes", lambda _: False)

    with own:
        own.create_bucket("bucket")
        etag = obstore.put(own.store("bucket"), "key", b"hello")["e_tag"]
        assert obstore.head(own.store("bucket"), "key")["e_tag"] == etag

    assert not os.listxattr(own.root / "bucket" / "key")
    assert list((tmp_path / "sidecar").rglob("*etag*"))


def test_a_taken_port_is_given_up_for_another(own: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = lease_port()
    leases = iter([taken])
    monkeypatch.setattr("tests.services.gateway.lease_port", lambda: next(leases, None) or lease_port())

    with socket.create_server(("127.0.0.1", taken.number)), own:
        assert own.address != f"127.0.0.1:{taken.number}"
        own.create_bucket("bucket")


def test_a_gateway_that_cannot_start_says_why(gateway_binary: Path, tmp_path: Path) -> None:
    lease = lease_port()
    nobody = AmqpEvents(f"amqp://guest:guest@127.0.0.1:{lease.number}/", EVENT_EXCHANGE)

    with (
        pytest.raises(ServiceError, match=r"versitygw ended while starting\n(.*\n)*.*refused"),
        Gateway(gateway_binary, tmp_path, events=nobody),
    ):
        pass
    lease.release()


def test_a_machine_without_go_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ServiceMissingError, match=r"versitygw v\S+ is not at \S+, and no go is in PATH"):
        binaries.installed_gateway()


def test_a_refused_build_is_told_in_the_words_of_the_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = tmp_path / "go"
    refusing.write_text("#!/bin/sh\necho detail >&2\necho 'proxy: 403 Forbidden' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    with pytest.raises(ServiceMissingError, match=r"v\S+: \S+/go install \S+ was refused: proxy: 403 Forbidden"):
        binaries.installed_gateway()
    assert [file.name for file in binaries.cache_directory().iterdir()] == ["build.lock"]


def test_a_build_is_moved_into_place_and_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    building = tmp_path / "go"
    building.write_text(f'#!/bin/sh\necho built >> {tmp_path}/calls\necho "$1 $2" > "$GOBIN/versitygw"\n')
    building.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    binary = binaries.installed_gateway()

    assert binaries.installed_gateway() == binary
    assert binary.read_text() == f"install {binaries.PACKAGE}@{binaries.VERSION}\n"
    assert (tmp_path / "calls").read_text() == "built\n"


def test_tests_that_miss_the_gateway_are_skipped_and_counted(tmp_path: Path) -> None:
    this = f"{Path(__file__)}::{test_objects_come_back_and_are_files.__name__}"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    options = ["-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, this], env=environment, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0
    assert "1 skipped" in run.stdout
    assert "1 tests did not run: service missing" in run.stdout
