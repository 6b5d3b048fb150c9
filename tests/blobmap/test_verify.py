from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore, Policy, partition_store
from blobmap.errors import MissingError
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.overlap import Overlap, overlap
from blobmap.storage import Storage
from blobmap.verify import verify_manifests
from tests.support import conformance
from tests.support.stores import RawArray, put_all, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from blobmap.findings import Finding

SMALL = Policy(t_max_bytes=200, t_hot_bytes=30)
TIME = RawArray("time", (20,), (1,), ["time"], nbytes=2)
TAS = RawArray("tas", (20, 3), (1, 3), ["time", "x"], nbytes=50)
CUT = Blob("b_tas", ("tas/c",), Bucket(0, 4, "v3_slash"))


def filled() -> tuple[MemoryStore, ManifestStore]:
    store = MemoryStore()
    write_store(store, "a", [TAS, TIME])
    return store, ManifestStore(MemoryStore())


def found_in(store: MemoryStore, *manifests: Manifest, scope: str | None = None) -> list[Finding]:
    held = ManifestStore(MemoryStore())
    for manifest in manifests:
        held.write(manifest, etag=None)
    return list(verify_manifests(Storage(store), held, scope).findings)


def manifest(
    *blobs: Blob, hot: tuple[str, ...] = ("time/**",), pins: tuple[Pin, ...] = (), scope: str = "a"
) -> Manifest:
    return Manifest(scope, 1, hot, blobs, pins, SMALL.to_json())


def test_a_fresh_cut_has_no_findings() -> None:
    store, manifests = filled()
    write_store(store, "a", [RawArray("empty", (20,), (1,), ["x"], present=())])
    partition_store(store, manifests, "a", policy=SMALL)
    found = verify_manifests(Storage(store), manifests)
    assert (found.scopes, found.findings, found.problems) == (("a",), (), ())
    assert verify_manifests(Storage(store), ManifestStore(MemoryStore())).scopes == ()


@pytest.mark.parametrize("name", [name for name in conformance.stores() if name != "kerchunk"])
def test_our_own_cuts_of_the_conformance_stores_have_no_findings(name: str) -> None:
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    for each in conformance.objects(name):
        store.put(each.key, each.text.encode() if each.text is not None else bytes(each.size))
    outcome = partition_store(store, manifests, name.replace("__", "/"), policy=Policy(t_max_bytes=4096, t_hot_bytes=0))
    kinds = {found.kind for found in verify_manifests(Storage(store), manifests).findings}
    expected = {"document"} if outcome.problems else set()
    if any(row.verdict == "unclaimed" for row in outcome.decisions):
        expected.add("no encoding")
    assert kinds <= expected


def test_manifests_of_other_origin_are_held_against_their_stores() -> None:
    """They claim metadata and coordinates by plain prefixes, which is said; none of them breaks anything else."""
    kinds = set()
    for case in conformance.cases():
        if case.store in ("kerchunk", "no_metadata"):
            continue
        store, manifests = MemoryStore(), MemoryStore()
        for each in conformance.objects(case.store):
            store.put(each.key, each.text.encode() if each.text is not None else bytes(each.size))
        manifests.put(f"{case.store.replace('__', '/')}/manifest.json", case.manifest)
        found = verify_manifests(Storage(store), ManifestStore(manifests))
        kinds |= {finding.kind for finding in found.findings}
    assert "claims metadata" in kinds
    assert "unreadable" not in kinds


