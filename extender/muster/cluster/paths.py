"""Paths of the API, made in one place: every part is validated as the API server does and escaped, so that a name
that a tenant wrote (an owner reference, a claim) never reaches another path.

Sources: apimachinery pkg/util/validation (IsDNS1123Label, IsDNS1123Subdomain), pkg/api/validation/path.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from muster.cached import MIB, cached
from muster.errors import InputError

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_VERSION = re.compile(rf"({_LABEL}(\.{_LABEL})*/)?v[0-9]+((alpha|beta)[0-9]+)?")
_PLURAL = re.compile(_LABEL)
_NAME = re.compile(r"[^/%?#\x00-\x20\x7f]{1,253}")
"""A segment of a path; most kinds take less, but some (Roles, APIServices) have ":" in their names."""


@cached("paths", 8 * MIB)
def path(version: str, plural: str = "", namespace: str = "", name: str = "", part: str = "") -> str:
    """The path of a resource: "/apis/batch/v1/namespaces/team/jobs/train". version: "v1" or "group/version" as in an
    object; without a plural, of the version itself. part: a subresource.

    Raises InputError for what can be no path, with what was found.
    """
    if not _VERSION.fullmatch(version) or len(version) > 300:
        raise InputError(f'expected an apiVersion such as "v1" or "batch/v1", found {version[:80]!r}')
    parts = [f"/apis/{version}" if "/" in version else f"/api/{version}"]
    if namespace:
        if not _PLURAL.fullmatch(namespace):
            raise InputError(f"expected the name of a namespace, found {namespace[:80]!r}")
        parts += ["namespaces", namespace]
    for found in (plural, part):
        if found and not _PLURAL.fullmatch(found):
            raise InputError(f"expected a resource in plural, found {found[:80]!r}")
    if plural:
        parts.append(plural)
    if name:
        parts.append(segment(name))
    if part:
        parts.append(part)
    return "/".join(parts)


def segment(name: str) -> str:
    """A name as one segment of a path. Raises InputError where it can be none."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InputError(f"expected the name of an object, found {name[:80]!r}")
    return quote(name, safe=":")
