"""The reports: everything as JSON, the essence as Markdown."""
import json
import re
import textwrap

from goals import copy_share, size_name
from measurements import UNDER_MPS

HOPS = {"host": "host", "stream": "stream", "kernel_behind_host": "host, then a kernel", "kernel_behind_stream": "stream, then a kernel",
        "copy_behind_stream": "stream, then a copy", "event_behind_stream": "stream, then a timed event", "kernel": "kernel"}
CLOCKS = ("Processes that take turns on the GPU are timed by the host's clock, from the call to its end on the stream, all others between "
          "two events around the call.")
NOT_CACHED = 128 << 20  # From here on no cache of a GPU holds what is copied.


def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "|" + "|".join([" --- "] + [" --: "] * (len(heading) - 1)) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def number(value, digits=1):
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def floors_section(step, under_mps=None):
    lines = ["## Floors"]
    if step["status"] != "passed":
        return lines + [f"unmeasured: {step['why'] or step['status']}"]
    floors = step["data"]
    rates = floors["device"]["rates"]
    lines += [f"A kernel that only looks at a flag and sets it, between two events: {rates['flag_kernel_us']:.1f} us.", "",
              "Rates, bytes read and written together, GB/s:", ""]
    reductions = {(rate["bytes"], rate["sources"]): rate for rate in rates["reduce_f32_sum"]}
    rows = [[size_name(rate["bytes"]), number(rate["gbs"])]
            + [f"{reductions[rate['bytes'], n]['gbs']:,.1f} ({100 * reductions[rate['bytes'], n]['of_copy']:.0f} %)" for n in (2, 4)]
            for rate in rates["copy"]]
    lines += table(["bytes", "copy", "reduce 2 sources (of copy)", "reduce 4 sources (of copy)"], rows)
    lines += ["", "A token handed on by processes that share a device, microseconds a hop, by who waits for it, and with a kernel behind each wait. "
              "It lies in pinned memory of the host: device_sync, whose flags lie in device memory, has no floor here. "
              "Start: until the last of them has the device, milliseconds.", ""]
    rows = hop_rows(floors, "")
    if under_mps and under_mps["status"] == "passed":
        rows += hop_rows(under_mps["data"], UNDER_MPS)
    return lines + table(["ranks", *HOPS.values(), "start ms"], rows)


def hop_rows(floors, where):
    return [[f"{hop['ranks']}{where}"] + [number(hop.get(way, "unmeasured"), 2) for way in HOPS] + [number(hop.get("start_ms", "unmeasured"), 0)]
            for hop in floors["hop_us"]]


def mode_of(step):
    """As the library said it, in "lockstep 0.1.0, stream_sync: ..."."""
    found = re.search(r"\b(host|stream|device)_sync\b", " ".join(step["data"]["notes"]))
    return found[0] if found else ""


def all_reduce_section(steps, floors):
    lines = ["## all_reduce, registered buffers, in place",
             "Share of the copy rate, from 128M on: bytes touched (read n x S, written n x S) by all ranks together. " + CLOCKS, ""]
    rows = []
    for step in steps:
        if not re.match(r"all_reduce registered", step["name"]):
            continue
        ranks = step["name"].split(", ", 1)[1]
        if step["status"] != "passed":
            rows.append([ranks, "", "", "unmeasured", "", "", ""])
            continue
        for row in step["data"]["rows"]:
            if not row["in_place"]:
                continue
            measured = copy_share(floors, row) if row["bytes"] >= NOT_CACHED else None
            share = f"{100 * measured:.0f} %" if measured else ""
            rows.append([ranks, mode_of(step), size_name(row["bytes"]), number(row["time_us"]), number(row["p99_us"]), number(row["busbw_gbs"], 2), share])
    return lines + table(["ranks", "mode", "bytes", "us", "p99 us", "busbw GB/s", "of the copy rate"], rows)


def floor_rows(floors):
    """An empty kernel, and a kernel that waits for the flag of another rank and sets the next."""
    if not floors:
        return ["", "The floor (an empty kernel, a flag from kernel to kernel): unmeasured."]
    hops = ", ".join(f"{number(hop['kernel'], 2)} us among {hop['ranks']}" for hop in floors["hop_us"])
    return ["", f"The floor: a kernel that only looks at a flag and sets it takes {floors['device']['rates']['flag_kernel_us']:.1f} us, "
            f"a flag in pinned memory of the host from kernel to kernel {hops} ranks. Those of device_sync lie in device memory."]


