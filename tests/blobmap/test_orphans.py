from __future__ import annotations

from obstore.store import MemoryStore

from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.orphans import Orphaned, orphaned
from blobmap.storage import Storage


def rule(name: str, width: int) -> Blob:
    return Blob(f"b_{name}", (f"{name}/c",), Bucket(0, width, "v3_slash"))


def manifest(*blobs: Blob, epoch: int = 1) -> Manifest:
    return Manifest("a", epoch, (), blobs, (Pin("t", "pins hold nothing back from being orphaned"),))


def filled() -> Storage:
    store = MemoryStore()
    for name in ("t", "u"):
        for index in (*range(25), 95):
            store.put(f"a/{name}/c/{index}", b"12345")
    return Storage(store)


def test_a_blob_is_orphaned_where_a_member_leaves_or_joins() -> None:
    before = manifest(rule("t", 10), rule("u", 10))
    after = manifest(rule("t", 20), rule("u", 10), epoch=2)
    # 10..24 leave b_t_1 and b_t_2 for b_t_0 and b_t_1; 95 leaves b_t_9 for b_t_4, which had nothing.
    assert orphaned(filled(), before, after, ["b_t", "b_u"]) == (
        Orphaned("b_t", ("b_t_0", "b_t_1", "b_t_2", "b_t_9"), 16, 80),
    )


def test_blobs_of_a_rule_that_is_gone_are_orphaned() -> None:
    before = manifest(rule("t", 50), rule("u", 50))
    assert orphaned(filled(), before, manifest(rule("u", 50), epoch=2), ["b_t"]) == (
        Orphaned("b_t", ("b_t_0", "b_t_1"), 26, 130),
    )


def test_a_rule_that_is_spelled_otherwise_orphans_nothing() -> None:
    before = manifest(rule("t", 10))
    after = manifest(Blob("b_t", ("t/c/",), Bucket(0, 10, "v3_slash")), epoch=2)
    assert orphaned(filled(), before, after, ["b_t"]) == ()


def test_a_rule_without_objects_orphans_nothing() -> None:
    assert orphaned(filled(), manifest(rule("v", 10)), manifest(epoch=2), ["b_v"]) == ()
