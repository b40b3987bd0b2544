//! A transfer that is longer than all sequence numbers.

use holdover_filter::tcp_mut;

use super::*;
use crate::ffi::testing::before_last;

const SEGMENT: u32 = 1_000;

/// Bytes of a packet: many segments.
const LEN: u32 = 60 * SEGMENT;

// Claim: A transfer without gaps is counted exactly, and the boundaries of its last segments are known, however long it is: after 2 GiB,
// and after 4 GiB, when its sequence numbers begin anew.
#[test]
fn a_transfer_of_more_than_all_sequence_numbers_is_counted_and_held_back() {
    let (link, rules) = (Link::new(&LinkState::default()), Rules::default());
    let (mut flow, mut place) = (Flow::new(), Place::default());
    let template = packet(false, Flags::ACK, (0, 1_000), 5_000, LEN as usize);
    let mut seq = 77_u32;
    for number in 1..=(1_u64 << 32) * 5 / 4 / u64::from(LEN) {
        let mut packet = template.clone();
        let segment = tcp_mut(&mut packet).unwrap();
        segment.seq = Seq::new(seq);
        let form = Form { segment_size: Some(SEGMENT), ..Form::of(segment) };
        let environment = Environment { now: Instant::from_micros(number * 100), link: &link, rules: &rules };
        let key = Key::new(connection());
        let passed = flow.handle_packet(&mut place, &key, environment, Direction::Incoming, &mut packet, form);
        assert_eq!(passed, (Verdict::Pass, None));
        seq = seq.wrapping_add(LEN);
        assert_eq!(flow.bytes_in(), number * u64::from(LEN));
        if number > 1 {
            assert_eq!(before_last(&flow, seq.wrapping_sub(SEGMENT), 4), Some(seq.wrapping_sub(5 * SEGMENT)));
        }
    }
    assert_eq!(flow.half(Direction::Outgoing).runs().count(), 1);
}
