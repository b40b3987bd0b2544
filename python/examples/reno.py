"""Reno's congestion avoidance (RFC 5681), written in Python. It equals the stack's own Reno packet by packet."""

import holdover

SCENARIO = """
title = "A download with losses and an outage"
seed = 5
time_limit = "60 s"
host = [{ name = "phone" }, { name = "server" }]

[[link]]
name = "radio"
between = ["phone", "server"]
rate = "8 Mbit/s"
delay = "25 ms"
queue_limit = "50 packets"
loss = "0.2 %"
outages = { list = [{ at = "6 s", for = "2 s" }], queued = "dropped", in_flight = "dropped" }

[[flow]]
name = "download"
from = "server"
to = "phone"
opener = "phone"
bulk = "8 MB"

[[variant]]
name = "reno"
set = { stack = "linux-6-reno" }
"""


class Reno(holdover.CongestionControl):
    """Slow start up to ssthresh, then one segment for each window; losses halve the window."""

    def __init__(self):
        self.credit = 0

    def on_ack(self, now, state):
        if state.state in ("recovery", "cwr"):
            return
        if state.bytes_acked == 0:
            return
        acked = state.acked
        if state.ssthresh is None or state.cwnd < state.ssthresh:
            room = acked if state.ssthresh is None else min(acked, state.ssthresh - state.cwnd)
            state.cwnd += room
            acked -= room
        if acked > 0:
            self.open(state, acked)

    def open(self, state, acked):
        if self.credit >= state.cwnd:
            self.credit = 0
            state.cwnd += 1
        self.credit += acked
        if self.credit >= state.cwnd:
            opened = self.credit // state.cwnd
            self.credit -= opened * state.cwnd
            state.cwnd += opened

    def on_recovery(self, now, state):
        # The stack has already set ssthresh to half of the window at which the loss was detected.
        self.credit = 0

    def on_timeout(self, now, state):
        self.credit = 0


if __name__ == "__main__":
    print(holdover.Scenario.parse(SCENARIO, "reno.toml").run(congestion={"server": Reno}).flows.to_pandas())
