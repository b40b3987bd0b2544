"""Reconnection ACKs as a mechanism in Python: the twin of ``reconnect_acks``.

When the link is back, the peer does not know: it waits for its next retransmission or zero-window probe, put off further and further in the
dark. So the host sends its last ACK again, three times: a sender frozen by a zero window goes on at once, and one that runs ordinary fast
retransmit takes three duplicates for a loss (Caceres and Iftode 1995; Freeze-TCP, section III).

The twin in Rust is ``crates/mobility/src/reconnect_acks.rs``. Both make the same packets at the same times:
``python examples/reconnect_acks.py`` runs both and compares their captures.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

import holdover

MODULUS = 1 << 32


def later(a: int, b: int) -> int:
    """The later one of two sequence numbers."""
    return a if (a - b) % MODULUS < MODULUS // 2 else b


@dataclass
class Connection:
    """What is remembered of a connection, by the addresses and ports of host and peer."""

    takes_part: bool = False
    is_reset: bool = False
    host_fin: int | None = None
    peer_fin: int | None = None
    host_fin_acked: bool = False
    peer_fin_acked: bool = False
    # The last segment of the host, as far as it can be repeated.
    last: holdover.Packet | None = None
    next_seq: int = 0
    window: int = 0
    # The time of the peer's last packet, in ns.
    heard_at: int | None = None

    @property
    def is_live(self) -> bool:
        return self.takes_part and not self.is_reset and not (self.host_fin_acked and self.peer_fin_acked)


class ReconnectAcks(holdover.Mechanism):
    """Sends the last ACK of each connection again when the link is back."""

    name = "reconnect_acks"

    def __init__(self, copies: int = 3, idle_s: float = 600.0) -> None:
        self.copies = copies
        self.idle = round(idle_s * 1e9)
        self.connections: dict[tuple[str, int, str, int], Connection] = {}
        self.down_at: int | None = None

    def handle_packet(self, now, direction, packet):
        if not packet.is_tcp:
            return None
        ends = (packet.src, packet.src_port, packet.dst, packet.dst_port)
        if direction == "in":
            ends = ends[2:] + ends[:2]
        connection = self.connections.setdefault(ends, Connection())
        flags = packet.flags
        fin = (packet.seq + packet.seq_len) % MODULUS if "F" in flags else None

        def acknowledges(end: int | None) -> bool:
            return end is not None and "." in flags and later(packet.ack, end) == packet.ack

        if direction == "in":
            connection.heard_at = now
            connection.is_reset |= "R" in flags
            connection.peer_fin = connection.peer_fin if fin is None else fin
            connection.host_fin_acked |= acknowledges(connection.host_fin)
            return None
        if "R" in flags:
            connection.is_reset = connection.takes_part
            return None
        connection.takes_part, connection.is_reset = True, False
        connection.host_fin = connection.host_fin if fin is None else fin
        connection.peer_fin_acked |= acknowledges(connection.peer_fin)
        if "." in flags:
            end = (packet.seq + packet.seq_len) % MODULUS
            connection.next_seq = end if connection.last is None else later(connection.next_seq, end)
            # The window of a SYN-ACK is not scaled, but the window of a repetition is (RFC 7323 section 2.2).
            connection.window = packet.window >> min(packet.window_scale or 0, 14) if "S" in flags else packet.window
            connection.last = packet.copy()
        return None

    def handle_link(self, now, event):
        if event.kind == "down":
            self.down_at = now
        elif event.kind == "up":
            cut_at = now if self.down_at is None else self.down_at
            self.down_at = None
            for ends in sorted(self.connections, key=lambda ends: (ip_address(ends[0]), ends[1], ip_address(ends[2]), ends[3])):
                self.announce(cut_at, ends, self.connections[ends])

    def announce(self, cut_at: int, ends: tuple[str, int, str, int], connection: Connection) -> None:
        last = connection.last
        waits = connection.heard_at is not None and max(cut_at - connection.heard_at, 0) <= self.idle
        if last is None or not waits or not connection.is_live:
            return
        ack = holdover.Packet.pure_ack(
            *ends,
            seq=connection.next_seq,
            ack=last.ack,
            window=connection.window,
            timestamps=last.timestamps,
            ttl=last.ttl,
            # A repetition must not report congestion again (RFC 3168).
            traffic_class=last.traffic_class & 0xFC,
        )
        for _ in range(self.copies):
            self.send(ack)
        self.note("sent ACKs", ack)


#: A phone that downloads through three outages, with an upload beside it.
SCENARIO = """
title = "Three outages"
seed = 5
time_limit = "60 s"

[[host]]
name = "phone"

[[host]]
name = "server"

[[link]]
name = "radio"
between = ["phone", "server"]
rate = "4 Mbit/s"
delay = "20 ms"
queue_limit = "40 packets"
loss = "0.2 %"
outages = { list = [{ at = "1 s", for = "2 s" }, { at = "5 s", for = "3 s" }, { at = "12 s", for = "6 s" }], queued = "dropped", in_flight = "dropped" }

[[flow]]
name = "download"
from = "server"
to = "phone"
opener = "phone"
bulk = "4 MB"

[[flow]]
name = "upload"
from = "phone"
to = "server"
bulk = "1 MB"
"""


def main() -> None:
    plain = holdover.Scenario.parse(SCENARIO, "three-outages.toml")
    python = plain.run(report=False, mechanisms={"phone": ReconnectAcks})["base"]
    in_rust = plain.with_({"host.phone.mechanisms": {"reconnect_acks": {}}})
    rust = in_rust.run(report=False)["base"]
    for name, capture in rust.captures.items():
        same = capture.read_bytes() == python.captures[name].read_bytes()
        print(f"{name}: {'the same bytes' if same else 'DIFFERENT'}, {capture.stat().st_size} bytes")
    for action in python.actions:
        print(f"{action['t_s']:.3f} s  {action['mechanism']}: {action['what']} on {action['connection']}")


if __name__ == "__main__":
    main()
