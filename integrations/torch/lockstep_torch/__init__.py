"""lockstep as a backend of torch.distributed, for tensors in host memory.

    import lockstep_torch                                # with the package's metadata installed, torch imports it by itself
    torch.distributed.init_process_group("lockstep")     # then DDP, FSDP and all other calls, unchanged

Needs torch 2.1 or later.
"""
import torch.distributed

from .memory import empty
from .process_group import ProcessGroupLockstep, create

__all__ = ["ProcessGroupLockstep", "empty", "register"]


def register():
    """Makes the name "lockstep" known to torch.distributed. Importing the package does it; torch calls it for its entry point."""
    if "LOCKSTEP" not in torch.distributed.Backend._plugins:
        torch.distributed.Backend.register_backend("lockstep", create, extended_api=True, devices=["cpu"])
    # From 2.15 on torch hooks a recorder of calls to every group whose backend is not known to have its own, as lockstep has; a
    # group that is written in Python has nothing to hook it to.
    recording = getattr(torch.distributed.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if recording is not None:
        recording.add("lockstep")


register()
