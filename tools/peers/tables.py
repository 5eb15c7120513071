"""Tables of results, as plain text or as Markdown."""
from options import size_name

PEERS = ["openmpi", "mpich", "gloo"]
TITLES = {"openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo"}
BUFFERS = {"shm": ["registered", "private"], "tcp": ["private"]}


def number(us):
    """Three digits that count."""
    if us is None:
        return "-"
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}" if us >= 10 else f"{us:.2f}"


def plain(header, lines):
    columns = [header] + lines
    widths = [max(len(line[i]) for line in columns) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip()
                     for line in columns)


def markdown(header, lines):
    rows = [header, ["---"] + ["--:"] * (len(header) - 1)] + lines
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def ratio(row):
    return "-" if row["ratio"] is None else f"{row['ratio']:.2f}"


def group(rows, op, ranks, transport):
    """{bytes: {buffers: row}}, smallest first."""
    cells = {}
    for row in rows:
        if (row["op"], row["ranks"], row["transport"]) == (op, ranks, transport):
            cells.setdefault(row["bytes"], {})[row["buffers"]] = row
    return dict(sorted(cells.items()))


def header(kinds, first, peers):
    ours = [column for kind in kinds for column in (kind, "ratio", "to floor")]
    return [first, *ours, *(TITLES[peer] for peer in peers), "algorithm"]


def line(label, cells, kinds, peers):
    out = [label]
    for kind in kinds:
        row = cells.get(kind)
        floor = row and row.get("ratio_to_floor")
        out += [number(row["ours_us"]), ratio(row), f"{floor:.2f}" if floor else "-"] if row else ["-"] * 3
    some = next(iter(cells.values()))
    algorithms = [cells[kind]["algorithm"] for kind in kinds if kind in cells]
    return out + [number(some["peers"].get(peer)) for peer in peers] + [", ".join(dict.fromkeys(algorithms))]


def titled_tables(results):
    """(title, header, lines) of every table."""
    rows = results["rows"]
    for ranks, transport in dict.fromkeys((row["ranks"], row["transport"]) for row in rows):
        kinds = BUFFERS[transport]
        here = [row for row in rows if (row["ranks"], row["transport"]) == (ranks, transport)]
        peers = [peer for peer in PEERS if any(peer in row["peers"] for row in here)]
        where = f"{ranks} ranks, {'shared memory' if transport == 'shm' else 'TCP over loopback'}"
        cells = group(rows, "all_reduce", ranks, transport)
        if cells:
            yield (f"all_reduce, {where}", header(kinds, "bytes", peers),
                   [line(size_name(size), cell, kinds, peers) for size, cell in cells.items()])
        others = [[f"{op} {size_name(size) if size else ''}".strip(), cell]
                  for op in dict.fromkeys(row["op"] for row in here) if op != "all_reduce"
                  for size, cell in group(rows, op, ranks, transport).items()]
        if others:
            yield (f"other collectives, {where}", header(kinds, "call", peers),
                   [line(label, cell, kinds, peers) for label, cell in others])


def rates(results, layout):
    limits = results["limits"]
    classes = list(limits["add_gbs"])
    return layout(["GB/s, all cores", *(size_name(int(size)) for size in classes)],
                  [["copy", *(f"{limits['copy_gbs'][size]:.0f}" for size in classes)],
                   ["add", *(f"{limits['add_gbs'][size]:.0f}" for size in classes)]])


def shares(results, layout):
    """Of the all_reduce through shared memory."""
    lines = [[f"{row['ranks']} ranks, {row['buffers']}, {size_name(row['bytes'])}", f"{row['touched_gbs']:.0f}",
              f"{row['share_of_copy']:.0%}", f"{row['share_of_add']:.0%}"] for row in results["rows"] if "touched_gbs" in row]
    return layout(["all_reduce", "GB/s touched", "of copy", "of add"], lines) if lines else ""


def kinds(results, layout):
    """Of other types and operators: time, and the share of the f32 sum's rate."""
    names = list(dict.fromkeys(row["kind"] for row in results["kinds"]))
    cells = {}
    for row in results["kinds"]:
        cells.setdefault((row["ranks"], row["buffers"], row["bytes"]), {})[row["kind"]] = row
    lines = [[f"{ranks} ranks, {buffers}, {size_name(size)}", number(next(iter(cell.values()))["f32_sum_us"]),
              *(f"{number(cell[name]['us'])} ({1 / cell[name]['ratio']:.2f})" if name in cell else "-" for name in names)]
             for (ranks, buffers, size), cell in sorted(cells.items(), key=lambda item: (item[0][0], item[0][1] != "registered", item[0][2]))]
    return layout(["all_reduce", "f32 sum", *(name.replace("-", " ") for name in names)], lines) if lines else ""


def facts(results):
    """What the numbers rest on, a sentence a line."""
    machine, limits = results["machine"], results["limits"]
    versions = ", ".join(f"{text}" for peer, text in machine["versions"].items() if peer != "lockstep")
    yield f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}; lockstep {machine['versions']['lockstep']}."
    yield f"Peers: {versions or 'none'}."
    yield f"Congestion control: {limits['congestion_control']} by default, allowed {' '.join(limits['congestion_allowed'])}; " \
          f"in use: {', '.join(f'{name} {used}' for name, used in limits['congestion_in_use'].items()) or 'none'}."
    yield f"Reading another process's memory (CMA) is {'allowed' if limits['cma'] else 'not allowed'}."
    if limits["cache_line_us"]:
        yield f"Between cores: a cache line takes {limits['cache_line_us']:.2f} us, a futex wake {limits['futex_us']:.0f} us."


def show(results):
    print("\n".join(facts(results)))
    print("\n" + rates(results, plain))
    for title, head, lines in titled_tables(results):
        print(f"\n{title}: median us, ratio to the best peer (below 1: faster), and to the hand-written floor\n" + plain(head, lines))
    share = shares(results, plain)
    if share:
        print("\nbytes touched a second, beside the rates above\n" + share)
    kind = kinds(results, plain)
    if kind:
        print("\nother types and operators, us, and the rate of bytes touched as a share of the f32 sum's\n" + kind)
    for failure in results["failures"]:
        print(f"left out: {failure}")
