"""A file and the environment become `Settings`, or every fault in them is told at once.

The environment wins over the file: `BLOBMAP_SOURCE__PREFETCH=500` is `prefetch` of `[source]`; lists are JSON. Secrets
may come from files: `BLOBMAP_AMQP__PASSWORD_FILE=/run/secrets/amqp`.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from blobmap.errors import UsageError
from consumer.faults import between_sections, describe, nearest
from consumer.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Tree: TypeAlias = dict[str, Any]

_PREFIX = "BLOBMAP_"


def load_settings(path: Path | None) -> Settings:
    """Reads the configuration.

    Args:
        path: TOML file; None: the environment says it all.

    Returns:
        The settings, checked.

    Raises:
        UsageError: one line a fault, each with its place and what is allowed.
    """
    from_file = {} if path is None else _read_file(path)
    from_environment, faults = _read_environment()
    merged = _merged(from_file, from_environment)
    file_name = "configuration" if path is None else path.name

    def place(location: tuple[int | str, ...]) -> str:
        if _holds(from_environment, location):
            return _variable([str(part) for part in location])
        return f"{file_name}: {'.'.join(map(str, location))}"

    settings = None
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        faults += [f"{place(tuple(fault['loc']))}: {describe(fault, Settings, merged)}" for fault in error.errors()]
    faults += [f"{file_name}: {fault}" for fault in between_sections(merged)]
    if faults or settings is None:
        raise UsageError("\n".join(faults))
    return settings


def _read_file(path: Path) -> Tree:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from error


def _read_environment() -> tuple[Tree, list[str]]:
    """What the variables say, and what is wrong with them."""
    faults = list(_unknown_variables())
    try:
        tree: Tree = EnvSettingsSource(Settings)()
    except SettingsError as error:
        return {}, [*faults, f"{error}: a list has to be JSON"]
    for path in _leaves(Settings, secret=True):
        variable = _variable(path) + "_FILE"
        file = os.environ.get(variable)
        if file is None:
            continue
        section = tree.setdefault(path[0], {})
        section.pop(f"{path[1]}_file", None)
        if path[1] in section:
            faults.append(f"{variable}: {_variable(path)} is given too, and only one of them can hold")
            continue
        try:
            section[path[1]] = Path(file).read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"{variable}: {file!r} cannot be read: {error}")
    return tree, faults


def _unknown_variables() -> Iterator[str]:
    """Variables that are meant for us, and that nothing reads.

    What merely begins with our prefix may belong to another program: a name has to look like a key, or nearly be one.
    """
    known = {_variable(path) for path in _leaves(Settings)}
    secret = {_variable(path) + "_FILE" for path in _leaves(Settings, secret=True)}
    sections = {_variable([name]) for name in Settings.model_fields}
    for name in sorted(os.environ):
        variable = name.upper()
        if not variable.startswith(_PREFIX) or variable in known or variable in secret or variable in sections:
            continue
        close = nearest(variable.removeprefix(_PREFIX), (key.removeprefix(_PREFIX) for key in known))
        if "__" in variable or close is not None:
            yield f"{name}: unknown variable" + (f"; the nearest one is {_PREFIX}{close}" if close else "")


def _leaves(model: type[BaseModel], above: tuple[str, ...] = (), *, secret: bool = False) -> Iterator[list[str]]:
    """The path of every key that a variable can set; with `secret`, of those that hold a secret."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *(() if get_origin(field.annotation) is tuple else get_args(field.annotation)))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is not None:
            yield from _leaves(inner, (*above, name), secret=secret)
        elif not secret or SecretStr in kinds:
            yield [*above, name]


def _variable(path: list[str]) -> str:
    return _PREFIX + "__".join(path).upper()


def _merged(below: Tree, above: Mapping[str, Any]) -> Tree:
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        result[name] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return result


def _holds(tree: object, location: tuple[int | str, ...]) -> bool:
    for part in location:
        if not isinstance(tree, dict) or part not in tree:
            return False
        tree = tree[part]
    return True
