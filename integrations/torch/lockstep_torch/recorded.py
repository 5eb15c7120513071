"""recorded: shows a group's calls in torch.profiler, from their start to their end, as PyTorch's own backends do."""
import functools

import torch
from torch.autograd.profiler import record_function


def recorded(name):
    """Of a method that returns a LockstepWork; without a profiler it costs one question."""
    label = f"lockstep:{name}"

    def decorate(method):
        @functools.wraps(method)
        def call(*arguments, **options):
            if not torch.autograd._profiler_enabled():  # pylint: disable=protected-access
                return method(*arguments, **options)
            with record_function(label) as record:
                work = method(*arguments, **options)
                work.keep_open(record)
            return work
        return call
    return decorate