def latency_section(steps, floors, heading, kind):
    lines = [f"## {heading}", "all_reduce in place, microseconds, median (99th percentile). " + CLOCKS, ""]
    rows, sizes = [], [8, 512, 4096, 32768]
    for step in steps:
        match = re.match(kind + r" (\w+), (.+)", step["name"])
        if not match:
            continue
        times = {row["bytes"]: row for row in (step["data"] or {"rows": []})["rows"] if row["in_place"]} if step["status"] == "passed" else {}
        rows.append([match[1], match[2]] + [f"{times[size]['time_us']:.1f} ({times[size]['p99_us']:.1f})" if size in times else "unmeasured" for size in sizes])
    return lines + table(["mode", "ranks"] + [size_name(size) for size in sizes], rows) + floor_rows(floors)


def beside_section(steps):
    step = next(step for step in steps if step["name"] == "beside NCCL")
    lines = ["## Beside NCCL"]
    if step["status"] != "passed":
        return lines + [f"unmeasured: {step['why'] or step['status']}"]
    lines += [f"- {note}" for note in step["data"]["notes"]] + [""]
    rows = [[row["op"], size_name(row["bytes"]), row["library"], number(row["time_us"]), number(row["p99_us"]), number(row["busbw_gbs"], 2), row["wrong"]]
            for row in step["data"]["rows"] if row["in_place"]]
    return lines + table(["operation", "bytes", "library", "us", "p99 us", "busbw GB/s", "wrong"], rows)


def goals_section(goals):
    lines = ["## Goals", "Shares of the device's copy rate, of the largest size measured.", ""]
    rows = [[goal["what"], f"{100 * goal['goal']:.0f} %", "" if goal["share"] is None else f"{100 * goal['share']:.0f} %", goal["result"]] for goal in goals]
    return lines + table(["what", "goal", "measured", "result"], rows) if goals else ["## Goals", "unmeasured: there is no GPU"]


def markdown(document):
    gpu, steps = document["gpu"], document["steps"]
    where = f"{gpu['name']} (driver {gpu['driver_version']}, MPS {'on' if gpu['mps'] else 'off'})" if gpu else (
        "**no GPU**: the host backend ran the same operations on threads; its times say nothing about a GPU" if document["device"] == "host"
        else "**no GPU was found**; everything is unmeasured")
    machine = document["machine"]
    lines = [f"# gpu-check, {document['date']}", "",
             f"lockstep {document['commit']} on {where}; {machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}. "
             f"Written by tools/gpu-check in {document['seconds']:.0f} s.", ""]
    by_name = {step["name"]: step for step in steps}
    if "floors" in by_name:
        lines += goals_section(document["goals"]) + [""]
        floors = by_name["floors"]["data"]
        for section in (floors_section(by_name["floors"], by_name.get("floors" + UNDER_MPS)), all_reduce_section(steps, floors), latency_section(steps, floors, "Small messages by mode", "latency"),
                        latency_section(steps, floors, "Calls replayed from a graph", "graph replay"), beside_section(steps)):
            lines += section + [""]
    lines += ["## Steps"] + table(["step", "result", "s", "why"],
                                  [[step["name"], step["status"], step["seconds"], " ".join(step["why"].splitlines()[-2:]).replace("|", "/")] for step in steps])
    return "\n".join(map(wrapped, "\n".join(lines).split("\n"))) + "\n"


def wrapped(line):
    """Prose, as the repository's documents have it."""
    if line.startswith(("|", "#")):
        return line
    return textwrap.fill(line, 120, subsequent_indent="  " if line.startswith("- ") else "", break_long_words=False, break_on_hyphens=False)


def write(document, folder):
    device = document["gpu"]["name"] if document["gpu"] else f"no-gpu-{document['device']}"
    name = f"gpu-{document['date'][:10]}-" + re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    for path, text in zip(paths, (json.dumps(document, indent=1) + "\n", markdown(document)), strict=True):
        part = path.with_suffix(".part")  # The machine may be taken away in the midst.
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return paths
