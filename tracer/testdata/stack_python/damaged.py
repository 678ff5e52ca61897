"""Calls ttprobe.probe_damaged() with its own frames, code objects and strings
damaged in many ways, and takes down what they are when they are whole.

Arguments: the folder that has ttprobe.so, the file to write, how many rounds of
several kinds of damage at once there are, and where the interpreter keeps what, as
JSON. It prints "ready" and waits for a line, so that it can be attached to.

Writes a line of JSON for each call: {kind, tid, level, frames}: kind says what is
damaged, "" nothing, and the frames before level have no damage.
"""

import json
import random
import sys
import threading
import traceback

FOLDER, OUT, ROUNDS, OFFSETS = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
sys.path.insert(0, FOLDER)

import ttprobe
from ttprobe import peek, probe_damaged

NONE = 0xFFFFFFFF
WORD = (1 << 64) - 1
notes = []
dice = random.Random(1)


def decoy():
    pass


def suspended():
    yield


generator = suspended()
next(generator)
DECOY_TEXT = "a decoy"

readable = [int(line.split("-")[0], 16) for line in open("/proc/self/maps") if " r--p " in line and "/" in line]

VALUES = {
    "zero": lambda frames: 0,
    "one": lambda frames: 1,
    "low": lambda frames: 16,
    "all bits": lambda frames: WORD,
    "nearly all bits": lambda frames: WORD - 7,
    "2^60": lambda frames: 1 << 60,
    "2^62": lambda frames: 1 << 62,
    "2^63": lambda frames: 1 << 63,
    "kernel": lambda frames: 0xFFFF888000000000,
    "not canonical": lambda frames: 0x0000800000000000,
    "itself": lambda frames: frames[0],
    "middle frame": lambda frames: frames[2],
    "outermost frame": lambda frames: frames[-1],
    "one off": lambda frames: frames[1] + 1,
    "half off": lambda frames: frames[1] + 4,
    "a word off": lambda frames: frames[1] - 8,
    "list": lambda frames: id(frames),
    "type": lambda frames: id(type),
    "None": lambda frames: id(None),
    "number": lambda frames: id(WORD),
    "function": lambda frames: id(decoy),
    "generator": lambda frames: id(generator),
    "bytes": lambda frames: id(b"\xff" * 100),
    "text": lambda frames: id(DECOY_TEXT),
    "code": lambda frames: id(decoy.__code__),
    "page's end": lambda frames: readable[0] + 4096 - 8,
    "thread": lambda frames: ttprobe.thread_state(),
    "random": lambda frames: dice.getrandbits(64),
    "random low": lambda frames: dice.getrandbits(47) & ~7,
}
# too long, or too short; what lies behind a str could be part of it where its
# length looks like one
LENGTHS = {"2^60": 1 << 60, "2^62": 1 << 62, "2^63": 1 << 63, "all bits": WORD, "2^32": 1 << 32, "zero": 0, "one": 1}
STATES = {"no kind": 0x60, "kind 3": 0x6C, "kind 7": 0x7C, "zero": 0}


def all_frames():
    """The addresses of the caller's frames, from the newest, that stand for calls."""
    at = ttprobe.thread_state() + OFFSETS["ThreadFrame"]
    if OFFSETS["CFrame"]:
        at = peek(at) + OFFSETS["CFrameFrame"]
    frame, frames = peek(at), []
    while frame:
        if sys.version_info < (3, 12) or peek(frame + OFFSETS["FrameMarker"]) & 0xFF != 3:
            frames.append(frame)
        frame = peek(frame + OFFSETS["FramePrevious"])
    return frames[1:]


