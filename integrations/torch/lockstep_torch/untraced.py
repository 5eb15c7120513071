"""untraced: keeps torch.compile out of a class whose methods torch's C++ calls."""
import types

from torch._C._dynamo import eval_frame as frames


def untraced(cls):
    """Of a compiled model DDP calls its process group in between, and the compiler would go on into these calls and fail at them. Done by
    the marks that torch's own decorators set, without these, for which the whole compiler would be loaded."""
    for member in vars(cls).values():
        function = member.fget if isinstance(member, property) else member
        if isinstance(function, types.FunctionType):
            _leave_out(function.__code__)
    return cls


def _leave_out(code):
    if hasattr(frames, "set_code_exec_strategy"):  # from 2.7 on
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    elif hasattr(frames, "skip_code"):  # A version that has neither is used without torch.compile.
        frames.skip_code(code)
