"""Framed messages over a socket: a JSON object and a block of bytes. Nothing is ever unpickled.

Both ends use this. The outside end treats whatever it reads as hostile: sizes are checked before memory is
taken, one deadline covers a whole message (so dripping bytes gains nothing), and anything malformed is a
`ChannelError`.
"""

from __future__ import annotations

import array
import json
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

_HEADER = struct.Struct(">II")
JSON_LIMIT = 8 << 20  # a cell's outputs, each character of which may need six bytes in JSON
BLOB_LIMIT = 16 << 20  # far more than a case or an observation needs, and read into little memory


class ChannelError(Exception):
    """The other end broke the protocol."""


class ChannelClosed(ChannelError):
    """The other end is gone."""


class ChannelTimeout(ChannelError):
    """The deadline passed."""


class Channel:
    """One end of a connection.

    tick: called about every `TICK` seconds while waiting (the outside end looks at the memory in use then).
    """

    TICK = 0.05

    def __init__(self, sock: socket.socket, json_limit: int = JSON_LIMIT, blob_limit: int = BLOB_LIMIT):
        self.socket = sock
        self.json_limit, self.blob_limit = json_limit, blob_limit
        self.tick: Callable[[], None] | None = None

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def send(self, message: dict[str, Any], blob: bytes = b"", seconds: float | None = None) -> None:
        """Send one message. Raises ChannelTimeout or ChannelClosed."""
        text = json.dumps(message).encode()
        deadline = _deadline(seconds)
        rest = memoryview(_HEADER.pack(len(text), len(blob)) + text + blob)
        while rest:
            self._wait(select.POLLOUT, deadline)
            try:
                rest = rest[self.socket.send(rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(f"the other end is gone ({error.strerror})") from error

    def receive(self, seconds: float | None = None) -> tuple[dict[str, Any], bytes]:
        """Return the next message. Raises ChannelTimeout, ChannelClosed or ChannelError."""
        deadline = _deadline(seconds)
        text_size, blob_size = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if text_size > self.json_limit or blob_size > self.blob_limit:
            raise ChannelError(f"a message of {text_size} + {blob_size} bytes is over the limit")
        text, blob = self._read(text_size, deadline), self._read(blob_size, deadline)
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ChannelError(f"a message is not JSON ({type(error).__name__})") from error
        if not isinstance(message, dict):
            raise ChannelError("a message is not an object")
        return message, bytes(blob)

    def _read(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray()
        while len(data) < size:
            self._wait(select.POLLIN, deadline)
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20), socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(f"the other end is gone ({error.strerror})") from error
            if not piece:
                raise ChannelClosed("the other end is gone")
            data += piece
        return data

    def _wait(self, event: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self.socket, event)
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise ChannelTimeout("no answer in time")
            step = self.TICK if self.tick else 3600.0
            if poll.poll(1000 * (step if left is None else min(step, left))):
                return
            if self.tick:
                self.tick()


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def send_descriptor(sock: socket.socket, message: bytes, descriptor: int) -> None:
    """Send a short message that carries an open file descriptor."""
    rights = array.array("i", [descriptor])
    sock.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def receive_descriptor(sock: socket.socket, limit: int = 4096) -> tuple[bytes, int | None]:
    """Return the next short message and the descriptor that came with it (b"", None at the end)."""
    message, extra, _, _ = sock.recvmsg(limit, socket.CMSG_SPACE(4))
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(data) >= 4:
            return message, array.array("i", data[:4])[0]
    return message, None
