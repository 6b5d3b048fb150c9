from __future__ import annotations

import json
from pathlib import Path

import pytest

from blobmap.errors import UsageError
from blobmap.policy import parse_size
from consumer.address import Address
from consumer.configuration import load_settings
from consumer.settings import Settings

CONFIG = Path(__file__).parents[2] / "config"

MINIMAL = """
[amqp]
url = "amqp://h/"
[source]
dialect = "versitygw"
[[bucket]]
name = "cordex"
manifests = "s3://m/cordex"
"""

# Every key of the published configuration, as its description shows them.
PUBLISHED = """
[amqp]
url = "amqp://guest:guest@127.0.0.1:5672/"
[source]
kind = "amqp"
dialect = "versitygw"
exchange = "s3.events"
queue = "blobmap.events"
prefetch = 2000
[[bucket]]
name = "cordex"
data = "s3://cordex"
manifests = "s3://waterpark-blobmap/cordex"
[bucket.s3]
region = "eu-1"
[bucket.policy]
t_max = "1TB"
[s3]
endpoint = "http://127.0.0.1:7070"
anonymous = true
[sink]
kind = "amqp"
batch_objects = 500
batch_ms = 100
[[mover]]
name = "tape-a"
buckets = ["cordex"]
[policy]
t_max = "100GiB"; t_hot = "16MiB"; t_aux = "1GiB"
[manifests]
refresh_s = 60
[flags]
settle_s = 600
settle_max_s = 86400
reflag_s = 60
partition = true
[reconcile]
every_s = 21600
[principals]
ignore = ["svc-tape"]
[http]
host = "127.0.0.1"; port = 8642; token = ""; max_body = 1048576
""".replace("; ", "\n")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOBMAP_AMQP__PASSWORD", raising=False)


def load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "consumer.toml"
    file.write_text(text)
    return load_settings(file)