def field(level, name, frames):
    """Where a field lies of the frame at a level, or of its code."""
    if name == "slot":
        # glibc has the first 32 keys' values before the pointers to all of them
        return ttprobe.thread_slot(OFFSETS["Specific"] - 512, 512)
    if name == "thread":
        return ttprobe.thread_state() + OFFSETS["ThreadFrame"]
    if name == "cframe":
        return peek(ttprobe.thread_state() + OFFSETS["ThreadFrame"]) + OFFSETS["CFrameFrame"]
    if name.startswith("Frame"):
        return frames[level] + OFFSETS[name]
    code = peek(frames[level] + OFFSETS["FrameCode"])
    if name == "type":
        return code + 8 + OFFSETS["Head"]
    if name.startswith("length of "):
        return peek(code + OFFSETS[name[10:]]) + 16 + OFFSETS["Head"]
    if name.startswith("state of "):
        return peek(code + OFFSETS[name[9:]]) + 32 + OFFSETS["Head"]
    return code + OFFSETS[name]


def fields():
    names = ["slot", "thread", "FramePrevious", "FrameCode", "FrameInstruction", "type", "CodeName", "CodeFile", "CodeLineTable", "CodeFirstLine"]
    if OFFSETS["CFrame"]:
        names.append("cframe")
    if OFFSETS["FrameMarker"] != NONE:
        names.append("FrameMarker")
    if OFFSETS["CodeQualName"] != NONE:
        names.append("CodeQualName")
    return names + ["length of CodeName", "length of CodeFile", "length of CodeLineTable", "state of CodeName", "state of CodeFile"]


def values(name):
    if name.startswith("length"):
        return LENGTHS
    if name.startswith("state"):
        return STATES
    return VALUES


def value(name, chosen, frames):
    v = values(name)[chosen]
    return v(frames) if callable(v) else v


OF_THREAD = ("slot", "thread", "cframe")  # of no frame
UNREADABLE = ("zero", "one", "low", "all bits", "nearly all bits", "2^60", "2^62", "2^63", "kernel", "not canonical")
LEVELS = 3  # of frames that are damaged: innermost, inner, outer


def cases():
    for name in fields():
        for chosen in values(name):
            for level in range(LEVELS):
                if level and name in OF_THREAD:
                    continue
                yield [(level, name, chosen)]
    for _ in range(ROUNDS):
        names = dice.sample(fields(), dice.randrange(2, 5))
        yield [(0 if n in OF_THREAD else dice.randrange(LEVELS), n, dice.choice(list(values(n)))) for n in names]


def stays(name, chosen):
    """Whether a damaged code object may be known as damaged from then on. One that
    could not be read is not known."""
    if name in ("CodeName", "CodeFile", "CodeQualName", "CodeLineTable"):
        return chosen not in UNREADABLE
    return name.startswith(("Code", "length", "state", "type"))


def note(case, frame):
    frames = [
        (f.f_code.co_name, getattr(f.f_code, "co_qualname", ""), f.f_code.co_filename, line)
        for f, line in traceback.walk_stack(frame)
    ]
    notes.append({
        "kind": "; ".join(f"{n} of {level} is {v}" for level, n, v in case),
        "tid": threading.get_native_id(),
        # the file's name is one for all
        "level": min((0 if name.endswith(" of CodeFile") else level for level, name, _ in case), default=LEVELS + 10),
        "frames": frames,
    })


SOURCE = """
def innermost{n}(case):
    frames = all_frames()
    damage = [(field(level, name, frames), value(name, chosen, frames)) for level, name, chosen in case]
    note(case, sys._getframe()), probe_damaged(damage)
    # and once more, whole
    if not any(stays(name, value) for _, name, value in case):
        note([], sys._getframe()), probe_damaged([])

def inner{n}(case):
    return max([1], key=lambda _: innermost{n}(case))

def outer{n}(case):
    inner{n}(case)
"""


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    for n, case in enumerate(cases()):
        # new ones each time, which nobody knows yet
        scope = dict(globals())
        exec(compile(SOURCE.format(n=n), f"/damaged/{n}.py", "exec"), scope)
        scope[f"outer{n}"](case)
    with open(OUT, "w") as f:
        for record in notes:
            f.write(json.dumps(record) + "\n")


main()
