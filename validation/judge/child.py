"""A program of somebody else in a process of its own: whatever ends that process, the caller goes on and says so.

    with Child("mine:answer") as program:
        solution = program("laplace", problem)

The process is started once and asked one question after another, so that a slow start is paid once; after a death the
next question starts another one. Questions and answers are numbered, and go as JSON and .npz through pipes that the
program does not have: its standard output is the caller's standard error, its standard input is empty.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from validation.door import problem as problems
from validation.door import solution as solutions
from validation.door import storage
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import ImplementationError, find_implementation, known_methods, solve

_LOOK = 0.05  # seconds between two looks at whether the process is there
_LAST_WORDS = 1.0  # seconds that the pipe of a dead process is read to its end
_END = 2.0  # seconds that a process has to end before it is killed
_WORDS = ("likelihoods", "kernels", "points")  # attributes by which a program says what it takes
_FAILURES = {"ValueError": ValueError, "TypeError": TypeError, "ImplementationError": ImplementationError}
_START = "import sys; sys.path[:] = {path!r}; from validation.judge.child import serve; serve({name!r})"

# (program, method, problem, options) -> Solution, in the child
Work = Callable[[Any, str, Problem, Mapping[str, Any]], Solution]


class _Message(NamedTuple):
    """A header and the bytes of a .npz, or none."""

    header: dict[str, Any]
    content: bytes = b""

    def packed(self) -> bytes:
        """Both with their lengths before them."""
        header = json.dumps(self.header).encode()
        return struct.pack(">QQ", len(header), len(self.content)) + header + self.content

    @classmethod
    def read(cls, stream: BinaryIO) -> _Message | None:
        """The next message of a stream; None at its end, also where that comes in the middle of one."""
        sizes = stream.read(16)
        if len(sizes) < 16:
            return None
        n_header, n_content = struct.unpack(">QQ", sizes)
        header, content = stream.read(n_header), stream.read(n_content)
        if len(header) + len(content) < n_header + n_content:
            return None
        return cls(json.loads(header), content)


class Child:
    """A callable (method, problem, **options) -> Solution that asks a process; what it raises is as `solve` has it.

    given      "module:function" or the name of an entry point
    name       what the program calls itself in verdicts
    methods    and likelihoods, kernels, points where it has them: its own attributes

    Raises
    ------
    ValueError, TypeError    if the program cannot be loaded, or its process ends while it is
    """

    def __init__(self, given: str) -> None:
        """Start the process and load the program in it."""
        self.given = given
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        header = self._asked({"do": "load"}, b"", f"{given}: while it was loaded").header
        self.name: str = header["name"]
        self.methods = tuple(header["methods"])
        for word, value in header["words"].items():
            setattr(self, word, value if isinstance(value, str) else tuple(value))

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __call__(self, method: str, problem: Problem, **options: Any) -> Solution:
        """The answer as `validation.judge.judging.solve_with` checks it; options are numbers, text and lists of them.

        Raises
        ------
        NotImplementedError    as the program raised it
        ImplementationError    what else it raised, what was wrong with its answer, or how its process ended
        """
        return self._solution("judge", method, problem, options)

    def solve(self, method: str, problem: Problem, **options: Any) -> Solution:
        """`validation.door.solve.solve` in the process; errors as there, and an ImplementationError for how it
        ended."""
        return self._solution("solve", method, problem, options)

    def close(self) -> None:
        """Let the process end; one that does not is killed."""
        if self._process is not None:
            self._process = None
            self._finish()

    def _solution(self, do: str, method: str, problem: Problem, options: Mapping[str, Any]) -> Solution:
        content = storage.npz_bytes(problems.SCHEMA, problem.to_arrays())
        header = {"do": do, "method": method, "options": dict(options)}
        where = f"{self.given if do == 'solve' else self.name} {method} on {problem.name}"
        answer = self._asked(header, content, where)
        try:
            return Solution.from_arrays(_arrays(answer.content), where)
        except (ValueError, TypeError, KeyError) as error:
            raise ImplementationError(f"{where}: found an answer that is no Solution ({error})") from error

    def _asked(self, header: dict[str, Any], content: bytes, where: str) -> _Message:
        """What the process answers; what it raised is raised here."""
        number = next(self._numbers)
        try:
            answer = self._answer(_Message({**header, "number": number}, content), where)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self._process is not None:
                self._process.send_signal(signal.SIGINT)  # what the program started is ended by the program
            self.close()
            raise
        kind, text = answer.header["kind"], answer.header.get("text", "")
        if kind == "answer":
            return answer
        if kind == "KeyboardInterrupt":
            raise KeyboardInterrupt
        if kind == "NotImplementedError":
            raise NotImplementedError(text)
        failure = _FAILURES[kind](text)
        if isinstance(failure, ImplementationError):
            failure.trace = answer.header["trace"]
        raise failure

    def _answer(self, question: _Message, where: str) -> _Message:
        if self._process is None:
            self._start()
            if question.header["do"] != "load":  # it is loaded there again
                self._asked({"do": "load"}, b"", f"{self.given}: while it was loaded again")
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(question.packed())
            process.stdin.flush()
        except OSError:  # it is not there any more: below is said how it ended
            pass
        while True:
            ended = process.poll() is not None
            try:
                answer = self._answers.get(timeout=_LAST_WORDS if ended else _LOOK)
            except queue.Empty:
                answer = None
                if not ended:
                    continue
            if answer is None:  # the pipe is closed, or nothing came out of it after the end
                raise self._died(process, where)
            if answer.header["number"] == question.header["number"]:
                return answer
            raise ImplementationError(f"{where}: found an answer to another question, expected one to this")

    def _start(self) -> None:
        command = [sys.executable, "-P", "-c", _START.format(path=sys.path, name=self.given)]
        errors = None if sys.stderr is not None else subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self._answers: queue.Queue[_Message | None] = queue.Queue()
        self._process = process
        self._finish = weakref.finalize(self, _end, process)  # whoever forgets to close it leaves no process behind
        threading.Thread(target=_listen, args=(process.stdout, self._answers), daemon=True).start()

    def _died(self, process: subprocess.Popen[bytes], where: str) -> Exception:
        try:
            code = process.wait(_END)
        except subprocess.TimeoutExpired:
            how = "its process closed the pipe of its answers"
        else:
            how = f"its process ended with {_status(code)}"
        text = (
            f"{where}: {how}, expected an answer or an exception; look for what ends a process (exit, STOP, "
            "os._exit, abort, a crash in compiled code)"
        )
        return ImplementationError(text)


def _status(code: int) -> str:
    """An exit code, or the signal that ended the process, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def _listen(stream: BinaryIO, answers: queue.Queue[_Message | None]) -> None:
    """In a thread: messages of a pipe as they come, None at its end or where they are none."""
    with stream:
        try:
            while (message := _Message.read(stream)) is not None:
                answers.put(message)
        except (ValueError, OverflowError, MemoryError, OSError):  # bytes that nobody here wrote
            pass
    answers.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process to end, and kill it if it is still there."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # what could not be written is not written now either
        process.stdin.close()
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _arrays(content: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files if name != "schema"}


