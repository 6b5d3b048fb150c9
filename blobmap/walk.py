"""The hierarchy of one store: every group and array, found by walking its groups level by level.

An array is reported as it is found and never walked into. What has no readable document of its own is listed flat, to
see whether anything below it has one: so a broken document hides nothing, and loose objects are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.arrays import ArrayLayout, GroupLayout
from blobmap.errors import DocumentError
from blobmap.layout import Consolidated, read_consolidated, read_v2_group, read_v3
from blobmap.nodes import Node, join, read_named, read_node
from blobmap.search import count_loose, find_nodes
from blobmap.tally import Count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from blobmap.objects import Level
    from blobmap.storage import Storage
    from blobmap.workers import Workers


class Walk:
    """One walk over one store; runs on workers, and is complete when they have nothing left to do.

    Args:
        storage: where the store is.
        scope: key of the store.
        workers: do the reading.
        on_array: told every array with the etag of its document, in the collecting thread.

    Attributes:
        groups: every group.
        problems: one line for each document that cannot be understood.
        unread: paths of the nodes with such documents.
        loose: objects that are neither metadata nor below an array.
        inner: paths of nodes below the root that look like stores of their own.
    """

    def __init__(
        self, storage: Storage, scope: str, workers: Workers, on_array: Callable[[ArrayLayout, str | None], None]
    ) -> None:
        self._storage = storage
        self._scope = scope
        self._workers = workers
        self._on_array = on_array
        self._consolidated: dict[str, Consolidated] = {}
        self.groups: list[GroupLayout] = []
        self.problems: list[str] = []
        self.unread: list[str] = []
        self.loose = Count()
        self.inner: list[str] = []

    def start(self, root: Node) -> None:
        """Walk from a node that was read already."""
        self._take(root)

    def enter(self, paths: Iterable[str], *, parent: GroupLayout | None = None) -> None:
        """Walk from nodes whose documents nobody has read yet."""
        for path in paths:
            first = 3 if parent is None else parent.zarr_format
            hint = self._hint(path)
            self._workers.do(
                lambda path=path, first=first, hint=hint: read_node(  # type: ignore[misc]  # defaults bind the loop's values
                    self._storage, self._scope, path, first=first, consolidated=hint
                ),
                self._take,
            )

    def fail(self, path: str, problem: str) -> None:
        """Note a node whose documents cannot be understood."""
        self.problems.append(problem)
        self.unread.append(path)

    def _take(self, node: Node) -> None:
        if node.path.endswith(".zarr") and node.layout is not None:
            self.inner.append(node.path)
        if isinstance(node.layout, ArrayLayout):
            self._on_array(node.layout, node.etag)
        elif node.layout is not None:
            group = node.layout
            key = join(self._scope, node.path)
            self._workers.do(lambda: self._storage.level(key), lambda level: self._open(group, level))
        else:
            if node.problem is not None:
                self.fail(node.path, node.problem)
            key = join(self._scope, node.path)
            self._workers.do(
                lambda: find_nodes(self._storage, key, self._workers.stopping),
                lambda found: self._searched(node.path, *found),
            )

    def _open(self, group: GroupLayout, level: Level) -> None:
        """Take in the level of a group: its remaining documents, its loose objects, its children."""
        key = join(self._scope, group.path)
        names = {entry["path"].rpartition("/")[2] for entry in level.objects}
        count_loose(self.loose, level.objects)
        children = [self._below(prefix) for prefix in level.prefixes]
        if group.zarr_format == 3 and ".zarray" in names:
            self.fail(group.path, f"{key or 'the root'}: zarr.json says group and .zarray says array")
        if group.zarr_format == 2 and names & {".zattrs", ".zmetadata", "zarr.json"}:
            self._workers.do(lambda: self._details(group, names), lambda found: self._opened(*found, children))
        else:
            self._opened(group, None, None, children)

    def _details(self, group: GroupLayout, names: set[str]) -> tuple[GroupLayout, Consolidated | None, str | None]:
        """Read what a v2 group says beside that it is one: group, consolidated metadata, and what is wrong with it."""
        key = join(self._scope, group.path)
        problem = consolidated = None
        try:
            self._check_other_format(key, names)
            if ".zmetadata" in names and (named := read_named(self._storage, join(key, ".zmetadata"))):
                consolidated = read_consolidated(*named)
            zattrs = read_named(self._storage, join(key, ".zattrs")) if ".zattrs" in names else None
            members = consolidated.arrays if consolidated else ()
            group = read_v2_group(group.path, zattrs=zattrs, members=members)
        except DocumentError as error:
            problem = str(error)
        return group, consolidated, problem

    def _check_other_format(self, key: str, names: set[str]) -> None:
        """Raise DocumentError where a v2 group has a `zarr.json` that is none of a group."""
        named = read_named(self._storage, join(key, "zarr.json")) if "zarr.json" in names else None
        if named is not None and isinstance(read_v3("", "", *named), ArrayLayout):
            raise DocumentError(f"{key or 'the root'}: zarr.json says array and .zgroup says group")

    def _opened(
        self, group: GroupLayout, consolidated: Consolidated | None, problem: str | None, children: Sequence[str]
    ) -> None:
        if problem is not None:
            self.problems.append(problem)
        if consolidated is not None:
            self._consolidated[group.path] = consolidated
        if group.members and group.path:
            self.inner.append(group.path)
        self.groups.append(group)
        self.enter(children, parent=group)

    def _hint(self, path: str) -> dict[str, object] | None:
        """Attributes of an array in the consolidated metadata of the nearest group around it that has them."""
        if not self._consolidated:
            return None
        group = path
        while group:
            group = group.rpartition("/")[0]
            known = self._consolidated.get(group)
            relative = path[len(group) + 1 if group else 0 :]
            if known is not None and relative in known.attributes:
                return dict(known.attributes[relative])
        return None

    def _searched(self, path: str, topmost: tuple[str, ...], loose: Count) -> None:
        self.loose.merge(loose)
        inner = [self._below(key) for key in topmost]
        if path not in self.unread:  # a store that a folder without metadata separates from the one around it
            self.inner += inner
        self.enter(inner)

    def _below(self, key: str) -> str:
        return key[len(self._scope) + 1 :] if self._scope else key
