"""Pictures of a recording, with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttmem.child import Error

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

    from ttmem.recording import Recording

MIB = 1 << 20


def subplots(count: int, height: float) -> tuple[matplotlib.figure.Figure, list[Any]]:
    """A figure with plots below each other."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise Error("matplotlib is not installed: pip install matplotlib") from None
    if count == 0:
        raise Error("nothing to draw: nothing was allocated")
    figure, axes = pyplot.subplots(count, 1, figsize=(10, height * count), squeeze=False, layout="constrained")
    return figure, [row[0] for row in axes]


def title(devices: tuple[int, ...], region: str) -> str:
    chips = ", ".join(map(str, devices))
    return f"{region} of chip{'s' if len(devices) > 1 else ''} {chips}"


def plot(run: Recording, timeline: pandas.DataFrame, peaks: pandas.DataFrame) -> matplotlib.figure.Figure:
    """The use of each region over time, in MiB and in seconds after the first event."""
    parts = list(timeline.groupby(["devices", "region"], sort=False))
    figure, axes = subplots(len(parts), 2.2)
    first = run.metadata["first_ns"]
    for at, ((devices, region), part) in zip(axes, parts):
        seconds = ((part["time_ns"] - first) / 1e9).astype(float)
        high = (part["max_bytes"] / MIB).astype(float)
        at.fill_between(seconds, (part["min_bytes"] / MIB).astype(float), high, alpha=0.4, step="post")
        at.step(seconds, high, where="post")
        at.set(title=title(devices, region), xlabel="seconds", ylabel="MiB", ylim=(0, None))
        for of, name, time in zip(peaks["devices"], peaks["region"], peaks["time_ns"]):
            if (of, name) == (devices, region):
                at.axvline(float(time - first) / 1e9, linestyle=":")
    return figure


def plot_peak(holders: pandas.DataFrame, most: int) -> matplotlib.figure.Figure:
    """The largest call sites of each peak, largest first."""
    parts = list(holders.groupby(["peak_devices", "region"], sort=False))
    figure, axes = subplots(len(parts), 0.3 * most + 1)
    for at, ((devices, region), part) in zip(axes, parts):
        sums = part.groupby("name", sort=False)["bytes"].sum().sort_values(ascending=False)
        names, mib = list(sums.index[:most]), [float(one) / MIB for one in sums.iloc[:most]]
        if len(sums) > most:
            names.append(f"{len(sums) - most} more")
            mib.append(float(sums.iloc[most:].sum()) / MIB)
        at.barh(range(len(names)), mib)
        at.set_yticks(range(len(names)), [str(one) for one in names])
        at.invert_yaxis()
        at.set(title=f"Peak of {title(devices, region)}", xlabel="MiB")
    return figure
