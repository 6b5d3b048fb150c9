"""Manifests at rest: which scopes have one, reading them all, and writing one so that nobody's work is lost.

The format itself is `manifest`'s, the way to a store `storage`'s.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from blobmap.conditions import check_conditions
from blobmap.errors import ListingError, MissingError, UnreadableError
from blobmap.manifest import MAX_BYTES, Manifest, manifest_key, parse_manifest, render_manifest, scope_of_key
from blobmap.storage import as_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import ObjectStore

    from blobmap.objects import Entry
    from blobmap.storage import Storage

_READERS = 16
_YOUNG = timedelta(seconds=60)
_AHEAD = 48  # manifests that are asked for before the first of them is handed out

# Readers wait for the store side by side, and parse one after the other: they would have to share the interpreter, and
# whoever else needs it (an event loop) would wait for its turn behind each of them.
_PARSING = threading.Lock()

_Outcome: TypeAlias = Manifest | UnreadableError


@dataclass(frozen=True, slots=True)
class Held:
    """A manifest as it was read, and the etag that came with its bytes: what a later write is conditional on."""

    manifest: Manifest
    etag: str | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What a listing says against what was known.

    Attributes:
        changed: scope to version, of every manifest that is new or has another version than the known one. A version is
            the etag; where there is none, as of a file that was put below a gateway, size and time of the last change.
        gone: known scopes whose manifest the listing does not have any more. Where a part of the root could not be
            listed, a scope in that part is not called gone.
        gaps: the prefixes of the root that could not be listed.
    """

    changed: Mapping[str, str]
    gone: tuple[str, ...]
    gaps: tuple[str, ...] = ()


class ManifestStore:
    """The manifests below one root.

    Args:
        store: an obstore store, or a Storage, at the manifest root.

    Attributes:
        storage: the manifest root itself, for what is kept beside the manifests.
        problems: one line for each manifest or prefix that the last `load_all` had to skip.
    """

    def __init__(self, store: ObjectStore | Storage) -> None:
        self.storage = as_storage(store)
        self.problems: list[str] = []
        self._probing = threading.Lock()
        self._is_probed = not self.storage.is_remote

    def load_all(self, *, strict: bool = False) -> Iterator[Manifest]:
        """Every manifest, read by several readers at once, in the order of the listing.

        A broken one is skipped and told in `problems`; with `strict` it is raised. No more than a few dozen are held.

        Raises:
            UnreadableError: strict, and a manifest is broken, too large, or does not fit its place.
            ListingError: strict, and a part of the root cannot be listed.
            UnavailableError: the store cannot be reached, or fails.
            RefusedError: the store does not serve us.
        """
        self.problems = []
        for outcome in self._read_all():
            if isinstance(outcome, Manifest):
                yield outcome
            else:
                self._skip(outcome, strict=strict)
        for prefix in self.storage.gaps():
            self._skip(ListingError(f"{self.storage.name}: {prefix!r} could not be listed whole"), strict=strict)

    def read(self, scope: str) -> Held:
        """One manifest with the etag of its bytes.

        Raises:
            MissingError: the scope has none.
            ManifestError: it is broken, or of another scope than its place says.
            UnreadableError: it is larger than a manifest may be; nothing of it was read.
            UnavailableError: the store cannot be reached, or fails.
            RefusedError: the store does not serve us.
        """
        key = manifest_key(scope)
        try:
            body = self.storage.get(key, limit=MAX_BYTES)
        except MissingError as error:
            raise MissingError(f"{self.storage.name}: scope {scope!r} has no manifest") from error
        with _PARSING:
            manifest = parse_manifest(body.data, source=f"{self.storage.name}: {key!r}", scope=scope)
        return Held(manifest, body.etag)

    def write(self, manifest: Manifest, *, etag: str | None) -> str | None:
        """Write a manifest over the one that was read, or a first one; returns the new etag.

        Before the first write to a server, the server is raced: see `check_conditions`.

        Args:
            manifest: what to write, at the place of its scope.
            etag: of the `Held` that this one follows; None: there must be none yet.

        Raises:
            ConflictError: somebody else wrote meanwhile; nothing was written.
            RefusedError: the server does not hold to conditional writes, or does not serve us; nothing was written.
            UnavailableError: the store failed; the manifest may have been written.
        """
        self.check_conditions()
        key = manifest_key(manifest.scope)
        data = render_manifest(manifest)
        if etag is None:
            return self.storage.create(key, data)
        return self.storage.update(key, data, etag)

    def check_conditions(self) -> None:
        """Find out, once, whether this root can keep two writers apart. Raises as `blobmap.conditions` does."""
        with self._probing:
            if not self._is_probed:
                check_conditions(self.storage)
                self._is_probed = True

    def scopes(self) -> Iterator[str]:
        """The scope of every manifest, broken ones too."""
        for scope, _ in self._listing():
            yield scope

    def changed_since(self, known: Mapping[str, str]) -> Changes:
        """What one listing says against the known versions (scope to version); no manifest is read."""
        changed: dict[str, str] = {}
        missing = set(known)
        for scope, etag in self._listing():
            missing.discard(scope)
            if known.get(scope) != etag:
                changed[scope] = etag
        gone = tuple(sorted(scope for scope in missing if not self.storage.gaps(manifest_key(scope))))
        return Changes(changed, gone, self.storage.gaps())

    def _listing(self) -> Iterator[tuple[str, str]]:
        for page in self.storage.pages():
            for entry in page:
                scope = scope_of_key(entry["path"])
                if scope is not None:
                    yield scope, _version(entry)

    def _read_all(self) -> Iterator[_Outcome]:
        readers = ThreadPoolExecutor(_READERS, thread_name_prefix="manifests")
        asked: deque[Future[_Outcome | None]] = deque()
        try:
            for scope, _ in self._listing():
                asked.append(readers.submit(self._try_read, scope))
                if len(asked) == _AHEAD:
                    yield from self._next(asked)
            while asked:
                yield from self._next(asked)
        finally:
            readers.shutdown(cancel_futures=True)

    @staticmethod
    def _next(asked: deque[Future[_Outcome | None]]) -> Iterator[_Outcome]:
        outcome = asked.popleft().result()
        if outcome is not None:
            yield outcome

    def _try_read(self, scope: str) -> _Outcome | None:
        try:
            return self.read(scope).manifest
        except MissingError:
            return None  # deleted since the listing
        except UnreadableError as error:
            return error

    def _skip(self, error: UnreadableError, *, strict: bool) -> None:
        if strict:
            raise error
        self.problems.append(str(error))


def _version(entry: Entry) -> str:
    """Tell one content of a manifest from the next, as far as a listing can.

    Without an etag two changes within the resolution of a time look the same: then a young one has another version in
    every listing, and is read each time until it is older than clocks differ.
    """
    if entry["e_tag"]:
        return entry["e_tag"]
    stat = f"{entry['size']} {entry['last_modified'].isoformat()}"
    now = datetime.now(UTC)
    return stat if abs(now - entry["last_modified"]) > _YOUNG else f"{stat} seen {now.isoformat()}"
