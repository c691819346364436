"""Runs a program in a terminal of its own: terminal.py STEPS PROGRAM ARG...

STEPS is JSON, a list of [expected, answer]: waits until the expected text is on the screen behind what was there for
the step before, then types the answer.  Prints {"screen", "code"} at the end of the program, or after 60 s that it
takes too long, with the code of the signal that ends it then.
"""
import json
import os
import pty
import select
import signal
import sys
import time

steps, program = json.loads(sys.argv[1]), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(program[0], program)

screen, seen, end = b"", 0, time.monotonic() + 60
while time.monotonic() < end:
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:   # the other end is closed
            break
        if not data:
            break
        screen += data
    while steps and (at := screen.find(steps[0][0].encode(), seen)) >= 0:
        seen = at + len(steps[0][0].encode())
        os.write(terminal, steps.pop(0)[1].encode())
else:
    os.kill(pid, signal.SIGKILL)
_, status = os.waitpid(pid, 0)
print(json.dumps({"screen": screen.decode(errors="replace"), "code": os.waitstatus_to_exitcode(status),
                  "left": steps}))