@pytest.mark.parametrize(
    ("made", "kind", "subject", "said"),
    [
        (
            manifest(CUT, Blob("b_gone", ("gone/c",), Bucket(0, 4, "v3_slash"))),
            "no objects",
            "b_gone",
            "rule 'b_gone' ('gone/c') matches no object",
        ),
        (manifest(Blob("b_tas", ("tas",), Bucket(0, 4, "v2_flat"))), "misfit", "b_tas", "fits none of the 20 objects"),
        (manifest(CUT, Blob("b_tas", ("x/c",), None)), "same id", "b_tas", "2 rules are called 'b_tas'"),
        (
            manifest(CUT, Blob("b_other", ("tas/c/",), Bucket(0, 4, "v3_slash"))),
            "same prefix",
            "tas/c",
            "2 rules have the prefix 'tas/c'",
        ),
        (
            manifest(Blob("b_all", ("",), None)),
            "claims metadata",
            "b_all",
            "rule 'b_all' covers 3 metadata documents",
        ),
        (
            manifest(Blob("b_all", ("",), None)),
            "claims coordinate",
            "b_all",
            "rule 'b_all' claims coordinates ('time'), kept on disk by a hot pattern or a pin",
        ),
        (
            manifest(CUT, Blob("b_time", ("time/c",), Bucket(0, 9, "v3_slash")), hot=()),
            "claims coordinate",
            "b_time",
            "claims coordinates ('time'), archivable now, and needed to open the store",
        ),
        (
            manifest(Blob("b_tas", ("tas/c",), Bucket(0, 16, "v3_slash"))),
            "width",
            "b_tas",
            "rule 'b_tas' has width 16, would be 4 today: a whole blob holds 800 B",
        ),
        (
            manifest(Blob("b_tas", ("tas/c",), Bucket(0, 1, "v3_slash"))),
            "width",
            "b_tas",
            "has width 1, would be 4 today: a whole blob holds 50 B",
        ),
        (
            Manifest("a", 1, ("time/**",), (CUT,), policy={"t_max_bytes": 0}),
            "width",
            "",
            "widths cannot be judged",
        ),
        (manifest(CUT, pins=(Pin("tos", "why"),)), "dangling pin", "tos", "the pin on 'tos' holds nothing: why"),
        (manifest(CUT, pins=(Pin("../a/tas", "why"),)), "dangling pin", "../a/tas", "holds nothing"),
        (manifest(CUT, scope="b"), "nothing stored", "", "nothing is stored below 'b'"),
    ],
)
def test_what_is_wrong_is_found(made: Manifest, kind: str, subject: str, said: str) -> None:
    store, _ = filled()
    found = found_in(store, made)
    (one,) = [finding for finding in found if finding.kind == kind]
    assert (one.scope, one.subject) == (made.scope, subject)
    assert said in one.text


@pytest.mark.parametrize(
    "made",
    [
        manifest(CUT),
        manifest(Blob("b_tas", ("tas/c",), Bucket(0, 8, "v3_slash"))),
        manifest(Blob("b_tas", ("tas/c",), Bucket(1, 100, "v3_slash"))),
        manifest(CUT, pins=(Pin("tas", "why"), Pin("tas/c/3", "why"), Pin("tas/c/3/0/", "why"))),
        manifest(Blob("b_x", ("x/c",), Bucket(0, 4, "v3_slash")), CUT, pins=(Pin("", "why"),)),
    ],
)
def test_what_is_well_is_not(made: Manifest) -> None:
    store, _ = filled()
    write_store(store, "a", [RawArray("x", (20,), (1,), present=())])
    assert found_in(store, made) == []


def test_a_rule_whose_objects_are_claimed_otherwise_says_so() -> None:
    store, _ = filled()
    (found,) = found_in(store, manifest(CUT, Blob("b_old", ("tas/c/7/x",), None), hot=("time/**",)))
    assert found.text == "rule 'b_old' ('tas/c/7/x') matches no object"
    (found,) = found_in(store, manifest(CUT, Blob("b_time", ("time",), Bucket(1, 4, "v3_slash"))))
    assert found.kind == "claims coordinate"


def test_arrays_for_which_no_rule_can_be_written_are_found() -> None:
    store, _ = filled()
    write_store(store, "a", [RawArray("odd", (4,), (1,), members={"chunk_key_encoding": {"name": "suffix"}})])
    (found,) = found_in(store, manifest(CUT))
    assert (found.kind, found.subject) == ("no encoding", "odd")