# -- in the child --------------------------------------------------------------------------------------------------


def serve(given: str) -> None:
    """Load a program and answer questions about it until the pipe is closed."""
    heard = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between questions an interrupt is the caller's
    answers, requests = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="replace", line_buffering=True)  # type: ignore[union-attr]
    asked: queue.Queue[_Message | None] = queue.Queue()
    threading.Thread(target=_hear, args=(requests, asked), daemon=True).start()
    me, program = os.getpid(), None
    while (question := asked.get()) is not None:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if question.header["do"] == "load":
                program = find_implementation(given)
                answer = _Message({"kind": "answer", **_loaded(program, given)})
            else:
                answer = _Message({"kind": "answer"}, _solved(given, program, question))
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whoever asked raises it
            answer = _Message(_told(error))
        if heard:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if os.getpid() != me:  # the program forked, and this is the copy
            os._exit(1)
        answers.write(_Message({**answer.header, "number": question.header["number"]}, answer.content).packed())
        answers.flush()


def _hear(requests: BinaryIO, asked: queue.Queue[_Message | None]) -> None:
    """In a thread: questions as they come; at their end the process has some time to end by itself."""
    while (message := _Message.read(requests)) is not None:
        asked.put(message)
    asked.put(None)
    threading.Event().wait(_END)
    _leave()


def _leave() -> NoReturn:
    os._exit(1)


def _loaded(program: Any, given: str) -> dict[str, Any]:
    from validation.judge.posing import name_of

    name = name_of(program)
    words = {word: value for word in _WORDS if (value := getattr(program, word, None)) is not None}
    plain = {word: value if isinstance(value, str) else [str(one) for one in value] for word, value in words.items()}
    return {"name": name, "methods": known_methods(program, given), "words": plain}


def _solved(given: str, program: Any, question: _Message) -> bytes:
    from validation.judge.judging import solve_with

    method, options = question.header["method"], question.header["options"]
    problem = Problem.from_arrays(_arrays(question.content))
    if question.header["do"] == "solve":
        solution = solve(given, method, problem, **options)
    else:
        solution = solve_with(program, method, problem)
    return storage.npz_bytes(solutions.SCHEMA, solution.to_arrays())


def _told(error: BaseException) -> dict[str, Any]:
    """An error as a header: the nearest of those that a caller expects, its words, and the traceback of its cause."""
    kinds = (KeyboardInterrupt, NotImplementedError, ImplementationError, ValueError, TypeError)
    kind = next((one.__name__ for one in kinds if isinstance(error, one)), "ImplementationError")
    text = str(error) if isinstance(error, kinds) else f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error.__cause__ or error))
    return {"kind": kind, "text": text, "trace": trace}
