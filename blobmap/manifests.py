"""Manifests at rest: which scopes have one, reading them all, and writing one so that nobody's work is lost.

The format itself is `manifest`'s, the way to a store `storage`'s.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blobmap.errors import ListingError, ManifestError, MissingError
from blobmap.manifest import manifest_key, parse_manifest, render_manifest, scope_of_key
from blobmap.storage import as_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import ObjectStore

    from blobmap.manifest import Manifest
    from blobmap.storage import Storage

_READERS = 16
_AHEAD = 64


@dataclass(frozen=True, slots=True)
class Held:
    """A manifest as it was read, and the etag that came with its bytes: what a later write is conditional on."""

    manifest: Manifest
    etag: str | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What a listing says against what was known.

    Attributes:
        changed: scope to etag, of every manifest that is new or has another etag than the known one.
        gone: known scopes whose manifest the listing does not have any more, and would have had.
    """

    changed: Mapping[str, str]
    gone: tuple[str, ...]


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

    def load_all(self, *, strict: bool = False) -> Iterator[Manifest]:
        """Every manifest, read by several readers at once, in the order of the listing.

        A broken one is skipped and told in `problems`; with `strict` it is raised.

        Raises:
            ManifestError: strict, and a manifest is broken or does not fit its place.
            ListingError: strict, and a part of the root cannot be listed.
        """
        self.problems = []
        with ThreadPoolExecutor(_READERS, thread_name_prefix="manifests") as readers:
            waiting: deque[Future[Manifest | ManifestError | None]] = deque()
            for scope, _ in self._listing():
                waiting.append(readers.submit(self._try_read, scope))
                if len(waiting) > _AHEAD:
                    yield from self._settled(waiting.popleft().result(), strict=strict)
            while waiting:
                yield from self._settled(waiting.popleft().result(), strict=strict)
        for prefix in self.storage.unreadable:
            problem = f"{self.storage.name}: {prefix!r} cannot be listed"
            if strict:
                raise ListingError(problem)
            self.problems.append(problem)

    def read(self, scope: str) -> Held:
        """One manifest with the etag of its bytes.

        Raises:
            MissingError: the scope has none.
            ManifestError: it is broken, or of another scope than its place says.
        """
        key = manifest_key(scope)
        body = self.storage.get(key)
        return Held(parse_manifest(body.data, source=f"{self.storage.name}/{key}", scope=scope), body.etag)

    def write(self, manifest: Manifest, *, etag: str | None) -> str | None:
        """Write a manifest over the one that was read, or a first one; returns the new etag.

        Args:
            manifest: what to write, at the place of its scope.
            etag: of the `Held` that this one follows; None: there must be none yet.

        Raises:
            ConflictError: somebody else wrote meanwhile; nothing was written.
        """
        key = manifest_key(manifest.scope)
        data = render_manifest(manifest)
        if etag is None:
            return self.storage.create(key, data)
        return self.storage.update(key, data, etag)

    def scopes(self) -> Iterator[str]:
        """The scope of every manifest, broken ones too."""
        for scope, _ in self._listing():
            yield scope

    def changed_since(self, known: Mapping[str, str]) -> Changes:
        """What a listing says against the known etags (scope to etag); nothing is read."""
        changed: dict[str, str] = {}
        gone = set(known)
        for scope, etag in self._listing():
            gone.discard(scope)
            if known.get(scope) != etag:
                changed[scope] = etag
        return Changes(changed, tuple(sorted(gone)))

    def _listing(self) -> Iterator[tuple[str, str]]:
        for page in self.storage.pages():
            for entry in page:
                scope = scope_of_key(entry["path"])
                if scope is not None:
                    yield scope, entry["e_tag"] or ""

    def _try_read(self, scope: str) -> Manifest | ManifestError | None:
        try:
            return self.read(scope).manifest
        except MissingError:
            return None  # deleted since the listing
        except ManifestError as error:
            return error

    def _settled(self, outcome: Manifest | ManifestError | None, *, strict: bool) -> Iterator[Manifest]:
        if isinstance(outcome, ManifestError):
            if strict:
                raise outcome
            self.problems.append(str(outcome))
        elif outcome is not None:
            yield outcome
