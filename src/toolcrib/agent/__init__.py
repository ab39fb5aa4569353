"""A model that uses a workbench: the contract of a model, the clients of providers, and the loop."""

from .model import Model, ModelError, ModelProblem, Request

__all__ = ["Model", "ModelError", "ModelProblem", "Request"]
