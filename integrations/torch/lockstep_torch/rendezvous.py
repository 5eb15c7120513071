"""How the ranks of a process group find each other: through the store that torch gives to every group."""
import secrets

import torch.distributed as dist

import lockstep


def join(store, rank, size, timeout):
    """The group's communicator, and what rank 0 serves while it lives. Blocks until all ranks are there; timeout: a timedelta."""
    place = None
    # A program may destroy its group and make another, and the store still has what was said for the first.
    key = f"meeting {store.add(f'meetings of {rank}', 1)}"
    if rank == 0:
        job, secret = secrets.token_hex(8), secrets.token_hex(16)
        try:
            place = lockstep.Rendezvous(job, secret)
            note = f"{place.address} {job} {secret}"
        except lockstep.Error as error:
            store.set(key, f"! rank 0 cannot serve the meeting: {error}")
            raise
        store.set(key, note)
    else:
        note = _note_of_rank_0(store, key, timeout)
        if note.startswith("!"):
            raise RuntimeError(f"the process group cannot start: {note[2:]}")
    address, job, secret = note.split()
    communicator = lockstep.Communicator.create(rank, size, address, job, secret, timeout=timeout.total_seconds())
    return communicator, place


def _note_of_rank_0(store, key, timeout):
    try:
        store.wait([key], timeout)
        return store.get(key).decode()
    except RuntimeError as error:  # torch's store knows of keys, and of no ranks
        code = lockstep.ErrorCode.TIMEOUT
        if isinstance(error, getattr(dist, "DistNetworkError", ())):
            code = lockstep.ErrorCode.SYSTEM
        raise lockstep.Error(code, "the process group cannot start: rank 0 of it has not said where the ranks meet, because it "
                             f"is late or has ended, or this rank cannot reach the store of torch: {error}", 0) from error
