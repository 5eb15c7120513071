"""Time over size as SVG, log-log, one picture for each number of ranks and transport. `picture` draws any such curves."""
import math

from options import size_name
from tables import PEERS, TITLES

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 50
COLOURS = {"lockstep, registered": "#0b6e4f", "lockstep, private": "#3fa34d", "lockstep": "#3fa34d", "Open MPI": "#c8553d",
           "MPICH": "#f28f3b", "Gloo": "#588b8b", "floor, registered": "#666666", "floor, private": "#999999", "floor": "#999999"}


def series_of(rows, transport):
    """{name: [(bytes, us)]}, ours first; floors are what names with "floor" are."""
    ours, floors, peers = {}, {}, {}
    for row in sorted(rows, key=lambda r: r["bytes"]):
        kind = f", {row['buffers']}" if transport == "shm" else ""
        ours.setdefault(f"lockstep{kind}", []).append((row["bytes"], row["ours_us"]))
        if "floor_us" in row:
            floors.setdefault(f"floor{kind}", []).append((row["bytes"], row["floor_us"]))
        for peer in PEERS:
            if peer in row["peers"] and row["buffers"] == "private":
                peers.setdefault(TITLES[peer], []).append((row["bytes"], row["peers"][peer]))
    return ours | peers | floors


class Axes:
    def __init__(self, series):
        points = [point for line in series.values() for point in line]
        self.sizes = sorted({size for size, _ in points})
        self.low, self.high = (f(math.log10(us) for _, us in points) for f in (min, max))
        self.low, self.high = math.floor(self.low), max(math.ceil(self.high), math.floor(self.low) + 1)

    def x(self, size):
        first, last = math.log(self.sizes[0]), math.log(self.sizes[-1])
        part = (math.log(size) - first) / (last - first) if last > first else 0.5
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, us):
        return HEIGHT - BOTTOM - (math.log10(us) - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{words}</text>'


def duration(us):
    return f"{us:g} us" if us < 1000 else f"{us / 1000:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


class Labels:
    """How the axes are called, and their values written."""

    def __init__(self, below="bytes", along=size_name, up=duration):
        self.below, self.along, self.up = below, along, up


def grid(axes, labels):
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for power in range(axes.low, axes.high + 1):
        y = axes.y(10.0 ** power)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield text(LEFT - 8, y + 4, labels.up(10.0 ** power), "end")
    last = -100.0
    for size in axes.sizes:
        x = axes.x(size)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#eeeeee"/>'
        if x - last >= 30:
            yield text(x, bottom + 18, labels.along(size), "middle")
            last = x
    yield text((LEFT + right) / 2, HEIGHT - 12, labels.below, "middle")


def curve(axes, name, points, colours):
    path = " ".join(f"{axes.x(size):.1f},{axes.y(us):.1f}" for size, us in points)
    dash = ' stroke-dasharray="5 4"' if name.startswith("floor") else ""
    width = 2.5 if name.startswith("lockstep") else 1.5
    yield f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="{width}"{dash}/>'
    if not dash:
        yield from (f'<circle cx="{axes.x(size):.1f}" cy="{axes.y(us):.1f}" r="2.5" fill="{colours[name]}"/>' for size, us in points)


def names_beside(axes, series, colours):
    """At the ends of the curves, moved apart where they would overlap."""
    below = 0.0
    for name, points in sorted(series.items(), key=lambda item: axes.y(item[1][-1][1])):
        y = max(axes.y(points[-1][1]) + 4, below + 15)
        below = y
        yield text(WIDTH - RIGHT + 8, y, name, extra=f'fill="{colours[name]}"')


def picture(title, series, labels=Labels(), colours=COLOURS):
    axes = Axes(series)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text(LEFT, 24, title, extra='font-size="15"'), *grid(axes, labels)]
    for name, points in series.items():
        parts += curve(axes, name, points, colours)
    return "\n".join(parts + list(names_beside(axes, series, colours)) + ["</svg>"]) + "\n"


def draw(results, folder):
    """Writes the pictures of all_reduce; gives (title, path) of each."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for ranks, transport in dict.fromkeys((row["ranks"], row["transport"]) for row in results["rows"]):
        rows = [row for row in results["rows"] if (row["op"], row["ranks"], row["transport"]) == ("all_reduce", ranks, transport)]
        if not rows:
            continue
        where = "shared memory" if transport == "shm" else "TCP over loopback"
        title = f"all_reduce, f32 sum in place, {ranks} ranks, {where}"
        path = folder / f"all_reduce-{ranks}-{transport}.svg"
        path.write_text(picture(title, series_of(rows, transport)), encoding="utf-8")
        drawn.append((title, path))
    return drawn
