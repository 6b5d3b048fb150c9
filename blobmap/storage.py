"""The edge to the stores: from a URL or path to listings, bodies, conditional writes. The one file that names obstore.

Foreign errors are translated here (`store_faults` has the table). Nothing here knows zarr or manifests.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError, InvalidPathError
from obstore.store import LocalStore, MemoryStore, S3Store

from blobmap.errors import BlobmapError, ConflictError, MissingError, RefusedError, UsageError
from blobmap.gaps import Gaps
from blobmap.local_files import LocalFiles, local_directory
from blobmap.local_writes import LocalWrites
from blobmap.object_listing import ObjectListing
from blobmap.objects import Body, Entry, Level, RawPage, check_size
from blobmap.odd_keys import OddKeyError, key_in_error
from blobmap.raw_listing import RawListing, raw_listing_of
from blobmap.s3_address import DEFAULT_EXCLUDE, S3Address, StorageOptions, s3_address
from blobmap.store_faults import translate
from blobmap.store_keys import check_key, check_prefix, valid_offset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from obstore.store import ObjectStore, S3Config

    from blobmap.store_faults import Doing

__all__ = [
    "DEFAULT_EXCLUDE",
    "Body",
    "Entry",
    "Level",
    "Storage",
    "StorageOptions",
    "as_storage",
    "empty_storage",
    "open_storage",
]

_RETRIES = 5
_PAGE = 1000  # objects a page, as S3 answers
_RAW_TIMEOUT_S = 15.0
_STALE_TRIES = 3  # a server that refuses an etag which is still right is asked this often, then told apart


class Storage:
    """One store: a bucket or a part of it, a directory, or a store in memory.

    Keys are relative to the root of the store, with `/` between segments. A listing goes on around what it cannot read,
    and remembers that: ask for `gaps` afterwards.

    Args:
        store: an obstore store.
        name: what messages call it; never a secret.
        exclude: segments that are left out of every listing with all that is below them.
        timeout_s: seconds that a write to local files waits for the writers before it.

    Attributes:
        name: what messages call it.
        is_remote: whether a server decides about conditional writes, and not this process or its kernel.
        is_ordered: whether a listing comes in the order of its keys.
        files: what walks the directory, None where the store is none.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        name: str = "",
        exclude: Collection[str] = DEFAULT_EXCLUDE,
        timeout_s: float = 60.0,
    ) -> None:
        self._gaps = Gaps()
        self.name = name or _name_of(store)
        self.is_remote = not isinstance(store, LocalStore | MemoryStore)
        self.is_ordered = not isinstance(store, LocalStore)
        exclude = tuple(segment for segment in exclude if segment)
        self.files: LocalFiles | None = None
        if isinstance(store, LocalStore):
            self.files = LocalFiles(str(store.prefix or "/"), exclude=exclude, gaps=self._gaps)
            self._reads: LocalFiles | _Objects = self.files
            self._writes: LocalWrites | _Objects = LocalWrites(self.files, wait_s=timeout_s)
        else:
            self._reads = self._writes = _Objects(store, self.name, exclude, self._gaps)

    def pages(self, prefix: str = "", *, after: str | None = None) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix`, by whole segments, in pages; in any order where `is_ordered` is not set.

        Args:
            prefix: key of a prefix without a trailing slash; "" is the whole store.
            after: only keys greater than this one. Without it, what earlier listings said of gaps at or below `prefix`
                is forgotten.

        Raises:
            UsageError: `prefix` is none.
            UnavailableError: the store cannot be reached, or fails.
            RefusedError: the store does not serve us.
        """
        check_prefix(prefix, self.name)
        if after is None:
            self._gaps.forget(prefix)
        return self._reads.pages(prefix, after)

    def level(self, prefix: str = "") -> Level:
        """What lies directly below `prefix`: deeper prefixes, and objects. Raises as `pages`."""
        return self._reads.level(check_prefix(prefix, self.name))

    def get(self, key: str, *, limit: int | None = None) -> Body:
        """The bytes of an object and the etag that came with them.

        Args:
            key: of the object.
            limit: the most bytes that are read.

        Raises:
            MissingError: there is no such object.
            UnreadableError: it is larger than `limit`; nothing of it was read.
            UnavailableError: the store cannot be reached, or fails.
            RefusedError: the store does not serve us.
        """
        return self._reads.get(check_key(key, self.name), limit)

    def create(self, key: str, data: bytes) -> str | None:
        """Write an object that must not exist yet; returns its etag.

        Raises:
            ConflictError: it exists; nothing was written.
            RefusedError: the store cannot write on condition, or does not serve us; nothing was written.
            UnavailableError: the store failed; the object may have been written.
        """
        return self._writes.create(check_key(key, self.name), data)

    def update(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object that still has this etag, the one of the `get` that was read; returns the new etag.

        Raises as `create`; ConflictError where the object has another etag or is gone.
        """
        return self._writes.update(check_key(key, self.name), data, etag)

    def put(self, key: str, data: bytes) -> str | None:
        """Write an object whatever is there; returns its etag. Raises as `create`, but never ConflictError."""
        return self._writes.put(check_key(key, self.name), data)

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        self._writes.delete(check_key(key, self.name))

    @property
    def unreadable(self) -> list[str]:
        """The prefixes that could not be listed so far, each the smallest that is known."""
        return self._gaps.unreadable

    @property
    def odd_keys(self) -> list[str]:
        """The keys met so far that exist and cannot be addressed."""
        return self._gaps.odd_keys

    def gaps(self, prefix: str = "") -> tuple[str, ...]:
        """The unreadable prefixes that lie above, at or below `prefix`: with any, it was not listed whole."""
        return self._gaps.touching(prefix)

    def note(self, unreadable: Collection[str], odd_keys: Collection[str]) -> None:
        """Remember what somebody else could not list of this store."""
        for prefix in unreadable:
            self._gaps.note_unreadable(prefix)
        for key in odd_keys:
            self._gaps.note_odd(key)

    def forget(self, prefix: str = "") -> None:
        """Drop the gaps and odd keys that earlier listings met at or below `prefix`; one above it stays.

        For whoever lists all of `prefix` anew by `level` or from an offset, and asks for `gaps` at the end: neither
        forgets by itself, as each sees a part only.
        """
        self._gaps.forget(check_prefix(prefix, self.name))


class _Objects:
    """The obstore side: every call, with its errors translated."""

    def __init__(self, store: ObjectStore, name: str, exclude: tuple[str, ...], gaps: Gaps) -> None:
        self._store = store
        self._name = name
        self._root = str(getattr(store, "prefix", None) or "")
        is_s3 = isinstance(store, S3Store)
        self._listing = ObjectListing(
            self, gaps, exclude=exclude, raw_keys=is_s3, from_bucket_root=is_s3 and not self._root
        )
        self._is_known_to_answer = not is_s3
        self._raw = _raw_listing(store, name) if isinstance(store, S3Store) else None

    def pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        empty = True
        with self._translated(prefix, "list"):
            for page in self._listing.pages(prefix, after):
                empty = False
                yield page
        if empty:
            self._check_that_it_is_s3()

    def level(self, prefix: str) -> Level:
        with self._translated(prefix, "list"):
            level = self._listing.level(prefix)
        if not level.prefixes and not level.objects:
            self._check_that_it_is_s3()
        return level

    def get(self, key: str, limit: int | None) -> Body:
        with self._translated(key, "read"):
            result = self._store.get(key)
            check_size(result.meta["size"], limit, f"{self._name}: {key!r}")
            data = bytes(result.bytes())
        if "text/html" in str(result.attributes.get("Content-Type", "")) and data.lstrip()[:1] == b"<":
            raise RefusedError(f"{self._name}: {key!r} is a web page: is the endpoint an S3 server?")
        return Body(data, result.meta["e_tag"])

    def create(self, key: str, data: bytes) -> str | None:
        with self._translated(key, "write on condition"):
            return self._store.put(key, data, mode="create", use_multipart=False)["e_tag"]

    def update(self, key: str, data: bytes, etag: str) -> str | None:
        for _ in range(_STALE_TRIES):
            try:
                with self._translated(key, "write on condition"):
                    return self._store.put(key, data, mode={"e_tag": etag}, use_multipart=False)["e_tag"]
            except ConflictError:
                if not self._still_has(key, etag):
                    raise
        raise RefusedError(
            f"{self._name}: {key!r} still has the etag {etag}, and yet the server rejects a matching ETag, "
            f"{_STALE_TRIES} times: nothing was written, as it cannot be told from somebody else's change"
        )

    def _still_has(self, key: str, etag: str) -> bool:
        try:
            found = self.head(key)
        except BlobmapError:
            return False
        return found is not None and found["e_tag"] == etag

    def put(self, key: str, data: bytes) -> str | None:
        with self._translated(key, "write"):
            return self._store.put(key, data, use_multipart=False)["e_tag"]

    def delete(self, key: str) -> None:
        with suppress(MissingError), self._translated(key, "read"):
            self._store.delete(key)

    # What the listing is made of.

    def flat(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        offset = valid_offset(after) if after is not None else None
        with self._odd_told():
            for found in self._store.list(prefix or None, offset=offset, chunk_size=_PAGE):
                beyond = found if offset == after else [entry for entry in found if entry["path"] > str(after)]
                if beyond:
                    yield beyond

    def raw(self, prefix: str, after: str | None, *, by_level: bool = False) -> Iterator[RawPage] | None:
        return None if self._raw is None else self._raw.pages(prefix, after, by_level=by_level)

    def one_level(self, prefix: str) -> Level:
        with self._odd_told():
            found = self._store.list_with_delimiter(prefix or None)
            return Level(tuple(found["common_prefixes"]), tuple(found["objects"]))

    def head(self, key: str) -> Entry | None:
        try:
            with self._translated(key, "read"):
                return self._store.head(key)
        except MissingError:
            return None

    def _check_that_it_is_s3(self) -> None:
        """Once, where a listing came back empty: a web server that answers everything with a page looks just so."""
        if not self._is_known_to_answer:
            with suppress(MissingError):
                self.get(".blobmap/no-such-object", None)
            self._is_known_to_answer = True

    @contextmanager
    def _translated(self, key: str, doing: Doing) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError, NotImplementedError, ValueError) as error:
            raise translate(error, f"{self._name}: {key!r}" if key else self._name, doing) from error

    @contextmanager
    def _odd_told(self) -> Iterator[None]:
        try:
            yield
        except InvalidPathError as error:
            raise OddKeyError(key_in_error(str(error)).removeprefix(f"{self._root}/" if self._root else "")) from error


def open_storage(url: str, options: StorageOptions, *, create: bool = False) -> Storage:
    """The store behind a URL (`s3://bucket/prefix`, `file:///path`) or a plain path.

    Args:
        url: where it is.
        options: how to reach it.
        create: make the directory if it is a local one that does not exist.

    Raises:
        UsageError: this is no URL that we know, or a local directory is missing.
        RefusedError: a local directory cannot be made.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        return _open_directory(url, options, create=create)
    if scheme == "file":
        parts = urlsplit(url)
        if parts.netloc not in {"", "localhost"} or not parts.path:
            raise UsageError(f"{url!r} names a host: give file:///path for a path on this one")
        return _open_directory(unquote(parts.path), options, create=create)
    if scheme != "s3":
        raise UsageError(f"{url!r} is no store: give s3://bucket/prefix, file:///path or a path")
    return _open_s3(s3_address(url, options, os.environ), options)


