"""The results as JSON: one row for each operation, size, transport and kind of buffers."""
import dataclasses
import statistics

# Which floor a kind of buffers is measured beside; over TCP the variants differ by congestion control.
FLOOR_OF = {("shm", "registered"): "registered", ("shm", "private"): "staged", ("tcp", "private"): "tcp-"}


def peers_of(schedule, cell, transport):
    """{peer: {variant: us}} of what a transport is compared with."""
    found = {}
    for (c, entry), samples in schedule.samples.items():
        job = entry.job
        if c != cell or job.peer in ("lockstep", "floors") or job.transport not in (transport, "any"):
            continue
        variant = entry.variant if entry.variant != "default" else job.mode
        found.setdefault(job.peer, {})[variant] = round(samples.us, 3)
    return found


def floor_of(schedule, cell, transport, buffers):
    """The floor's time, or None; over TCP with the better congestion control."""
    wanted = FLOOR_OF[transport, buffers]
    times = [samples.us for (c, entry), samples in schedule.samples.items()
             if c == cell and entry.job.peer == "floors" and (entry.variant == wanted or
                                                              wanted.endswith("-") and entry.variant.startswith(wanted))]
    return min(times, default=None)


def touched_bytes(row):
    """Bytes that all ranks of an all_reduce read and write: 2 messages a rank fused, 5 - 2/n staged. None elsewhere."""
    if row["op"] != "all_reduce" or row["transport"] != "shm":
        return None
    n = row["ranks"]
    each = {"registered": 2, "private": 5 - 2 / n}[row["buffers"]]
    return n * each * row["bytes"]


def rate_for(rates, size):
    """The rate of the largest size class up to `size`."""
    classes = sorted(int(key) for key in rates)
    fitting = [c for c in classes if c <= size] or classes[:1]
    return rates[str(fitting[-1])]


def add_shares(row, limits):
    touched = touched_bytes(row)
    if touched is None or row["bytes"] < 8192 or not limits.get("add_gbs"):
        return
    row["touched_gbs"] = round(touched / row["ours_us"] * 1e-3, 2)
    row["share_of_add"] = round(row["touched_gbs"] / rate_for(limits["add_gbs"], row["bytes"]), 3)
    row["share_of_copy"] = round(row["touched_gbs"] / rate_for(limits["copy_gbs"], row["bytes"]), 3)


def make_rows(schedule, limits):
    rows = []
    for cell in schedule.cells:
        for (c, entry), samples in schedule.samples.items():
            if c != cell or entry.job.peer != "lockstep" or entry.kind:
                continue
            transport = entry.job.transport
            peers = peers_of(schedule, cell, transport)
            best = {peer: min(times.values()) for peer, times in peers.items()}
            best_peer = min(best, key=best.get, default=None)
            row = {"op": cell.op, "ranks": cell.ranks, "bytes": cell.bytes, "transport": transport, "buffers": entry.variant,
                   "ours_us": round(samples.us, 3), "algorithm": samples.answers[-1].algorithm, "peers": best,
                   "best_peer": best_peer, "ratio": round(samples.us / best[best_peer], 4) if best else None,
                   "variants": peers, "rounds": len(samples.answers),
                   "ours_p95_us": round(statistics.median(answer.p95 for answer in samples.answers), 3)}
            floor = floor_of(schedule, cell, transport, entry.variant)
            if floor:
                row |= {"floor_us": round(floor, 3), "ratio_to_floor": round(samples.us / floor, 3)}
            add_shares(row, limits)
            rows.append(row)
    return rows


def kind_rows(schedule):
    """all_reduce of other types and operators, beside the f32 sum of the same run: the bytes are the same, and so are those touched."""
    found = []
    for (cell, entry), samples in schedule.samples.items():
        plain = schedule.samples.get((cell, dataclasses.replace(entry, variant=entry.buffers)))
        if entry.kind and plain:
            found.append({"kind": entry.kind, "ranks": cell.ranks, "bytes": cell.bytes, "buffers": entry.buffers, "us": round(samples.us, 3),
                          "f32_sum_us": round(plain.us, 3), "ratio": round(samples.us / plain.us, 3)})
    return found


def floor_rows(schedule):
    return [{"floor": entry.variant, "ranks": cell.ranks, "bytes": cell.bytes, "us": round(samples.us, 3)}
            for (cell, entry), samples in schedule.samples.items() if entry.job.peer == "floors"]
