"""Names of environment variables whose values are likely to be credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_WORD: Final = re.compile(
    r"(^|_)(API_?KEY|ACCESS_?KEY|AUTH|AUTHORIZATION|CREDENTIALS?|PASS|PASSWD|PASSWORD|PASSPHRASE|PAT|PRIVATE_?KEY|PWD|SECRET"
    r"|SECRETS|TOKEN|TOKENS)(_|$)|APIKEY$|TOKEN$|PASSWORD$|SECRET$|(^|_)(KEY|DSN)$|^SSH_AUTH_SOCK$|^DOCKER_HOST$|^KUBECONFIG$",
    re.IGNORECASE,
)
_ORDINARY: Final = frozenset({"PWD", "OLDPWD"})


def credential_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those of *names* that look like a credential, each once, in order. Values are never looked at."""
    return tuple(
        dict.fromkeys(name for name in names if name.upper() not in _ORDINARY and _WORD.search(name))
    )
