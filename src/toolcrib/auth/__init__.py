"""Credentials: the catalogue of providers, OAuth 2.0 flows, the vault of grants, and the broker of the pipeline.

Needs the extra `toolcrib[auth]`: importing this without it raises SetupError.
"""

from ..machinery import raise_missing_extra

try:
    import authlib as authlib  # first: without it this extra is missing, and not one of those that it brings

    from .broker import OPERATOR, CredentialBroker, Needed, secret_owner
    from .catalogue import Client, OAuth2, Provider, load_catalogue
    from .flows import DeviceCode, Flow, FlowError
    from .grant import Grant, Owner
    from .sealed import DatabaseVault
    from .vault import Authorization, CallbackError, Completed, MemoryVault, StoredGrant, Vault
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "Credentials need", "auth")

__all__ = [
    "OPERATOR",
    "Authorization",
    "CallbackError",
    "Client",
    "Completed",
    "CredentialBroker",
    "DatabaseVault",
    "DeviceCode",
    "Flow",
    "FlowError",
    "Grant",
    "MemoryVault",
    "Needed",
    "OAuth2",
    "Owner",
    "Provider",
    "StoredGrant",
    "Vault",
    "load_catalogue",
    "secret_owner",
]
