"""Which model this is: a digest of all its weights."""

import hashlib

import torch
from torch import nn

from repsurgery.lm.sites import unwrapped

__all__ = ["fingerprint"]


def fingerprint(model: nn.Module, *, ignore_dtype: bool = False) -> str:
    """Return the SHA-256 of every weight and kept buffer of ``model``, by name and shape.

    With ``ignore_dtype`` they are rounded to bfloat16 first, so that a model loaded in bfloat16 and in float32 is
    the same one.
    """
    sha = hashlib.sha256()
    for name, tensor in sorted(unwrapped(model).state_dict().items()):
        rounded = tensor.to(torch.bfloat16) if ignore_dtype and tensor.is_floating_point() else tensor
        plain = rounded.detach().cpu().contiguous()
        sha.update(f"{name}|{tuple(plain.shape)}|{plain.dtype}|".encode())
        sha.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
