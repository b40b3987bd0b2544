use bytes::Bytes;

use super::*;

fn queue(segments: u32) -> RetransmissionQueue {
    let mut queue = RetransmissionQueue::default();
    for n in 0..segments {
        let sent_at = Instant::from_millis(u64::from(n));
        queue.push(Sent::new(sent_at, Seq::new(n * 100), Bytes::from_static(&[0; 100])));
    }
    queue
}

fn block(start: u32, end: u32) -> SeqRange {
    SeqRange::new(Seq::new(start), Seq::new(end))
}

#[test]
fn sack_loss_and_retransmission_move_the_pipe() {
    let mut queue = queue(10);
    let mut newly = Vec::new();
    queue.mark_sacked(block(300, 600), |sent| newly.push(sent.seq.value()));
    assert_eq!(newly, [300, 400, 500]);
    queue.mark_sacked(block(250, 650), |_| panic!("nothing new is wholly inside"));
    assert_eq!((queue.sacked(), queue.in_flight()), (3, 7));
    queue.mark_lost(0);
    queue.mark_lost(1);
    assert_eq!(queue.in_flight(), 5);
    assert_eq!(queue.next_lost(), Some(0));
    queue.note_retransmission(0, Instant::from_secs(1), true, None);
    assert_eq!((queue.in_flight(), queue.next_lost()), (6, Some(1)));
    queue.assert_consistent();
    assert!(queue.pop_acked(Seq::new(99)).is_none());
    assert!(queue.pop_acked(Seq::new(150)).is_some());
    assert!(queue.pop_acked(Seq::new(150)).is_none());
    assert_eq!((queue.lost(), queue.retransmitted()), (1, 0));
    queue.assert_consistent();
    while queue.pop_acked(Seq::new(1000)).is_some() {}
    queue.assert_consistent();
    assert!(queue.outstanding.is_absent(), "nothing is outstanding, and takes no room");
}

#[test]
fn a_growing_block_marks_what_a_new_one_would() {
    let mut queue = queue(20);
    let mark = |queue: &mut RetransmissionQueue, start, end| {
        let mut newly = Vec::new();
        queue.mark_sacked(block(start, end), |sent| newly.push(sent.seq.value()));
        queue.assert_consistent();
        newly
    };
    assert_eq!(mark(&mut queue, 250, 550), [300, 400]);
    assert_eq!(mark(&mut queue, 300, 600), [500], "from its former end on");
    assert_eq!(mark(&mut queue, 1000, 1100), [1000]);
    assert_eq!(mark(&mut queue, 200, 800), [200, 600, 700]);
    queue.split(0, 50);
    assert_eq!(mark(&mut queue, 50, 250), [50, 100], "the second half of a record");
    queue.forget_sacks();
    assert_eq!(mark(&mut queue, 200, 500), [200, 300, 400]);
    while queue.pop_acked(Seq::new(500)).is_some() {}
    assert_eq!(mark(&mut queue, 1000, 1200), [1000, 1100], "after all that was marked is acknowledged");
    assert_eq!(mark(&mut queue, 1200, 3000).len(), 8, "beyond what was sent");
    queue.push(Sent::new(Instant::from_secs(1), Seq::new(2000), Bytes::from_static(&[0; 100])));
    assert_eq!(mark(&mut queue, 1200, 2100), [2000]);
}

#[test]
fn a_lost_retransmission_leaves_the_pipe() {
    let mut queue = queue(3);
    queue.mark_lost(1);
    queue.note_retransmission(1, Instant::from_secs(1), true, None);
    assert_eq!(queue.in_flight(), 3);
    queue.mark_lost(1);
    assert_eq!((queue.in_flight(), queue.next_lost()), (2, Some(1)));
    queue.assert_consistent();
}

#[test]
fn forgotten_losses_are_in_flight_once() {
    let mut queue = queue(3);
    queue.mark_lost(0);
    queue.mark_lost(1);
    queue.note_retransmission(0, Instant::from_secs(1), true, None);
    queue.forget_losses();
    assert_eq!((queue.lost(), queue.retransmitted(), queue.in_flight()), (0, 0, 3));
    assert_eq!(queue.next_lost(), None);
    assert!(queue.get(0).was_retransmitted(), "Karn's rule");
    queue.assert_consistent();
}

#[test]
fn a_record_is_cut_where_a_range_begins() {
    let mut queue = queue(3);
    for seq in [150, 200, 0, 300, 900] {
        queue.split_at(Seq::new(seq));
        queue.assert_consistent();
    }
    let starts: Vec<u32> = queue.iter().map(|sent| sent.seq.value()).collect();
    assert_eq!(starts, [0, 100, 150, 200]);
}

#[test]
fn records_of_one_fate_are_joined() {
    let mut queue = queue(5);
    assert!(queue.mark_lost_in(block(150, 301)));
    assert_eq!((queue.lost(), queue.in_flight()), (3, 2));
    assert!(!queue.mark_lost_in(block(500, 900)));
    queue.split(1, 90);
    queue.join_with_next(2);
    queue.assert_consistent();
    assert_eq!((queue.packets_out(), queue.lost()), (5, 3));
    assert_eq!((queue.get(2).seq.value(), queue.get(2).len()), (190, 110));
    // One is lost, the other is not.
    queue.join_with_next(0);
    queue.join_with_next(4);
    assert_eq!(queue.packets_out(), 5);
}

#[test]
fn a_copy_outlasts_the_mark_of_the_first_segment() {
    let mut queue = queue(3);
    queue.note_retransmission(0, Instant::from_secs(1), true, None);
    queue.mark_first_lost();
    assert_eq!((queue.lost(), queue.retransmitted(), queue.next_lost()), (1, 1, None));
    queue.mark_first_lost();
    assert_eq!((queue.in_flight(), queue.losses()), (3, 1));
    queue.assert_consistent();
    queue.mark_lost(0);
    assert_eq!((queue.in_flight(), queue.losses(), queue.next_lost()), (2, 2, Some(0)));
    queue.assert_consistent();
}

#[test]
fn an_ack_inside_a_segment_trims_it_and_splitting_keeps_the_fin_last() {
    let mut queue = queue(1);
    let records = &mut queue.outstanding.to_mut().records;
    records[0] = records[0].clone().with_flags(Flags::FIN);
    assert_eq!(queue.trim_front(Seq::new(1)), 1);
    queue.split(0, 50);
    assert_eq!((queue.get(0).payload.len(), queue.get(0).flags()), (50, Flags::empty()));
    assert_eq!((queue.get(1).payload.len(), queue.get(1).flags()), (49, Flags::FIN));
    assert_eq!(queue.get(1).end(), Seq::new(101));
    queue.assert_consistent();
}

#[test]
fn duplicate_acks_never_count_the_missing_segment() {
    let mut queue = queue(4);
    assert_eq!((0..3).filter(|_| queue.add_dup_acked()).count(), 0);
    assert!(queue.add_dup_acked(), "more than are outstanding");
    assert_eq!(queue.in_flight(), 1);
    queue.mark_lost(0);
    queue.mark_lost(1);
    assert_eq!((queue.dup_acked(), queue.in_flight()), (2, 0));
}
