"""The next epoch of a scope: above every one that was ever written, and remembered before it is written itself.

Source: `epoch` and "Beside the manifests" of the manifest format. An epoch that is remembered and never written leaves
a gap, which nobody minds; one that is written and not remembered could be given twice once the manifest is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blobmap.state import change_state

if TYPE_CHECKING:
    from blobmap.manifests import ManifestStore
    from blobmap.state import ScopeState


class Epochs:
    """Gives epochs for the attempts of one change to the manifest of one scope.

    Args:
        manifests: the manifest root.
        scope: whose manifest is to be changed.
    """

    def __init__(self, manifests: ManifestStore, scope: str) -> None:
        self._manifests = manifests
        self._scope = scope
        self._given = 0

    def above(self, *known: int) -> int:
        """Give an epoch above those known, and above the highest that is remembered.

        What an earlier attempt of this change was given and did not write does not count.

        Raises:
            ManifestError: what is remembered cannot be read.
            RefusedError: the manifest root may not be written, or does not keep two writers apart.
            ConflictError: others kept changing what is remembered.
            UnavailableError: the manifest root cannot be reached.
        """
        self._manifests.check_conditions()
        given = 0

        def change(state: ScopeState) -> ScopeState:
            nonlocal given
            highest = state.highest_epoch - (state.highest_epoch == self._given)
            given = max(highest, *known) + 1
            return replace(state, highest_epoch=max(state.highest_epoch, given))

        change_state(self._manifests.storage, self._scope, change)
        self._given = given
        return given
