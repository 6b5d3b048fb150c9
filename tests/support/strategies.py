"""Hypothesis strategies: manifests that overlap, and keys that lie in, beside and across what they name."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from blobmap.manifest import Blob, Bucket, Manifest, Pin

# Names that programs have stumbled over: globs, escapes, two spellings of one letter, numbers, the `c` of zarr v3.
AWKWARD: Final = (
    "a", "b", "a.b", "a b", "100%", "100%25", "a+b", "hash#x", "star*", "*", "**", "[v0]", "(°C)", "t", "t2m", "t_bnds",
    "\u00fc", "u\u0308", "c", "0", "1", "7", "10", "05", "0.0", "1.5", "c.0", "zarr.json.bak", ".zarray", "zarr.json",
    "\x00", "\ud800",
)  # fmt: skip
ODD: Final = ("", ".", "..", "+5", "-1", "1_0", "\u0665", "\u00b2", "00", "01", "0x1", "1e3", " 1", "1\n", "c", "x")

segments = st.sampled_from(AWKWARD)
paths = st.lists(segments, max_size=3).map("/".join)
written_prefixes = st.tuples(paths, st.sampled_from(["", "", "/", "//"])).map("".join)
hot_patterns = st.one_of(
    st.tuples(paths, st.sampled_from(["/**", "/*", "**", "*", "", "/"])).map("".join),
    segments.map("**/{}".format),
    st.sampled_from(["**", "*", "", "/", "**/", "**/a/b", "**/**", "**/0", "**/0.0"]),
)
identifiers = st.sampled_from(["b_a", "b_b", "b_a_1", "b_", "0"])
buckets = st.builds(
    Bucket,
    index=st.sampled_from([0, 0, 0, 1, 1, 2]),
    width=st.sampled_from([1, 2, 3, 7, 10, 64, 100, 2**63 - 1]),
    key_encoding=st.sampled_from(["v3_slash", "v2_slash", "v2_flat"]),
)
blobs = st.builds(
    Blob,
    id=identifiers,
    prefixes=st.lists(written_prefixes, min_size=1, max_size=2).map(tuple),
    bucket=st.none() | buckets | buckets,
)
pins = st.builds(Pin, prefix=written_prefixes, reason=st.just("kept"))


def manifests(scopes: st.SearchStrategy[str] = paths) -> st.SearchStrategy[Manifest]:
    return st.builds(
        Manifest,
        scope=scopes,
        epoch=st.integers(1, 3),
        hot_always=(st.just([]) | st.lists(hot_patterns, max_size=2)).map(tuple),
        blobs=st.lists(blobs, max_size=4).map(tuple),
        pinned=(st.just([]) | st.lists(pins, max_size=1)).map(tuple),
    )


bunches = st.lists(manifests(), min_size=1, max_size=4, unique_by=lambda manifest: manifest.scope)

indices = st.one_of(st.integers(0, 12), st.integers(0, 120), st.integers(0, 10**20)).map(str)
parts = st.lists(indices, min_size=1, max_size=4)
odd_parts = st.lists(indices | st.sampled_from(ODD), min_size=1, max_size=4)


def spelled(lead: str, separator: str, below: list[str]) -> str:
    return separator.join([*([lead] if lead else []), *below])


chunks = st.builds(spelled, st.sampled_from(["", "", "c"]), st.sampled_from(["/", "/", "."]), parts | parts | odd_parts)


@st.composite
def chunk_keys(draw: st.DrawFn, manifest: Manifest) -> str:
    """A chunk of one of the rules, well formed but for seldom exceptions."""
    blob = draw(st.sampled_from(manifest.blobs))
    encoding = blob.bucket.key_encoding if blob.bucket else "v3_slash"
    lead = "c" if encoding != "v2_slash" and blob.bucket and blob.bucket.index and draw(st.booleans()) else ""
    below = spelled(lead, "." if encoding == "v2_flat" else "/", draw(parts | parts | parts | odd_parts))
    return "/".join(part for part in (manifest.scope, blob.prefixes[0].removesuffix("/"), below) if part)


@st.composite
def keys_about(draw: st.DrawFn, bunch: list[Manifest]) -> str:
    """A key at or below something that one of the manifests names; seldom quite another one."""
    manifest = draw(st.sampled_from(bunch))
    if draw(st.booleans()) and manifest.blobs:
        return draw(chunk_keys(manifest))
    rules = [prefix for blob in manifest.blobs for prefix in blob.prefixes]
    others = [pin.prefix for pin in manifest.pinned] + [pattern.strip("*/") for pattern in manifest.hot_always]
    prefix = draw(st.sampled_from([*rules, *others, ""]) | paths).removesuffix("/")
    scope = draw(st.sampled_from([manifest.scope, manifest.scope, ""]))
    below = draw(chunks | paths | st.just("") | st.text(max_size=4))
    return "/".join(part for part in (scope, prefix, below) if part)


@st.composite
def bunches_and_keys(draw: st.DrawFn) -> tuple[list[Manifest], list[str]]:
    bunch = draw(bunches)
    return bunch, draw(st.lists(keys_about(bunch), min_size=1, max_size=12))