def empty_storage(name: str) -> Storage:
    """A store in memory with nothing in it: what stands for one that nobody has made yet."""
    return Storage(MemoryStore(), name=name)


def as_storage(store: ObjectStore | Storage) -> Storage:
    """What a caller of the library hands in, as a Storage."""
    return store if isinstance(store, Storage) else Storage(store)


def _open_directory(given: str, options: StorageOptions, *, create: bool) -> Storage:
    path = local_directory(given, create=create)
    return Storage(LocalStore(path), name=str(path), exclude=options.exclude, timeout_s=options.timeout_s)


def _open_s3(address: S3Address, options: StorageOptions) -> Storage:
    budget_s = options.timeout_s
    config: S3Config = {}
    if address.endpoint:
        config["endpoint"] = address.endpoint
        config["aws_endpoint_url_s3"] = address.endpoint  # or else the variable of this name would win
    if address.region:
        config["region"] = address.region
    if address.anonymous:
        config["skip_signature"] = True
    if address.virtual_hosted:
        config["virtual_hosted_style_request"] = True
    if address.credentials is not None:
        config["access_key_id"] = address.credentials.access_key_id
        config["secret_access_key"] = address.credentials.secret_access_key
        if address.credentials.session_token:
            config["session_token"] = address.credentials.session_token
    # The last try begins within the retry time, at most one pause late, and ends within its own timeout.
    store = S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options={
            "allow_http": address.allow_http,
            "connect_timeout": timedelta(seconds=min(5.0, budget_s / 4)),
            "timeout": timedelta(seconds=budget_s * 0.5),
        },
        retry_config={
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=budget_s * 0.4),
            "backoff": {"max_backoff": timedelta(seconds=budget_s * 0.1)},
        },
    )
    return Storage(store, name=address.name, exclude=options.exclude)


def _raw_listing(store: S3Store, name: str) -> RawListing | None:
    """The same bucket for listings by hand; None where only the library has the credentials."""
    if store.credential_provider is not None:
        return None
    timeout = (store.client_options or {}).get("timeout")
    # A part of the time that a request of the store may take, as it may be tried more than once.
    timeout_s = timeout.total_seconds() / 2 if isinstance(timeout, timedelta) else _RAW_TIMEOUT_S
    config = cast("Mapping[str, str]", store.config)
    return raw_listing_of(config, os.environ, name=name, root=store.prefix or "", timeout_s=timeout_s)


def _name_of(store: ObjectStore) -> str:
    if isinstance(store, MemoryStore):
        return "memory"
    prefix = getattr(store, "prefix", None)
    if isinstance(store, S3Store):
        return "/".join(["s3:/", store.config.get("bucket", ""), *([str(prefix)] if prefix else [])])
    return str(prefix or store)
