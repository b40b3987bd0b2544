//! The rate of an interface, by a token bucket (`tc-tbf(8)`): packets beyond it wait in a queue, and beyond that are refused to the sender.

use std::io;

use holdover_base::{BitRate, ByteCount};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use crate::netlink_socket::{NETLINK_ROUTE, NetlinkSocket, Request};

/// Limits the rate of the interface with this index, in the network namespace of the calling thread; further parameters are the bytes sent
/// at once and those that may wait.
///
/// # Errors
/// The kernel refuses: it needs `CAP_NET_ADMIN` and CONFIG_NET_SCH_TBF.
pub fn limit(index: u32, rate: BitRate, burst: ByteCount, queue: ByteCount) -> io::Result<()> {
    let payload = message(index, rate, burst, queue);
    let request = Request { kind: libc::RTM_NEWQDISC, flags: NLM_F_CREATE | NLM_F_REPLACE, payload };
    Ok(NetlinkSocket::open(NETLINK_ROUTE)?.request(&request, &mut |_, _| {})?)
}

/// `linux/rtnetlink.h`.
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `linux/pkt_sched.h`.
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_H_ROOT: u32 = u32::MAX;
const LINK_LAYER_ETHERNET: u8 = 1;

/// `struct tcmsg` with its attributes.
fn message(index: u32, rate: BitRate, burst: ByteCount, queue: ByteCount) -> Vec<u8> {
    let bytes_per_second = rate.0 / 8;
    let rate32 = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
    // `struct tc_ratespec`: the fields before the rate are a table's, which the kernel computes.
    let spec = |rate: u32| [&[0, LINK_LAYER_ETHERNET, 0, 0, 0, 0, 0, 0], &rate.to_ne_bytes()[..]].concat();
    let number = |bytes: ByteCount| u32::try_from(bytes.0).unwrap_or(u32::MAX).to_ne_bytes();
    // `struct tc_tbf_qopt`: no peak rate; the burst in time and the longest packet are not used beside TCA_TBF_BURST.
    let parameters = [spec(rate32), spec(0), number(queue).to_vec(), vec![0; 8]].concat();
    let options = [
        attribute(TCA_TBF_PARMS, &parameters),
        attribute(TCA_TBF_RATE64, &bytes_per_second.to_ne_bytes()),
        attribute(TCA_TBF_BURST, &number(burst)),
    ];
    let header = [0, index, 0, TC_H_ROOT, 0].map(u32::to_ne_bytes).concat();
    [header, attribute(TCA_KIND, b"tbf\0"), attribute(TCA_OPTIONS, &options.concat())].concat()
}

/// `struct rtattr`, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = [&(len as u16).to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_the_kernel_s_layout() {
        let bytes = message(7, BitRate::from_mbps(8), ByteCount(3000), ByteCount(100_000));
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(4), word(12)], [7, TC_H_ROOT]);
        // After `tcmsg` (20) and the kind (8): the options, the parameters, the rate behind 8 bytes.
        assert_eq!(&bytes[24..28], b"tbf\0");
        assert_eq!(word(28), (u32::from(TCA_OPTIONS) << 16) | (4 + 40 + 12 + 8));
        assert_eq!((word(36 + 8), word(36 + 24)), (1_000_000, 100_000));
        assert_eq!(u64::from_ne_bytes(bytes[76..84].try_into().unwrap()), 1_000_000);
        assert_eq!((word(88), bytes.len()), (3000, 92));
    }
}
