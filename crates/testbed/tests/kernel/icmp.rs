//! Raw sockets for ICMP, with answers of the kernel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;

use bytes::Bytes;
use holdover_host::icmp_socket::{Icmp, IcmpSocket};
use holdover_testbed::{Namespace, Netlink};
use holdover_wire::{IcmpEcho, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[("only_the_accepted_type_is_received", only_the_accepted_type_is_received)];

/// The kernel answers an echo request to the host itself. A socket that accepts replies receives the answer only; one that accepts nothing
/// receives neither.
fn only_the_accepted_type_is_received(namespace: &Namespace) {
    Netlink::open(namespace).unwrap().set_up("lo").unwrap();
    let localhost: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for (icmp, reply, header) in [(Icmp::V4, 0, 20), (Icmp::V6, 129, 40)] {
        let to = localhost[icmp.index()];
        let [replies, deaf] = [Some(reply), None].map(|accepted| IcmpSocket::open(icmp, accepted).unwrap());
        let echo = IcmpEcho { reply: false, id: 7, seq: 1, payload: Bytes::from_static(b"payload") };
        let request = Packet::new(to, to, echo).emit().unwrap().slice(header..);
        deaf.send(&request, to).unwrap();
        let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
        poll(&mut [PollFd::new(&replies.as_fd(), PollFlags::IN)], Some(&patience)).unwrap();
        let (bytes, from) = replies.receive().unwrap();
        let message = if icmp == Icmp::V4 { bytes.slice(header..) } else { bytes };
        assert_eq!((message[0], &message[8..], from), (reply, &b"payload"[..], Some(to)));
        for socket in [&replies, &deaf] {
            assert_eq!(socket.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock, "{icmp:?}");
        }
    }
}
