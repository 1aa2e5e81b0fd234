"""Programs that cluster_test and cluster_hosts_test run in hosts, for `python -c`."""

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
# Of a rank that coveyrun has started: greets the next rank through its listener, and prints its
# host, the lowest rank there, and its place there.
PLACE = """
import os, socket
e = os.environ
rank, size = int(e["COVEY_RANK"]), int(e["COVEY_SIZE"])
text = os.pread(int(e["COVEY_BOOK_FD"]), 1 << 20, 0).decode()
entries = [line.split() for line in text.splitlines()[3:]]
assert [int(entry[0]) for entry in entries] == list(range(size)), text
own = socket.socket(fileno=int(e["COVEY_LISTEN_FD"]))
with socket.create_connection((entries[(rank + 1) % size][2], int(entries[(rank + 1) % size][3]))):
    came, peer = own.accept()
assert peer[0] == entries[(rank - 1) % size][2], peer
print(socket.gethostname(), entries[rank][1], e["LOCAL_RANK"] + "/" + e["LOCAL_WORLD_SIZE"])
"""
# Rank argv[1] exits with argv[2], the others wait.
FAIL = """
import os, signal, sys
if os.environ["RANK"] == sys.argv[1]:
    sys.exit(int(sys.argv[2]))
signal.pause()
"""
WAIT = """
import signal
print("up", flush=True)
signal.pause()
"""
SUM = """
import covey, numpy
covey.init()
total = covey.allreduce(numpy.full(4, covey.rank() + 1.0), op=covey.Sum, name="x")
print(int(total[0]), flush=True)
covey.shutdown()
"""
