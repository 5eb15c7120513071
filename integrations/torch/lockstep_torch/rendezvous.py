"""How the ranks of a process group find each other: through the store that torch gives to every group."""
import secrets

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
        store.wait([key], timeout)
        note = store.get(key).decode()
        if note.startswith("!"):
            raise RuntimeError(f"the process group cannot start: {note[2:]}")
    address, job, secret = note.split()
    communicator = lockstep.Communicator.create(rank, size, address, job, secret, timeout=timeout.total_seconds())
    return communicator, place
