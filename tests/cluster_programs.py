"""Programs that cluster_test runs in hosts, for `python -c`."""

from __future__ import annotations

# Prints its port, then what arrives there.
RECEIVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 0))
print(s.getsockname()[1], flush=True)
while True:
    print(s.recv(100).decode(), flush=True)
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
"""
# Prints its port, then for each connection who has connected.
SERVER = """
import socket
s = socket.create_server(("0.0.0.0", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, peer = s.accept()
    print(peer[0], flush=True)
    c.send(b"x")
    c.close()
"""
CONNECT = """
import socket, sys, time
begun = time.monotonic()
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as c:
    took = time.monotonic() - begun
    used = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    print(used.rstrip(bytes(1)).decode(), took)
"""
ECHO = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""
