"""Proofs that both ends of a link know the cluster's token, without saying it. Pure.

Each holds for one link: it is made over the certificate that this end sees and the instance that the node chose. Who
stands between the two ends has another certificate, and can pass neither proof on.
"""

import hashlib
import hmac


def node_proof(token: str, fingerprint: str, instance: str) -> str:
    """That of a node, for HELLO."""
    return _proof(token, "node", fingerprint, instance)


def home_proof(token: str, fingerprint: str, instance: str) -> str:
    """That of the supervisor, for WELCOME."""
    return _proof(token, "home", fingerprint, instance)


def is_same(expected: str, shown: str) -> bool:
    """Whether a secret or a proof is the one that was expected, which is not empty; takes the same time in any case."""
    return bool(expected) and hmac.compare_digest(expected.encode(), shown.encode())


def _proof(token: str, *parts: str) -> str:
    return hmac.digest(token.encode(), "\0".join(parts).encode(), hashlib.sha256).hex()