def faults(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("name", ["consumer.toml", "minimal.toml"])
def test_the_shipped_files_load(name: str) -> None:
    assert load_settings(CONFIG / name).bucket[0].name == "cordex"


def test_the_shipped_file_shows_the_defaults() -> None:
    """Whatever is not said to be an example is what holds without it."""
    full, minimal = (load_settings(CONFIG / name) for name in ("consumer.toml", "minimal.toml"))
    for section in ("policy", "topology", "manifests", "flags", "reconcile", "grace_s"):
        assert getattr(full, section) == getattr(minimal, section), section
    assert full.sink.model_copy(update={"kind": None}) == minimal.sink
    assert full.source.model_copy(update={"kind": None}) == minimal.source
    assert full.amqp is not None
    assert minimal.amqp is not None
    assert full.amqp.address() == minimal.amqp.address()


def test_the_shipped_file_names_every_key() -> None:
    text = (CONFIG / "consumer.toml").read_text()
    schema = Settings.model_json_schema()
    keys = {key for section in schema["$defs"].values() for key in section["properties"]}
    named_by_header = {"s3", "policy"}
    assert {key for key in keys - named_by_header if f"{key} =" not in text} == set()
    assert {name for name in schema["properties"] if f"[{name}]" not in text and f"{name} =" not in text} == set()


def test_every_published_key_loads(tmp_path: Path) -> None:
    settings = load(tmp_path, PUBLISHED)
    assert settings.bucket[0].policy is not None
    assert settings.bucket[0].policy.t_max == "1TB"
    assert settings.principals.ignore == {"svc-tape"}
    assert settings.http is not None
    assert settings.http.max_body == 1_048_576


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOBMAP_SOURCE__PREFETCH", "7")
    monkeypatch.setenv("BLOBMAP_GRACE_S", "3")
    monkeypatch.setenv("BLOBMAP_MOVER", json.dumps([{"name": "a", "buckets": ["cordex"]}]))
    settings = load(tmp_path, MINIMAL)
    assert (settings.source.prefetch, settings.source.dialect, settings.grace_s) == (7, "versitygw", 3)
    assert settings.mover[0].name == "a"


def test_the_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOBMAP_EMBEDDED__PATH", "/data/x.sqlite")
    monkeypatch.setenv("BLOBMAP_SOURCE__DIALECT", "minio")
    monkeypatch.setenv("BLOBMAP_BUCKET", json.dumps([{"name": "b", "manifests": "/m"}]))
    settings = load_settings(None)
    assert settings.embedded is not None
    assert settings.embedded.path == Path("/data/x.sqlite")


def test_a_secret_can_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p#a/s:s%w@rd?+ \n")
    monkeypatch.setenv("BLOBMAP_AMQP__PASSWORD_FILE", str(secret))
    settings = load(tmp_path, MINIMAL.replace('url = "amqp://h/"', 'host = "h"\nuser = "ops@site"\nvhost = "/prod"'))
    assert settings.amqp is not None
    assert settings.amqp.address() == Address("h", 5672, "ops@site", "p#a/s:s%w@rd?+ ", "/prod")
    assert "p#a/s:s%w@rd?+ " not in repr(settings)


def test_a_secret_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOBMAP_HTTP__TOKEN_FILE", str(tmp_path / "absent"))
    (fault,) = faults(tmp_path, MINIMAL)
    assert fault.startswith("BLOBMAP_HTTP__TOKEN_FILE: ")
    assert "No such file" in fault


def test_a_secret_given_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOBMAP_HTTP__TOKEN_FILE", str(CONFIG / "minimal.toml"))
    monkeypatch.setenv("BLOBMAP_HTTP__TOKEN", "x")
    (fault,) = faults(tmp_path, MINIMAL)
    assert "only one of them can hold" in fault


def test_keys_for_a_broker_with_tls(tmp_path: Path) -> None:
    settings = load(tmp_path, MINIMAL.replace('url = "amqp://h/"', 'host = "h"\ntls_ca = "/ca.pem"'))
    assert settings.amqp is not None
    assert settings.amqp.address() == Address("h", 5671, "guest", "guest", "/", tls=True, tls_ca=Path("/ca.pem"))


def test_every_fault_is_told_at_once_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOBMAP_SINK__BATCH_MS", "soon")
    text = MINIMAL.replace("versitygw", "aw").replace("[amqp]", "[amqp]\nport = 70000") + '\n[polcy]\nt_max = "1"\n'
    with pytest.raises(UsageError) as no_size:
        parse_size("big")
    found = faults(tmp_path, text + '[policy]\nt_max = "big"\n[sink]\nbatch_object = 3\n')
    assert sorted(found) == sorted(
        [
            "consumer.toml: amqp.port: given 70000: less than 65536",
            "consumer.toml: source.dialect: given 'aw': 'versitygw', 'minio', 'ceph' or 'aws'",
            "consumer.toml: polcy: unknown key; the nearest one is policy",
            "consumer.toml: sink.batch_object: unknown key; the nearest one is batch_objects",
            f"consumer.toml: policy.t_max: {no_size.value}",
            "BLOBMAP_SINK__BATCH_MS: given 'soon': a valid integer, unable to parse string as an integer",
            "consumer.toml: amqp.url and amqp.port are both given: the URL says it all",
        ]
    )


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert faults(tmp_path, "") == [
        "consumer.toml: source: is missing",
        "consumer.toml: bucket: is missing",
        "consumer.toml: neither [amqp] nor [embedded] given: it must be one of them",
    ]


def test_an_unknown_key_with_no_near_one(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, MINIMAL + "[reconcile]\nqqq = 1\n")
    assert fault == "consumer.toml: reconcile.qqq: unknown key; known are every_s"


def test_an_unescaped_url_is_refused_without_being_shown(tmp_path: Path) -> None:
    url = "amqp://ops@site:p#a/s:s%w@rd?+ @127.0.0.1:5672//prod/zarr"
    (fault,) = faults(tmp_path, MINIMAL.replace("amqp://h/", url))
    assert fault.startswith("consumer.toml: amqp.url: the user in the URL must be percent-encoded")
    assert "rd?+" not in fault


def test_no_fault_shows_a_secret(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, MINIMAL + "[http]\ntoken = 12345\n")
    assert "12345" not in fault
    assert "token" in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            MINIMAL + '[embedded]\npath = "x"\n',
            "both [amqp] and [embedded] given: it must be one of them",
        ),
        (MINIMAL + '[[bucket]]\nname = "cordex"\nmanifests = "/x"\n', "bucket 'cordex' is configured 2 times"),
        (
            MINIMAL + '[[bucket]]\nname = "b"\nmanifests = "s3://m/cordex/deeper"\n',
            "bucket 'b': manifests 's3://m/cordex/deeper/' and 's3://m/cordex/' of bucket 'cordex' share a root",
        ),
        (
            MINIMAL + '[[bucket]]\nname = "b"\nmanifests = "s3://m/cordex/"\n',
            "bucket 'b': manifests 's3://m/cordex/' and 's3://m/cordex/' of bucket 'cordex' share a root",
        ),
        (
            MINIMAL + '[[bucket]]\nname = "b"\nmanifests = "s3://b"\n',
            "bucket 'b': data and manifests are one place: manifests need a root of their own",
        ),
        (
            MINIMAL + '[[bucket]]\nname = "b"\nmanifests = "/b"\n[[mover]]\nname = "a"\nbuckets = ["cordex"]\n',
            "no mover lists bucket 'b'",
        ),
        (
            MINIMAL + '[[mover]]\nname = "a"\nbuckets = ["cordex", "x"]\n',
            "mover 'a' lists bucket 'x', which is none of cordex",
        ),
        (
            MINIMAL + '[[mover]]\nname = "a"\nbuckets = ["cordex"]\n[[mover]]\nname = "a"\nbuckets = ["cordex"]\n',
            "mover 'a' is configured 2 times",
        ),
        (
            MINIMAL.replace('dialect = "versitygw"', 'dialect = "versitygw"\nkind = "webhook"'),
            "source.spool is missing: where [amqp] has the broker, events that are posted wait for it in a file",
        ),
        (
            MINIMAL.replace('dialect = "versitygw"', 'dialect = "versitygw"\nspool = "x"'),
            "source.spool goes with [amqp] and source.kind 'webhook' only",
        ),
        (
            MINIMAL.replace('[amqp]\nurl = "amqp://h/"', '[embedded]\npath = "x"').replace(
                "dialect", 'spool_max = "1GiB"\ndialect'
            ),
            "source.spool_max goes with [amqp] and source.kind 'webhook' only",
        ),
        (
            MINIMAL.replace('[amqp]\nurl = "amqp://h/"', '[embedded]\npath = "x"') + '[sink]\nkind = "amqp"\n',
            "sink.kind 'amqp' does not go with [embedded]",
        ),
        (
            MINIMAL.replace('[amqp]\nurl = "amqp://h/"', '[embedded]\npath = "x"').replace(
                "dialect", 'kind = "amqp"\ndialect'
            ),
            "source.kind 'amqp' does not go with [embedded]",
        ),
    ],
)
def test_faults_between_sections(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, text) == [f"consumer.toml: {fault}"]


