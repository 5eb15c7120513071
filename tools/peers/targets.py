"""The goals of the project, and whether a run meets them."""
from options import parse_size, size_name

COLUMNS = [["8"], ["1K"], ["8K"], ["64K"], ["512K", "1M"], ["4M"], ["25M"], ["64M", "256M"]]
# ranks, transport, buffers, against whom, and the largest ratio allowed in each column
GOALS = [
    (2, "shm", "registered", "best", [0.8, 0.8, 0.3, 0.2, 0.2, 0.3, 0.35, 0.35]),
    (2, "shm", "private", "best", [0.8, 0.95, 0.9, 0.6, 0.7, 0.8, 0.8, 0.65]),
    (4, "shm", "registered", "best", [0.6, 0.8, 0.3, 0.2, 0.2, 0.2, 0.15, 0.2]),
    (4, "shm", "private", "best", [0.6, 0.8, 0.55, 0.45, 0.65, 0.65, 0.45, 0.45]),
    (2, "tcp", "private", "openmpi", [0.75, 0.7, 0.7, 0.65, 0.7, 0.5, 0.5, 0.4]),
    (4, "tcp", "private", "openmpi", [0.9, 0.9, 0.8, 0.8, 0.8, 0.6, 0.6, 0.5]),
    (2, "tcp", "private", "gloo", [0.1, 0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5]),
    (4, "tcp", "private", "gloo", [0.1, 0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5]),
]
# transport and buffers: the largest ratio to the floor, and the bytes from which on it is a goal
FLOORS = {("shm", "registered"): (1.3, 8192), ("shm", "private"): (1.15, 0), ("tcp", "private"): (1.15, 0)}
SMALL_MARGIN_US = 0.1  # above the floor at 8 bytes, registered
OTHERS = 1.0
KIND = 1.1  # of the f32 sum's time: the same share of the rate, and a tenth for what runs differ by


def ratio_to(row, against):
    if against == "best":
        return row["ratio"]
    them = row["peers"].get(against)
    return row["ours_us"] / them if them else None


def verdict(goal, row, reached, limit):
    return {"goal": goal, "op": row["op"], "ranks": row["ranks"], "transport": row["transport"], "buffers": row["buffers"],
            "bytes": row["bytes"], "reached": round(reached, 3), "limit": limit, "met": round(reached, 3) <= limit}


def judge(results):
    """One verdict for every goal that these results can tell of."""
    rows = results["rows"]
    columns = {parse_size(name): i for i, names in enumerate(COLUMNS) for name in names}
    found = []
    for ranks, transport, buffers, against, limits in GOALS:
        for row in rows:
            if (row["op"], row["ranks"], row["transport"], row["buffers"]) != ("all_reduce", ranks, transport, buffers):
                continue
            reached = ratio_to(row, against)
            if row["bytes"] in columns and reached is not None:
                found.append(verdict(f"all_reduce to {against}", row, reached, limits[columns[row["bytes"]]]))
    for row in rows:
        if row["op"] != "all_reduce" and row["ratio"] is not None:
            found.append(verdict("other collectives to best", row, row["ratio"], OTHERS))
        if "floor_us" not in row:
            continue
        limit, begins = FLOORS[row["transport"], row["buffers"]]
        if row["bytes"] >= begins:
            found.append(verdict("to the floor", row, row["ratio_to_floor"], limit))
        elif row["bytes"] == 8 and row["buffers"] == "registered":
            found.append(verdict("us above the floor", row, row["ours_us"] - row["floor_us"], SMALL_MARGIN_US))
    for row in results["kinds"]:
        call = {"op": f"all_reduce {row['kind']}", "transport": "shm"} | row
        found.append(verdict("to the f32 sum", call, row["ratio"], KIND))
    return found


def lines(verdicts):
    for v in verdicts:
        call = f"{v['op']} {size_name(v['bytes']) if v['bytes'] else ''}".strip()
        yield [f"{v['ranks']} ranks, {v['transport']}, {v['buffers']}", call, v["goal"], f"{v['reached']:.3f}", f"<= {v['limit']}",
               "PASS" if v["met"] else "miss"]


HEADER = ["between", "call", "goal", "reached", "allowed", ""]
