"""The edge to the stores: from a URL or path to listings, bodies, conditional writes. The one file that names obstore.

Foreign errors are translated here (`store_faults` has the table). Nothing here knows zarr or manifests.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, S3Store

from blobmap.errors import MissingError, RefusedError, UsageError
from blobmap.local_files import LocalFiles
from blobmap.local_writes import LocalWrites
from blobmap.objects import Body, Entry, Level
from blobmap.store_faults import translate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from obstore.store import ObjectStore, S3Config

__all__ = ["DEFAULT_EXCLUDE", "Body", "Entry", "Level", "Storage", "StorageOptions", "as_storage", "open_storage"]

DEFAULT_EXCLUDE = (".sgwtmp", ".versitygw", ".snapshot")
_PAGE = 1000  # objects a page, as S3 answers


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How to reach a store; what is None comes from the environment (`AWS_*`), as for other S3 programs."""

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False
    allow_http: bool = False
    virtual_hosted: bool = False
    timeout_s: float = 60.0
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE


class Storage:
    """One store: a bucket or a part of it, a directory, or a store in memory.

    Keys are relative to the root of the store, with `/` between segments.

    Args:
        store: an obstore store.
        name: what messages call it; never a secret.
        exclude: segments that are left out of every listing with all that is below them.
        timeout_s: seconds that a write to local files waits for the writers before it.

    Attributes:
        name: what messages call it.
        unreadable: the prefixes that could not be listed so far, each the smallest that is known. A listing goes on
            around them, and is not the whole while one of them lies above, at or below what was listed.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        name: str = "",
        exclude: Collection[str] = DEFAULT_EXCLUDE,
        timeout_s: float = 60.0,
    ) -> None:
        self.unreadable: list[str] = []
        self.name = name or _name_of(store)
        exclude = tuple(segment for segment in exclude if segment)
        if isinstance(store, LocalStore):
            files = LocalFiles(str(store.prefix or "/"), exclude=exclude, unreadable=self._note)
            self._reads: LocalFiles | _Objects = files
            self._writes: LocalWrites | _Objects = LocalWrites(files, wait_s=timeout_s)
        else:
            self._reads = self._writes = _Objects(store, self.name, exclude)

    def pages(self, prefix: str = "", *, after: str | None = None) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix`, by whole segments, in pages; in key order within S3, in any order elsewhere.

        Args:
            prefix: key of a prefix without a trailing slash; "" is the whole store.
            after: only keys greater than this one.

        Raises:
            UnavailableError: the store cannot be reached, or fails.
            RefusedError: the store does not serve us.
        """
        return self._reads.pages(prefix, after)

    def level(self, prefix: str = "") -> Level:
        """What lies directly below `prefix`: deeper prefixes, and objects. Raises as `pages`."""
        return self._reads.level(prefix)

    def get(self, key: str) -> Body:
        """The bytes of an object and the etag that came with them.

        Raises:
            MissingError: there is no such object.
            UnavailableError: the store cannot be reached, or fails.
            RefusedError: the store does not serve us.
        """
        return self._reads.get(_addressable(key, self.name))

    def create(self, key: str, data: bytes) -> str | None:
        """Write an object that must not exist yet; returns its etag.

        Raises:
            ConflictError: it exists; nothing was written.
            RefusedError: the store cannot write on condition, or does not serve us; nothing was written.
            UnavailableError: the store failed; the object may have been written.
        """
        return self._writes.create(_addressable(key, self.name), data)

    def update(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object that still has this etag, the one of the `get` that was read; returns the new etag.

        Raises as `create`; ConflictError where the object has another etag or is gone.
        """
        return self._writes.update(_addressable(key, self.name), data, etag)

    def put(self, key: str, data: bytes) -> str | None:
        """Write an object whatever is there; returns its etag. Raises as `create`, but never ConflictError."""
        return self._writes.put(_addressable(key, self.name), data)

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        self._writes.delete(_addressable(key, self.name))

    def _note(self, prefix: str) -> None:
        if prefix not in self.unreadable:
            self.unreadable.append(prefix)


class _Objects:
    """The obstore side: every call, with its errors translated."""

    def __init__(self, store: ObjectStore, name: str, exclude: tuple[str, ...]) -> None:
        self._store = store
        self._name = name
        self._exclude = exclude

    def pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        with self._translated(prefix):
            for page in self._store.list(prefix or None, offset=after, chunk_size=_PAGE):
                kept = self._kept(page)
                if kept:
                    yield kept

    def level(self, prefix: str) -> Level:
        with self._translated(prefix):
            found = self._store.list_with_delimiter(prefix or None)
        prefixes = tuple(deeper for deeper in found["common_prefixes"] if not self._is_excluded(deeper))
        return Level(prefixes, tuple(self._kept(found["objects"])))

    def get(self, key: str) -> Body:
        with self._translated(key):
            result = self._store.get(key)
            return Body(bytes(result.bytes()), result.meta["e_tag"])

    def create(self, key: str, data: bytes) -> str | None:
        with self._translated(key):
            return self._store.put(key, data, mode="create", use_multipart=False)["e_tag"]

    def update(self, key: str, data: bytes, etag: str) -> str | None:
        with self._translated(key):
            return self._store.put(key, data, mode={"e_tag": etag}, use_multipart=False)["e_tag"]

    def put(self, key: str, data: bytes) -> str | None:
        with self._translated(key):
            return self._store.put(key, data, use_multipart=False)["e_tag"]

    def delete(self, key: str) -> None:
        with self._translated(key):
            self._store.delete(key)

    def _kept(self, page: Sequence[Entry]) -> Sequence[Entry]:
        """The page without excluded segments: one search per segment in the joined keys, exact only on a hit."""
        if self._exclude:
            keys = "/".join([entry["path"] for entry in page])
            if any(segment in keys for segment in self._exclude):
                return [entry for entry in page if not self._is_excluded(entry["path"])]
        return page

    def _is_excluded(self, key: str) -> bool:
        return not set(self._exclude).isdisjoint(key.split("/"))

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError, NotImplementedError, ValueError) as error:
            raise translate(error, f"{self._name}: {key!r}" if key else self._name) from error


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
        return _open_directory(Path(url).expanduser(), options, create=create)
    parts = urlsplit(url)
    if scheme == "file":
        return _open_directory(Path(unquote(parts.path)), options, create=create)
    if scheme != "s3" or not parts.netloc:
        raise UsageError(f"{url!r} is no store: give s3://bucket/prefix, file:///path or a path")
    return _open_s3(parts.netloc, url.split("/", 3)[3].strip("/") if url.count("/") > 2 else "", options)


def as_storage(store: ObjectStore | Storage) -> Storage:
    """What a caller of the library hands in, as a Storage."""
    return store if isinstance(store, Storage) else Storage(store)


def _open_directory(path: Path, options: StorageOptions, *, create: bool) -> Storage:
    path = path.absolute()
    if create:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedError(f"{path} cannot be made: {error.strerror}") from error
    if not path.is_dir():
        raise UsageError(f"{path} is no directory")
    return Storage(LocalStore(path), name=str(path), exclude=options.exclude, timeout_s=options.timeout_s)


def _open_s3(bucket: str, prefix: str, options: StorageOptions) -> Storage:
    budget_s = options.timeout_s
    config: S3Config = {
        "skip_signature": options.anonymous,
        "virtual_hosted_style_request": options.virtual_hosted,
    }
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.region:
        config["region"] = options.region
    store = S3Store(
        bucket,
        prefix=prefix or None,
        config=config,
        client_options={"allow_http": options.allow_http, "timeout": timedelta(seconds=budget_s / 2)},
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=budget_s * 0.4)},
    )
    return Storage(store, name=f"s3://{bucket}/{prefix}".rstrip("/"), exclude=options.exclude)


def _name_of(store: ObjectStore) -> str:
    if isinstance(store, MemoryStore):
        return "memory"
    prefix = getattr(store, "prefix", None)
    if isinstance(store, S3Store):
        return "/".join(["s3:/", store.config.get("bucket", ""), *([str(prefix)] if prefix else [])])
    return str(prefix or store)


def _addressable(key: str, name: str) -> str:
    """A key as it is: obstore drops outer slashes silently, and would so read the neighbour."""
    if not key or key.startswith("/") or key.endswith("/"):
        raise MissingError(f"{name}: {key!r} is no key of an object: it is empty, or starts or ends with '/'")
    return key