@pytest.mark.parametrize(
    "text",
    [
        "mover = 3\n" + MINIMAL,
        "mover = [3]\n" + MINIMAL,
        MINIMAL + "[[mover]]\nbuckets = 3\n",
        MINIMAL.replace("[source]", "[[source]]"),
        MINIMAL.replace('name = "cordex"', "name = 3"),
        MINIMAL.replace('manifests = "s3://m/cordex"', ""),
        MINIMAL.replace("[[bucket]]", "[bucket]"),
    ],
)
def test_a_wrong_shape_is_told_and_no_more(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text)


def test_roots_of_neighbours_are_not_nested(tmp_path: Path) -> None:
    assert len(load(tmp_path, MINIMAL + '[[bucket]]\nname = "b"\nmanifests = "s3://m/cordex2"\n').bucket) == 2


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("BLOBMAP_SORCE__QUEUE", "BLOBMAP_SOURCE__QUEUE"),
        ("BLOBMAP_AMQP_URL", "BLOBMAP_AMQP__URL"),
        ("BLOBMAP_X__Y", None),
    ],
)
def test_unknown_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, close: str | None) -> None:
    monkeypatch.setenv(name, "1")
    (fault,) = faults(tmp_path, MINIMAL)
    assert fault == f"{name}: unknown variable" + (f"; the nearest one is {close}" if close else "")


def test_variables_of_other_programs_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOBMAP_TEST_HYPOTHESIS", "ci")
    monkeypatch.setenv("BLOBMAP_DATA", "s3://x")
    assert load(tmp_path, MINIMAL).source.dialect == "versitygw"


def test_a_list_that_is_not_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOBMAP_MOVER", "tape-a")
    (fault,) = faults(tmp_path, MINIMAL)
    assert "mover" in fault
    assert fault.endswith("a list has to be JSON")


@pytest.mark.parametrize(("content", "says"), [(b"[amqp", "not TOML"), (b"\xff", "not TOML")])
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        load_settings(file)


def test_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_settings(tmp_path / "absent.toml")
