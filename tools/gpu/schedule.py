"""Steps that may run beside one another, and steps that run alone. Each has a process of its own: what it asks of the Runner meanwhile, and a
request to end, are its own."""
import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import signal

from step import Result

FORK = multiprocessing.get_context("fork")  # Steps hold closures, which no pipe carries to a fresh interpreter.


class Interrupted(BaseException):
    """The caller's time is over: what was measured is written."""


def nothing(_number, _frame):
    """Not SIG_IGN, which programs would inherit."""


def interrupt(_number, _frame):
    signal.signal(signal.SIGTERM, nothing)  # Asked once more, it still has to end what it has begun.
    raise Interrupted()


@contextlib.contextmanager
def held_back():
    """A request to end comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child(FORK.Process):
    def __init__(self, number, step, runner):
        super().__init__()
        self.number, self.step, self.runner = number, step, runner
        self.mine, self.its = FORK.Pipe(duplex=False)

    def begin(self):
        self.start()
        self.its.close()  # Else the pipe would not end with it.

    def run(self):
        signal.signal(signal.SIGINT, nothing)  # A terminal interrupts all processes: the first one tells the others.
        hangs = collections.Counter(self.runner.hangs)
        with contextlib.suppress(Interrupted):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            result = self.step.run(self.runner)
            self.its.send((result, self.runner.hangs - hangs))

    def outcome(self):
        """Its step's result, and hangs by mode."""
        try:
            return self.mine.recv()
        except EOFError:
            return Result(self.step.name, "failed", "its process has ended without a word"), {}
        finally:
            self.mine.close()
            self.join()


def collect(running, runner, ended):
    """What has ended; waits until something has. Prints a line for each: what is told as measured is in the report."""
    ready = multiprocessing.connection.wait([child.mine for child in running])
    for child in [child for child in running if child.mine in ready]:
        with held_back():
            result, hangs = child.outcome()
            running.remove(child)
            runner.hangs.update(hangs)
            ended(child.number, result)
            print(result.line(), flush=True)


def run(numbered, runner, jobs, ended):
    """Of [(number, step)] each: ended(number, result). In their order, those that run `beside` others so many at a time."""
    def taken(step):
        return 1 if step.beside else jobs
    running = []
    try:
        for number, step in numbered:
            while running and sum(taken(child.step) for child in running) + taken(step) > jobs:
                collect(running, runner, ended)
            with held_back():  # Nobody would end one that has begun and is not among them.
                running.append(Child(number, step, runner))
                running[-1].begin()
        while running:
            collect(running, runner, ended)
    finally:
        for child in running:
            child.terminate()
        for child in running:
            child.join()
