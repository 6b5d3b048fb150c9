"""The published configuration, as types: every key, what it may be, and what it is when nobody says anything.

How a file and the environment become these types is `configuration`'s; what a key does is told by whoever reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from blobmap.errors import UsageError
from blobmap.policy import parse_size
from consumer.address import Address, parse_address

Seconds = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


def _size(text: str) -> str:
    try:
        parse_size(text)
    except UsageError as error:
        raise ValueError(str(error)) from error
    return text


Size = Annotated[str, AfterValidator(_size)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Amqp(_Section):
    """The broker: a URL, or its parts as separate keys."""

    url: SecretStr | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    user: str = "guest"
    password: SecretStr = SecretStr("guest")
    vhost: str = "/"
    tls_ca: Path | None = None
    give_up_s: Seconds = 300.0

    @field_validator("url")
    @classmethod
    def _readable(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            _as_value_error(url.get_secret_value())
        return url

    def address(self) -> Address:
        """Where the broker is and who we are there."""
        if self.url is not None:
            return parse_address(self.url.get_secret_value(), tls_ca=self.tls_ca)
        tls = self.tls_ca is not None
        return Address(
            host=self.host,
            port=self.port or (5671 if tls else 5672),
            user=self.user,
            password=self.password.get_secret_value(),
            vhost=self.vhost,
            tls=tls,
            tls_ca=self.tls_ca,
        )


def _as_value_error(url: str) -> None:
    try:
        parse_address(url)
    except UsageError as error:
        raise ValueError(str(error)) from error


class Embedded(_Section):
    """Everything in one process and one file, without a broker."""

    path: Path


class Source(_Section):
    """Where notifications come from."""

    kind: Literal["amqp", "webhook"] | None = None
    dialect: Literal["versitygw", "minio", "ceph", "aws"]
    exchange: str = "s3.events"
    queue: str = "blobmap.events"
    spool: Path | None = None
    spool_max: Size = "1GiB"
    prefetch: Annotated[int, Field(gt=0, lt=65536)] = 2000


class S3(_Section):
    """How to reach an S3 server; what is not given comes from the environment (`AWS_*`)."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    anonymous: bool = False
    allow_http: bool = False
    virtual_hosted: bool = False


class Policy(_Section):
    """Thresholds of the first cut of a store."""

    t_max: Size = "100GiB"
    t_hot: Size = "16MiB"
    t_aux: Size = "1GiB"


def _without_keys(url: str) -> str:
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValueError("must have no keys in it; they are access_key_id and secret_access_key of [s3]")
    return url


Place = Annotated[str, Field(min_length=1), AfterValidator(_without_keys)]


class Bucket(_Section):
    """One bucket of the gateway, and where its manifests lie."""

    name: Annotated[str, Field(min_length=1)]
    manifests: Place
    data: Place | None = None
    s3: S3 | None = None
    policy: Policy | None = None


class Sink(_Section):
    """Where object records go."""

    kind: Literal["amqp", "ndjson"] | None = None
    path: str = "-"
    batch_objects: Annotated[int, Field(gt=0)] = 500
    batch_ms: Annotated[int, Field(gt=0)] = 100
    patience_s: Seconds = 600.0


class Mover(_Section):
    """A program that writes tapes: a durable queue of its own."""

    name: Name
    buckets: tuple[str, ...]


class Topology(_Section):
    """Names at the broker that no other section has."""

    objects: str = "blobmap.objects"
    flags: str = "blobmap.flags"
    dead: str = "blobmap.dead"
    journal: str = "blobmap.journal"
    tasks: str = "blobmap.tasks"
    alerts: str = "blobmap.alerts"
    manifests: str = "blobmap.manifests"


class Manifests(_Section):
    """How manifests are kept fresh."""

    refresh_s: Seconds = 60.0
    give_up_s: Seconds = 300.0

    @property
    def lease_s(self) -> float:
        """How long what was read holds, counted from when a comparison with what is stored began."""
        return 2 * self.refresh_s


class Flags(_Section):
    """What happens to a store that nobody has partitioned."""

    settle_s: Seconds = 600.0
    settle_max_s: Seconds = 86_400.0
    reflag_s: Seconds = 60.0
    partition: bool = True


class Reconcile(_Section):
    """How often a listing checks what was told."""

    every_s: Seconds = 21_600.0


class Principals(_Section):
    """Accounts whose writes are not news."""

    ignore: frozenset[str] = frozenset()


class Http(_Section):
    """Where events are posted and health is asked for."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, lt=65536)] = 8642
    token: SecretStr = SecretStr("")
    max_body: Annotated[int, Field(gt=0)] = 1_048_576


class Settings(BaseSettings):
    """The whole configuration. `load_settings` makes one; nothing is read from the environment here."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="BLOBMAP_", env_nested_delimiter="__", hide_input_in_errors=True
    )

    amqp: Amqp | None = None
    embedded: Embedded | None = None
    source: Source
    bucket: tuple[Bucket, ...] = Field(min_length=1)
    s3: S3 = S3()
    sink: Sink = Sink()
    mover: tuple[Mover, ...] = ()
    policy: Policy = Policy()
    topology: Topology = Topology()
    manifests: Manifests = Manifests()
    flags: Flags = Flags()
    reconcile: Reconcile = Reconcile()
    principals: Principals = Principals()
    http: Http | None = None
    grace_s: Seconds = 20.0

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leaves the values given as the only source."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)
