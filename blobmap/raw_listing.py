"""ListObjectsV2 by hand: the one request that the client library cannot make, for pages that hold keys it refuses.

Keys come back as they are, odd ones too. Only what a listing needs is here: one signed GET (AWS Signature Version 4,
as AWS documents it under "Signing AWS API requests") and the few elements of its answer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes, urlencode, urlsplit

from blobmap.errors import RefusedError, UnavailableError
from blobmap.objects import RawPage
from blobmap.s3_address import bucket_url, is_anonymous, known_credentials, region_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blobmap.objects import Entry
    from blobmap.s3_address import Credentials

_NO_BODY = hashlib.sha256(b"").hexdigest()
_TRIES = 3
_PAUSE_S = 0.2
_CONTENTS = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_COMMON = re.compile(r"<CommonPrefixes>\s*<Prefix>(.*?)</Prefix>\s*</CommonPrefixes>", re.DOTALL)
_FIELD = re.compile(r"<(Key|LastModified|ETag|Size)>(.*?)</\1>", re.DOTALL)
_TRUNCATED = re.compile(r"<IsTruncated>\s*true\s*</IsTruncated>")
_TOKEN = re.compile(r"<NextContinuationToken>(.*?)</NextContinuationToken>", re.DOTALL)
_REFERENCE = re.compile("&(#[xX][0-9a-fA-F]{1,5}|#[0-9]{1,6}|amp|lt|gt|quot|apos);")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_URL_ENCODED = re.compile(r"<EncodingType>\s*url\s*</EncodingType>")


@dataclass(frozen=True, slots=True)
class RawListing:
    """Where and as whom to list.

    Attributes:
        name: what messages call it.
        url: of the bucket.
        region: what requests are signed for.
        credentials: what to sign with; None: do not sign.
        root: prefix of the bucket at which the store begins; "" is the whole bucket.
        timeout_s: seconds that one request may take.
    """

    name: str
    url: str
    region: str
    credentials: Credentials | None
    root: str = ""
    timeout_s: float = 30.0

    def pages(self, prefix: str, after: str | None, *, by_level: bool = False) -> Iterator[RawPage]:
        """The listing below a prefix of the store, greater than `after`; or one level of it.

        Raises:
            RefusedError: the server does not serve us.
            UnavailableError: the server cannot be reached, or fails.
        """
        base = f"{self.root}/" if self.root else ""
        query = {"list-type": "2", "encoding-type": "url", "prefix": f"{base}{prefix}/" if prefix else base}
        if by_level:
            query["delimiter"] = "/"
        if after is not None:
            query["start-after"] = base + after
        token: str | None = ""
        while token is not None:
            text = self._answer(query)
            yield _read_page(text, len(base))
            token = _first(_TOKEN, text) if _TRUNCATED.search(text) else None
            query["continuation-token"] = token or ""

    def _answer(self, query: Mapping[str, str]) -> str:
        url = f"{self.url}?{urlencode(sorted(query.items()), quote_via=quote, safe='-_.~', errors='surrogateescape')}"
        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                return self._fetch(url)
            except UnavailableError:
                if not tries_left:
                    raise
            time.sleep(_PAUSE_S)

    def _fetch(self, url: str) -> str:
        # Slow to import, and hardly ever needed.
        from urllib.error import HTTPError  # noqa: PLC0415 - see above
        from urllib.request import Request, urlopen  # noqa: PLC0415 - see above

        headers = _signed(url, self.region, self.credentials, datetime.now(UTC))
        try:
            # The scheme was checked with the endpoint.
            with urlopen(Request(url, headers=headers), timeout=self.timeout_s) as answer:  # noqa: S310
                return str(answer.read().decode())
        except HTTPError as error:
            kind = UnavailableError if error.code >= 500 else RefusedError
            raise kind(f"{self.name}: the server did not list odd keys (HTTP {error.code})") from error
        except OSError as error:
            raise UnavailableError(f"{self.name}: the server did not list odd keys: {error}") from error


def raw_listing_of(
    config: Mapping[str, str], environment: Mapping[str, str], *, name: str, root: str, timeout_s: float
) -> RawListing | None:
    """The listing of the bucket of a store; None where only the client library has the credentials (those of a role).

    Args:
        config: of an obstore S3Store, as it gives it back.
        environment: the variables that it was made under.
        name: what messages call it.
        root: prefix of the bucket at which the store begins.
        timeout_s: seconds that one request may take.
    """
    credentials = None if is_anonymous(config, environment) else known_credentials(config, environment)
    if credentials is None and not is_anonymous(config, environment):
        return None
    url, region = bucket_url(config, environment), region_of(config, environment)
    return RawListing(name, url, region, credentials, root, timeout_s)


def _read_page(text: str, base_length: int) -> RawPage:
    is_encoded = _URL_ENCODED.search(text) is not None
    objects: list[Entry] = []
    for contents in _CONTENTS.findall(text):
        fields = dict(_FIELD.findall(contents))
        objects.append(
            {
                "path": _name(fields["Key"], is_encoded=is_encoded)[base_length:],
                "last_modified": datetime.fromisoformat(fields["LastModified"].strip()),
                "size": int(fields["Size"]),
                "e_tag": _unescape(fields.get("ETag", "")) or None,
                "version": None,
            }
        )
    prefixes = tuple(_name(prefix, is_encoded=is_encoded)[base_length:] for prefix in _COMMON.findall(text))
    return RawPage(tuple(objects), prefixes)


def _unescape(text: str) -> str:
    """The text that an XML text stands for. A server may write control characters as XML does not allow them."""
    return _REFERENCE.sub(_referred, text)


def _referred(found: re.Match[str]) -> str:
    name = found.group(1)
    if name in _NAMED:
        return _NAMED[name]
    digits = name.removeprefix("#").lower()
    return chr(int(digits.removeprefix("x"), base=16 if digits.startswith("x") else 10))


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return _unescape(found.group(1)) if found else None


def _name(text: str, *, is_encoded: bool) -> str:
    text = _unescape(text)
    if not is_encoded:
        return text
    # Bytes that are no UTF-8 stay apart from all that is.
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "surrogateescape")


def _signed(url: str, region: str, credentials: Credentials | None, now: datetime) -> dict[str, str]:
    """The headers of a GET; signed, where there are credentials."""
    if credentials is None:
        return {}
    parts = urlsplit(url)
    headers = {"host": parts.netloc, "x-amz-content-sha256": _NO_BODY, "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"GET\n{parts.path or '/'}\n{parts.query}\n{lines}\n{names}\n{_NO_BODY}"
    scope = f"{now:%Y%m%d}/{region}/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers
