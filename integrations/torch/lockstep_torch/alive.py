"""Alive: the works of a group that nobody has asked for their outcome yet."""
import torch

_OFTEN = 64  # so many, or twice as many as were left last time, are looked through

# Before, a Work of which torch's C++ held its half alone (functional collectives) lost the half in Python, which knows the outcome.
_CXX_HOLDS_BOTH_HALVES = torch.__version__ >= torch.torch_version.TorchVersion("2.7")


class Alive:
    """Holds them until they have ended: what came into a copy is then written to its tensors. For any thread."""

    def __init__(self):
        self._works = set()
        self._look_at = _OFTEN
        self._forgotten = None  # the last one, where torch's C++ may have more to ask

    def __len__(self):
        return len(self._works)

    def add(self, work):
        if len(self._works) >= self._look_at:
            self._let_go()
        self._works.add(work)

    def forget(self, work):
        self._works.discard(work)
        if not _CXX_HOLDS_BOTH_HALVES:  # DDP's join asks for the future of what it has waited for, others wait again
            self._forgotten = work

    def collectives(self):
        return [work for work in self._now() if work.collective]

    def _now(self):
        return list(self._works)  # In one go: other threads, and is_completed(), forget works meanwhile.

    def _let_go(self):
        for work in self._now():
            if work.is_completed() and (_CXX_HOLDS_BOTH_HALVES or not work.collective):
                self.forget(work)
        self._look_at = max(_OFTEN, 2 * len(self._works))
