"""Goal: the parts of a job on several hosts decide rightly: names of hosts, places of ranks, the
network, the book, messages, what is carried, the records of witnesses. Method: they are pure, or
use a pipe; times are given.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
from typing import List

import harness  # makes `covey` importable in a source tree

from covey.launch import book, carried, hosts, identity, network, reach
from covey.launch.environment import Descriptors, rank_environment
from covey.launch.network import Address, HostNetworks
from covey.launch.pulse import Heart, Pulse
from covey.launch.spec import Host, JobSpec, LaunchError
from covey.launch.wire import Wire
from covey.launch.witness import Witnesses
from covey.launched_by import under_coveyrun


class NamesTest(unittest.TestCase):
    def test_a_host_has_one_slot_unless_it_says_more(self) -> None:
        self.assertEqual(
            hosts.parse("a:4, b ,user@c.example:2,[fd00::2]:3,u@[::1]"),
            [
                Host("a", 4),
                Host("b", 1),
                Host("user@c.example", 2),
                Host("fd00::2", 3),
                Host("u@::1", 1),
            ],
        )

    def test_what_is_no_host_is_refused(self) -> None:
        for text, why in (
            ("", "an empty text is not HOST"),
            ("a:4,,b", "an empty text is not HOST"),
            ("a:x", "a: x is not a number of slots"),
            ("a:", "a: nothing is not a number of slots"),
            ("a:0", "a: 0 is not a number of slots"),
            ("a:5000", "a host has at most 1024 ranks, not 5000"),
            ("fd00::2", r"stands in brackets, as \[fd00::2\]:2"),
            ("a b:2", "a b:2 is not HOST"),
            ("-oProxyCommand=x", "is no name of a host"),
            ("a,b,a", "a is named twice, with another host between"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(LaunchError, why):
                hosts.parse(text)

    def test_a_host_twice_in_a_row_adds_up(self) -> None:
        self.assertEqual(hosts.parse("a:2,a,b"), [Host("a", 3), Host("b", 1)])

    def read(self, text: str) -> List[Host]:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            return hosts.read_file(file.name)

    def test_a_hostfile_has_comments_and_both_spellings(self) -> None:
        text = "# two racks\na slots=4  # the first\n\nb:2\nc\nd slots = 3 max_slots=8\n"
        wanted = [Host("a", 4), Host("b", 2), Host("c", 1), Host("d", 3)]
        self.assertEqual(self.read(text), wanted)

    def test_a_mistake_in_a_hostfile_has_its_line(self) -> None:
        for text, why in (
            ("a\nb slots=x\n", "line 2: b: x is not a number of slots"),
            ("a\n\nb cores=2\n", "line 3: b cores=2 is not HOST"),
            ("a:2 slots=2\n", "line 1: a:2 slots=2 is not HOST"),
            ("# nothing\n", "it names no host"),
            ("a\nb\na\n", "a is named twice"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(LaunchError, why):
                self.read(text)
        with self.assertRaisesRegex(LaunchError, "--hostfile /nowhere/f: No such file"):
            hosts.read_file("/nowhere/f")

    def test_this_machine_needs_no_ssh(self) -> None:
        for name in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
            self.assertTrue(hosts.is_here(name), name)
        self.assertFalse(hosts.is_here("far.example"))


class PlacesTest(unittest.TestCase):
    def test_ranks_fill_hosts_in_their_order(self) -> None:
        named = hosts.parse("a:2,b:4,c:1")
        self.assertEqual(hosts.shared_out(named, 3), [Host("a", 2), Host("b", 1)])
        self.assertEqual(hosts.shared_out(named, 7), named)
        with self.assertRaisesRegex(LaunchError, r"-np 8: -H has only 7 slots \(a:2,b:4,c:1\)"):
            hosts.shared_out(named, 8)

    def test_every_number_of_a_place(self) -> None:
        found = hosts.places([2, 3, 1])
        self.assertEqual([place.rank for place in found], list(range(6)))
        self.assertEqual([place.local_rank for place in found], [0, 1, 0, 1, 2, 0])
        self.assertEqual([place.local_size for place in found], [2, 2, 3, 3, 3, 1])
        self.assertEqual([place.host for place in found], [0, 0, 1, 1, 1, 2])
        self.assertEqual([place.lowest for place in found], [0, 0, 2, 2, 2, 5])
        # Horovod's: the hosts that have this local rank.
        self.assertEqual([place.cross_rank for place in found], [0, 0, 1, 1, 0, 2])
        self.assertEqual([place.cross_size for place in found], [3, 2, 3, 2, 1, 3])

    def test_the_variables_of_a_rank_on_several_hosts(self) -> None:
        spec = JobSpec(command=["true"], size=3, gpus=["4", "5", "6"])
        base = {"COVEY_BOOK_FD": "90", "COVEY_LISTEN_FD": "91", "GROUP_RANK": "7"}
        base["COVEY_WITNESS_FD"] = "92"
        place = hosts.places([2, 3])[4]
        env = rank_environment(base, spec, place, "job", Descriptors(3, 4, 5), ("10.0.0.1", 99))
        wanted = {
            **{"RANK": "4", "WORLD_SIZE": "5", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "3"},
            **{"COVEY_RANK": "4", "COVEY_SIZE": "5", "COVEY_LOCAL_RANK": "2"},
            **{"COVEY_LOCAL_SIZE": "3", "COVEY_SHM_FD": "3", "COVEY_SUMMARY_FD": "4"},
            **{"COVEY_BOOK_FD": "5", "GROUP_RANK": "1", "MASTER_ADDR": "10.0.0.1"},
            **{"MASTER_PORT": "99", "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1"},
            "CUDA_VISIBLE_DEVICES": "6",
        }
        self.assertEqual({name: env.get(name) for name in wanted}, wanted)
        for name in ("COVEY_LISTEN_FD", "COVEY_WITNESS_FD"):
            self.assertNotIn(name, env, "of the job that this one was started in")
        self.assertTrue(under_coveyrun(env))
        env = rank_environment(base, spec, hosts.places([3])[0], "job", Descriptors(3, 4))
        self.assertFalse({"COVEY_BOOK_FD", "GROUP_RANK"} & set(env))


def told(
    host: str, *addresses: str, machine: str = "", by_ssh: str = "", peer: str = ""
) -> HostNetworks:
    """`addresses`: INTERFACE ADDRESS/BITS."""
    parsed = []
    for text in addresses:
        interface, _, rest = text.partition(" ")
        found = ipaddress.ip_interface(rest)
        parsed.append(Address(interface, str(found.ip), found.network.prefixlen))
    return HostNetworks(host, machine or host, parsed, by_ssh, peer)


LOOPBACK, DOCKER = "lo 127.0.0.1/8", "docker0 172.17.0.1/16"


class NetworkTest(unittest.TestCase):
    def test_the_network_in_common(self) -> None:
        a = told("a", LOOPBACK, DOCKER, "eth0 192.168.1.2/24", "ib0 10.0.0.2/16")
        b = told("b", LOOPBACK, DOCKER, "enp3s0 10.0.7.3/16")
        self.assertEqual(network.choose([a, b]), ["10.0.0.2", "10.0.7.3"])

    def test_of_several_that_of_ssh(self) -> None:
        both = ("eth0 192.168.1.{}/24", "eth1 10.0.0.{}/24")
        a = told("a", *(text.format(1) for text in both))
        for used in ("192.168.1.", "10.0.0."):
            b = told("b", *(text.format(2) for text in both), by_ssh=f"{used}2")
            self.assertEqual(network.choose([a, b]), [f"{used}1", f"{used}2"])

    def test_a_wanted_one(self) -> None:
        a = told("a", "eth0 192.168.1.1/24", "eth1 10.0.0.1/24", "eth1 fd00::1/64")
        b = told("b", "eth0 192.168.1.2/24", "eth1 10.9.0.2/24", "eth1 fd00::2/64")
        for wanted, chosen in (
            ("eth1", ["10.0.0.1", "10.9.0.2"]),
            ("10.0.0.0/8", ["10.0.0.1", "10.9.0.2"]),
            ("fd00::/8", ["fd00::1", "fd00::2"]),
            ("ib0,eth0", ["192.168.1.1", "192.168.1.2"]),
        ):
            self.assertEqual(network.choose([a, b], wanted), chosen)
        why = "--network 10.0.0.0/24: none of b: eth0 192.168.1.2/24, eth1 10.9.0.2/24"
        with self.assertRaisesRegex(LaunchError, why):
            network.choose([a, b], "10.0.0.0/24")
        with self.assertRaisesRegex(LaunchError, "no interface and no network"):
            network.choose([a, b], "10.0.0.0/99")

    def test_without_one_in_common_all_are_named(self) -> None:
        a = told("a", LOOPBACK, "eth0 192.168.1.1/24")
        b = told("b", LOOPBACK, "eth0 10.0.0.2/24")
        why = r"no network in common \(a: eth0 192.168.1.1/24; b: eth0 10.0.0.2/24\)"
        with self.assertRaisesRegex(LaunchError, why):
            network.choose([a, b])

    def test_networks_that_routers_join_by_the_addresses_of_ssh(self) -> None:
        a = told("a", "eth0 10.1.0.1/32")
        b = told("b", "eth0 10.2.0.2/32", by_ssh="10.2.0.2", peer="10.1.0.1")
        self.assertEqual(network.choose([a, b]), ["10.1.0.1", "10.2.0.2"])

    def test_the_bridge_of_containers_is_the_last_choice(self) -> None:
        a, b = told("a", DOCKER), told("b", "docker0 172.17.0.2/16")
        self.assertEqual(network.choose([a, b]), ["172.17.0.1", "172.17.0.2"])
        with self.assertRaisesRegex(LaunchError, "no network in common"):
            network.choose([a, told("b", DOCKER)])  # The same address: each has its own.

    def test_loopback_is_for_one_machine(self) -> None:
        a, b = told("a", LOOPBACK, machine="m"), told("b", LOOPBACK, machine="m")
        self.assertEqual(network.choose([a, b]), ["127.0.0.1", "127.0.0.1"])
        with self.assertRaisesRegex(LaunchError, "no network in common"):
            network.choose([a, told("b", LOOPBACK)])

    def test_this_machine_has_addresses(self) -> None:
        found = network.own_addresses()
        self.assertIn(Address("lo", "127.0.0.1", 8), found)
        self.assertEqual(network.of_ssh({"SSH_CONNECTION": "1.1.1.1 5 2.2.2.2 22"})[0], "2.2.2.2")
        self.assertEqual(network.of_ssh({}), ("", ""))


class ReachTest(unittest.TestCase):
    def test_each_host_tries_the_others_up_to_a_number(self) -> None:
        self.assertEqual(reach.targets(3, 1), [2, 0])
        self.assertEqual(len(reach.targets(100, 99)), reach.MOST_TRIED)
        self.assertEqual(reach.targets(100, 99)[:2], [0, 1])

    def test_a_listener_is_reached_and_a_closed_port_is_not(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as open_one:
            with socket.create_server(("127.0.0.1", 0)) as closed:
                gone = closed.getsockname()
            why = reach.failures([open_one.getsockname(), gone])
            self.assertEqual(why, {1: "connection refused"})


class BookTest(unittest.TestCase):
    def test_its_text(self) -> None:
        entries = [
            book.Entry(0, "10.0.0.1", 5),
            book.Entry(0, "10.0.0.1", 6),
            book.Entry(2, "fd00::2", 7),
        ]
        key = book.draw_key()
        self.assertRegex(key, "^[0-9a-f]{64}$")
        self.assertNotEqual(key, book.draw_key())
        text = book.text_of(key, "tls", entries)
        lines = ["covey book 1", f"key {key}", "security tls"]
        lines += ["0 0 10.0.0.1 5", "1 0 10.0.0.1 6", "2 2 fd00::2 7"]
        self.assertEqual(text, "\n".join(lines) + "\n")

    def test_the_file_cannot_be_changed(self) -> None:
        made = book.make("covey book 1\n")
        try:
            self.assertEqual(os.pread(made, 100, 0), b"covey book 1\n")
            for change in (lambda: os.pwrite(made, b"x", 0), lambda: os.ftruncate(made, 0)):
                with self.assertRaises(PermissionError):
                    change()
        finally:
            os.close(made)


class CarriedTest(unittest.TestCase):
    def test_what_belongs_to_a_host_stays(self) -> None:
        here = {"PATH": "/venv/bin", "PYTHONPATH": "/x", "LD_LIBRARY_PATH": "/y", "LR": "0.1"}
        own = {
            "HOSTNAME": "a",
            "SSH_AUTH_SOCK": "s",
            "TMPDIR": "/t",
            "XDG_RUNTIME_DIR": "/r",
            "DISPLAY": ":0",
            "HOME": "/h",
            "SLURM_PROCID": "0",
            "PWD": "/p",
        }
        self.assertEqual(carried.carried({**here, **own}), here)
        there = {"HOME": "/there", "PATH": "/bin", "LANG": "C"}
        arrived = carried.arrived(here, there, "/work")
        self.assertEqual(arrived, {**here, "HOME": "/there", "LANG": "C", "PWD": "/work"})

    def test_every_name_has_a_reason(self) -> None:
        self.assertTrue(all(names and why for names, why in carried.OF_HOST))


class WireTest(unittest.TestCase):
    def setUp(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self.addCleanup(self.close)
        self.wire = Wire(self.read_fd, self.write_fd)

    def close(self) -> None:
        for fd in (self.read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)

    def test_bytes_that_are_no_text_pass_unchanged(self) -> None:
        data = bytes(range(256)) + "ü\n\u2028".encode() + b"\xed\xa0\x80"
        self.wire.send("out", text=data.decode("utf-8", "surrogateescape"))
        (message,) = self.wire.receive()
        self.assertEqual(message["text"].encode("utf-8", "surrogateescape"), data)

    def test_what_has_no_room_is_kept(self) -> None:
        self.wire.send("out", text="x" * (1 << 20))
        self.assertGreater(self.wire.pending_bytes, 0)
        messages = []
        while not messages:
            messages = self.wire.receive()
            self.wire.flush()
        self.assertEqual((len(messages[0]["text"]), self.wire.pending_bytes), (1 << 20, 0))

    def test_lines_of_a_shell_before_the_first_message_are_noise(self) -> None:
        os.write(self.write_fd, b"Welcome!\n{}\n" + b'{"covey": "hello"}\n')
        self.assertEqual([message["covey"] for message in self.wire.receive()], ["hello"])
        self.assertEqual(self.wire.noise, ["Welcome!", "{}"])
        os.write(self.write_fd, b"Goodbye!\n")
        self.wire.receive()
        self.assertEqual(self.wire.fault, "a line that is no message: Goodbye!")
        self.assertTrue(self.wire.at_end)

    def test_the_end_of_either_side_is_seen(self) -> None:
        os.close(self.write_fd)
        self.write_fd = -1
        self.assertEqual((self.wire.receive(), self.wire.at_end), ([], True))

    def test_a_silence_longer_than_a_lease_is_death(self) -> None:
        pulse = Pulse(self.wire, 10.0, 100.0)
        pulse.beat(100.0)
        pulse.beat(101.0)
        self.assertEqual([message["covey"] for message in self.wire.receive()], ["alive"])
        self.assertFalse(pulse.is_silent(110.0))
        self.assertTrue(pulse.is_silent(110.1))
        pulse.heard(110.0)
        self.assertFalse(pulse.is_silent(115.0))
        pulse.is_suspended = True  # By Ctrl-Z.
        self.assertFalse(pulse.is_silent(1000.0))

    def test_a_heart_beats_beside_a_busy_thread(self) -> None:
        with contextlib.closing(Heart([Pulse(self.wire, 0.04, 0.0)], 0.04)):
            beats = 0
            while beats < 3:
                self.assertTrue(select.select([self.read_fd], [], [], harness.LIMIT_S)[0])
                beats += len(self.wire.receive())


class WitnessTest(unittest.TestCase):
    def setUp(self) -> None:
        self.witnesses = Witnesses()

    def ask(self, channel: int, number: int, state: int, record: bytes = b"") -> List[object]:
        answer = self.witnesses.answer(struct.pack("<QQQ", channel, number, state) + record)
        assert answer is not None
        return [*struct.unpack_from("<QQQ?", answer), answer[25:]]

    def test_a_record_changes_for_whoever_has_seen_its_last_state(self) -> None:
        self.assertEqual(self.ask(7, 1, 0), [7, 1, 0, False, b""])
        self.assertEqual(self.ask(7, 2, 0, b"one"), [7, 2, 1, True, b"one"])
        self.assertEqual(self.ask(7, 1, 0, b"two"), [7, 1, 1, False, b"one"])
        self.assertEqual(self.ask(7, 2, 1, b"two"), [7, 2, 2, True, b"two"])
        self.assertEqual(self.ask(7, 3, 2), [7, 3, 2, False, b"two"])

    def test_channels_have_records_of_their_own(self) -> None:
        self.ask(7, 1, 0, b"one")
        self.assertEqual(self.ask(8, 1, 0), [8, 1, 0, False, b""])

    def test_what_is_no_request_has_no_answer(self) -> None:
        self.assertIsNone(self.witnesses.answer(b"short"))
        self.assertIsNone(self.witnesses.answer(bytes(24) + bytes(257)))
        self.assertEqual(self.ask(0, 0, 0), [0, 0, 0, False, b""])


class AgentTest(unittest.TestCase):
    def test_it_starts_without_a_framework(self) -> None:
        look = "import sys, covey.launch.agent; print({'numpy', 'torch'} & set(sys.modules))"
        words = [sys.executable, "-c", look]
        seen = subprocess.run(words, env=harness.environment(), capture_output=True, check=True)
        self.assertEqual(seen.stdout, b"set()\n")

    def test_a_message_out_of_turn_is_refused(self) -> None:
        words = [sys.executable, "-m", "covey.launch.agent"]
        hello = b'{"covey": "job"}\n'
        seen = subprocess.run(
            words, env=harness.environment(), input=hello, capture_output=True, check=True
        )
        self.assertIn(b'"covey": "refused"', seen.stdout)


class IdentityTest(unittest.TestCase):
    def test_another_version_or_build_is_named_with_both(self) -> None:
        ours = identity.own()
        self.assertRegex(ours["build"], r"^Covey \S+ \(interfaces [0-9a-f]{12}\)$")
        self.assertEqual(identity.difference(ours, identity.of_host()), "")
        for name in ("version", "protocol", "build"):
            why = identity.difference(ours, {**ours, name: "other"})
            self.assertIn(f"{name} is other there and {ours[name]} here", why)


if __name__ == "__main__":
    unittest.main()