def test_documents_that_cannot_be_understood_are_found_where_they_belong() -> None:
    store, _ = filled()
    put_all(store, {"a/tas/zarr.json": b"{", "b/zarr.json": b"{"})
    found = found_in(store, manifest(CUT), manifest(CUT, scope=""))
    documents = [finding for finding in found if finding.kind == "document"]
    assert [(finding.scope, finding.subject) for finding in documents] == [("", "b"), ("a", "a")]
    assert "a/tas/zarr.json" in documents[1].text


def test_objects_that_match_two_scopes_are_found() -> None:
    store, _ = filled()
    put_all(store, {"a/other": b"12"})
    outer = Manifest("", 3, (), (Blob("b_a", ("a",), None), Blob("b_b", ("b",), None)))
    found = [finding for finding in found_in(store, manifest(CUT), outer) if finding.kind == "two scopes"]
    assert [(finding.scope, finding.subject) for finding in found] == [("a", "")]
    assert found[0].text.startswith("20 objects (1000 B) match rules of scope '' too, the first is 'a/tas/c/")


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (("",), ("t/c",), 3),
        (("a/t",), ("",), 3),
        (("a/t", "a/t/c/1"), ("", "t"), 3),
        (("a/t/c/1", "a/u"), ("t", "u/c/0"), 2),
        (("a/u",), ("t",), 0),
        (("a/tt",), ("t",), 0),
        (("a/../a/t",), ("t",), 0),
    ],
)
def test_an_overlap_has_each_object_once(outer: tuple[str, ...], inner: tuple[str, ...], expected: int) -> None:
    store = MemoryStore()
    put_all(store, dict.fromkeys(["a/t/c/0", "a/t/c/1", "a/t/c/2", "a/u/c/0", "a/tt/c/0"], b"12"))
    one = Manifest("a", 1, (), (Blob("b_inner", inner, None),), (Pin("t", "pins decide nothing here"),))
    other = Manifest("", 1, (), (Blob("b_outer", outer, None),))
    found = overlap(Storage(store), one, other)
    assert (found.objects if found else 0) == expected
    assert found is None or found == Overlap(expected, 2 * expected, found.first)


def test_one_scope_is_verified_beside_its_neighbours() -> None:
    store, _ = filled()
    write_store(store, "b", [TAS])
    broken = manifest(CUT, pins=(Pin("no", "x"),), scope="b")
    outer = Manifest("", 3, (), (Blob("b_all", ("",), None),))
    found = found_in(store, manifest(CUT), broken, outer, scope="a")
    assert {(finding.scope, finding.kind) for finding in found} == {("a", "two scopes")}
    with pytest.raises(MissingError, match="scope 'c' has no manifest"):
        found_in(store, broken, scope="c")


def test_manifests_that_cannot_be_read_are_findings() -> None:
    store, manifests = filled()
    partition_store(store, manifests, "a", policy=SMALL)
    root = manifests.storage
    root.put("b/manifest.json", b"{")
    root.put("c/manifest.json", root.get("a/manifest.json").data)
    root.put(".blobmap/state/a.json", b"[]")
    found = verify_manifests(Storage(store), manifests).findings
    assert [(finding.scope, finding.kind, finding.subject) for finding in found] == [
        ("a", "unreadable", "state"),
        ("b", "unreadable", ""),
        ("c", "unreadable", ""),
    ]
    assert verify_manifests(Storage(store), manifests).scopes == ("a", "b", "c")


def test_what_cannot_be_listed_is_told(tmp_path: Path) -> None:
    (tmp_path / "data/a").mkdir(parents=True)
    (tmp_path / "data/a/link").symlink_to(tmp_path.parent)
    (tmp_path / "m").mkdir()
    (tmp_path / "m/link").symlink_to(tmp_path.parent)
    manifests = ManifestStore(LocalStore(tmp_path / "m"))
    manifests.write(manifest(CUT), etag=None)
    problems = verify_manifests(Storage(LocalStore(tmp_path / "data")), manifests).problems
    assert [problem.rpartition(": ")[2] for problem in problems] == [
        "'a/link' could not be listed, and is not verified",
        "'link' could not be listed, and is not verified",
    ]
