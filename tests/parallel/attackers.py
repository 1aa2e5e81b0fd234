"""What strangers, who can reach the address of a rendezvous but do not hold its secret, do to it.

Each attack is one function of the address; it sends until it has done its worst or the other side
has closed the connection, and returns the connections that are to be kept open, if any. HTTP/2 is
written by hand (RFC 9113), so that nothing needs a library of gRPC.
"""

from __future__ import annotations

import collections
import contextlib
import socket
import ssl
import struct
import threading
from typing import Callable, Deque, Dict, Iterator, List, Tuple

Address = Tuple[str, int]
LIMIT_S = 60.0
STREAMS = 3000
SILENT = 1100
MOST_OF_FLOOD = 300_000
_HEADERS, _RST_STREAM, _SETTINGS, _CONTINUATION, _DATA = 1, 3, 4, 9, 0
_END_STREAM, _END_HEADERS = 1, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_BLOCK = b"".join(
    b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value  # HPACK: literal, not indexed
    for name, value in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/covey.control.Rendezvous/Hello"),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
)
_HELLO = b"\x08\x01\x12\x20" + bytes(32)  # protocol 1 and a nonce
_MESSAGE = struct.pack(">BI", 0, len(_HELLO)) + _HELLO


def _frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, stream) + data


def connect(address: Address) -> socket.socket:
    return socket.create_connection(address, LIMIT_S)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side ends the connection, sooner or later, by itself."""
    connection.settimeout(LIMIT_S)
    try:
        while connection.recv(65536):
            continue
        return True
    except socket.timeout:
        return False
    except OSError:
        return True


def _send(address: Address, pieces: Iterator[bytes]) -> List[socket.socket]:
    with contextlib.suppress(OSError):
        connection = connect(address)
        connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        with contextlib.suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
        return [connection]
    return []


def calls(address: Address) -> List[socket.socket]:
    """Calls of Hello, as fast as they can be written."""
    return _send(address, (
        _frame(_HEADERS, _END_HEADERS, stream, _BLOCK)
        + _frame(_DATA, _END_STREAM, stream, _MESSAGE)
        for stream in range(1, 2 * STREAMS, 2)
    ))


def calls_taken_back(address: Address) -> List[socket.socket]:
    """The same, each cancelled at once."""
    return _send(address, (
        _frame(_HEADERS, _END_HEADERS, stream, _BLOCK)
        + _frame(_DATA, _END_STREAM, stream, _MESSAGE)
        + _frame(_RST_STREAM, 0, stream, struct.pack(">I", 8))
        for stream in range(1, 2 * STREAMS, 2)
    ))


def calls_without_an_end(address: Address) -> List[socket.socket]:
    """Calls whose message never comes."""
    return _send(address, (
        _frame(_HEADERS, _END_HEADERS, stream, _BLOCK) for stream in range(1, 2 * STREAMS, 2)
    ))


def headers_without_an_end(address: Address) -> List[socket.socket]:
    """96 MiB of headers."""
    def pieces() -> Iterator[bytes]:
        yield _frame(_HEADERS, 0, 1, _BLOCK)
        piece = _frame(_CONTINUATION, 0, 1, bytes(16384))
        for _ in range(6144):
            yield piece
    return _send(address, pieces())


def silence(address: Address) -> List[socket.socket]:
    """More connections than the victim may have descriptors; nothing is sent."""
    kept: List[socket.socket] = []
    with contextlib.suppress(OSError):
        for _ in range(SILENT):
            kept.append(connect(address))
    return kept


def rubbish(address: Address) -> List[socket.socket]:
    """What other programs, and scanners, send."""
    kept = []
    for first in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5000, b"\x16\x03\x01\xff\xff" + b"\x01" * 5,
                  b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" * 5000, _PREFACE[:7]):
        with contextlib.suppress(OSError):
            kept.append(connect(address))
            kept[-1].sendall(first)
    return kept


def handshakes_without_the_identity(address: Address) -> List[socket.socket]:
    """TLS as far as one comes without the job's key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    kept: List[socket.socket] = []
    for _ in range(50):
        with contextlib.suppress(OSError):
            kept.append(context.wrap_socket(connect(address)))
            kept[-1].sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
    return kept


def dribble(address: Address) -> List[socket.socket]:
    """Greetings of TLS of which one byte comes after the other, and never the last."""
    kept: List[socket.socket] = []
    with contextlib.suppress(OSError):
        for _ in range(100):
            kept.append(connect(address))
        for byte in _greeting()[:20]:
            for connection in kept:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes([byte]))
    return kept


def greetings(address: Address) -> List[socket.socket]:
    """A whole greeting of TLS each, and then silence."""
    kept: List[socket.socket] = []
    for _ in range(300):
        with contextlib.suppress(OSError):
            kept.append(connect(address))
            kept[-1].sendall(_greeting())
    return kept


def _greeting() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="covey").do_handshake()
    return outgoing.read()


def flood(address: Address, stopped: threading.Event) -> None:
    """New connections as fast as this process can make them, until stopped, or there were enough;
    some of each kind: that say nothing, begin a greeting, or say all of one."""
    kept: Deque[socket.socket] = collections.deque()
    greeting = _greeting()
    for number in range(MOST_OF_FLOOD):
        if stopped.is_set():
            break
        connection = socket.socket()
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.connect(address)
        with contextlib.suppress(OSError):
            connection.send((b"", greeting[:3], greeting)[number % 3])
        kept.append(connection)
        if len(kept) > SILENT:
            kept.popleft().close()
    for connection in kept:
        connection.close()


ATTACKS: Dict[str, Callable[[Address], List[socket.socket]]] = {
    attack.__name__: attack
    for attack in (
        calls, calls_taken_back, calls_without_an_end, headers_without_an_end, rubbish,
        handshakes_without_the_identity, dribble, greetings, silence,
    )
}
