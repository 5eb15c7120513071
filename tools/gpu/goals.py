"""What was aimed at, beside what was measured: reached or missed. A miss is told and fails nothing."""
import re

# Shares of the rate at which the device copies, bytes read and written together; of the largest size measured,
# which no cache holds.
ALL_REDUCE, REDUCE_KERNELS = 0.8, 0.9


def size_name(count):
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def copy_rate(floors, size):
    """GB/s of a copy of the nearest measured size, read and written together."""
    if not floors:
        return None
    rates = floors["device"]["rates"]["copy"]
    return min(rates, key=lambda rate: abs(rate["bytes"] - size))["gbs"]


def copy_share(floors, row):
    """Of the bytes that all ranks together touch in a fused all_reduce (read n x S, written n x S), or None."""
    rate = copy_rate(floors, row["bytes"])
    return 2 * row["ranks"] * row["bytes"] / row["time_us"] / 1e3 / rate if rate else None


def goal(what, least, share):
    result = "unmeasured" if share is None else "reached" if share >= least else "missed"
    return {"what": what, "goal": least, "share": share, "result": result}


def kernel_goals(floors):
    rates = floors["device"]["rates"]["reduce_f32_sum"] if floors else []
    for sources in (2, 4):
        largest = max((rate for rate in rates if rate["sources"] == sources), key=lambda rate: rate["bytes"], default=None)
        size = f", {size_name(largest['bytes'])}" if largest else ""
        yield goal(f"reduce kernel of {sources} sources{size}", REDUCE_KERNELS, largest["of_copy"] if largest else None)


def all_reduce_goals(steps, floors):
    for step in steps:
        if not re.match(r"all_reduce registered", step["name"]):
            continue
        rows = [row for row in step["data"]["rows"] if row["in_place"]] if step["status"] == "passed" else []
        largest = max(rows, key=lambda row: row["bytes"], default=None)
        size = f", {size_name(largest['bytes'])}" if largest else ""
        yield goal(step["name"] + size, ALL_REDUCE, copy_share(floors, largest) if largest else None)


def judge(document):
    """Of a GPU: the host backend's rates say nothing."""
    if not document["gpu"]:
        return []
    floors = next((step["data"] for step in document["steps"] if step["name"] == "floors" and step["status"] == "passed"), None)
    return [*kernel_goals(floors), *all_reduce_goals(document["steps"], floors)]
